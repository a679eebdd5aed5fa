"""A relation dictionary: for each relation the pairs that excite it most, in context, and matched counterexamples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..._extras import require
from ..._files import first_line, json_text, replaced_atomically


@dataclass(frozen=True)
class PairContext:
    """Tokens around one object: number of the first in its document, and ids."""

    start: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class PairExample:
    """A pair of a corpus.

    Attributes:
        value: of the relation, to about four digits.
        document, receiver, sender: number of the document, and places in it.
        receiver_token, sender_token: ids.
        receiver_context, sender_context: the tokens around them.
    """

    value: float
    document: int
    receiver: int
    sender: int
    receiver_token: int
    sender_token: int
    receiver_context: PairContext
    sender_context: PairContext


@dataclass(frozen=True)
class DictionaryEntry:
    """A pair that excites a relation.

    Attributes:
        layer, relation: name of the layer and number of the relation.
        end: ``"high"``, or ``"low"`` for one of the pairs with the smallest values.
        rank: from 1.
        example: the pair.
        counterexamples: pairs drawn from those of about the same distance and of tokens of about the same frequencies.
    """

    layer: str
    relation: int
    end: str
    rank: int
    example: PairExample
    counterexamples: tuple[PairExample, ...]


@dataclass(frozen=True)
class RelationDictionary:
    """Entries, and about what: settings, and sizes of the corpus."""

    entries: tuple[DictionaryEntry, ...]
    about: Mapping[str, Any]

    @property
    def relations(self) -> list[tuple[str, int]]:
        """Layer and number of each relation that has entries."""
        return list(dict.fromkeys((entry.layer, entry.relation) for entry in self.entries))

    def of(self, layer: str, relation: int, end: str = "high") -> list[DictionaryEntry]:
        """Entries of one relation, by rank; ``ValueError`` if there are none."""
        found = [one for one in self.entries if (one.layer, one.relation, one.end) == (layer, relation, end)]
        if not found:
            known = ", ".join(f"{name} {number}" for name, number in self.relations) or "none"
            raise ValueError(f"relation: expected one of {known}, got {layer} {relation} ({end})")
        return found

    def save(self, path: str | Path) -> None:
        """Write a file that :func:`load_dictionary` reads: ``.jsonl``, or ``.parquet`` with the extra ``datasets``."""
        path, rows = Path(path), [asdict(entry) for entry in self.entries]
        if _is_parquet(path):
            arrow, parquet = require("pyarrow", extra="datasets"), require("pyarrow.parquet", extra="datasets")
            table = arrow.Table.from_pylist(rows, schema=_schema(arrow))
            table = table.replace_schema_metadata({"about": json_text(dict(self.about))})
            with replaced_atomically(path) as file:
                sink = arrow.BufferOutputStream()
                parquet.write_table(table, sink)
                file.write(sink.getvalue().to_pybytes())
            return
        with replaced_atomically(path) as file:
            for row in ({"about": dict(self.about)}, *rows):
                file.write((json_text(row) + "\n").encode())


def load_dictionary(path: str | Path) -> RelationDictionary:
    """Read what :meth:`RelationDictionary.save` wrote; ``ValueError`` naming the file, if it is something else."""
    path = Path(path)
    try:
        about, *rows = _read_parquet(path) if _is_parquet(path) else _read_lines(path)
        return RelationDictionary(tuple(map(_entry, rows)), about["about"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a relation dictionary ({first_line(error)})") from error


def _is_parquet(path: Path) -> bool:
    if path.suffix not in (".jsonl", ".parquet"):
        raise ValueError(f"path: expected a name that ends in .jsonl or .parquet, got {path.name!r}")
    return path.suffix == ".parquet"


def _read_lines(path: Path) -> Iterator[Any]:
    with open(path, encoding="utf-8") as file:
        yield from map(json.loads, file)


def _read_parquet(path: Path) -> Iterator[Any]:
    table = require("pyarrow.parquet", extra="datasets").read_table(path)
    yield {"about": json.loads((table.schema.metadata or {})[b"about"])}
    yield from table.to_pylist()


def _schema(arrow: Any) -> Any:
    number, integer, text = arrow.float64(), arrow.int64(), arrow.string()
    context = arrow.struct([("start", integer), ("tokens", arrow.list_(integer))])
    names = ("document", "receiver", "sender", "receiver_token", "sender_token")
    contexts = [("receiver_context", context), ("sender_context", context)]
    example = arrow.struct([("value", number), *((name, integer) for name in names), *contexts])
    labels = [("layer", text), ("relation", integer), ("end", text), ("rank", integer)]
    return arrow.schema([*labels, ("example", example), ("counterexamples", arrow.list_(example))])


def _entry(row: Mapping[str, Any]) -> DictionaryEntry:
    others = tuple(map(_example, row["counterexamples"]))
    return DictionaryEntry(row["layer"], row["relation"], row["end"], row["rank"], _example(row["example"]), others)


def _example(row: Mapping[str, Any]) -> PairExample:
    names = ("receiver_context", "sender_context")
    contexts = {name: PairContext(row[name]["start"], tuple(row[name]["tokens"])) for name in names}
    return PairExample(**{**row, **contexts})


def context_around(document: Sequence[int], place: int, width: int) -> PairContext:
    """The token at ``place`` and up to ``width`` on each side."""
    start = max(0, place - width)
    return PairContext(start, tuple(document[start : place + width + 1]))
