"""A relation dictionary: for each relation the pairs that excite it most, in context, and matched counterexamples."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..._base.files import first_line, json_text, refuse_pipes, replaced_atomically
from ..._base.words import shortened


@dataclass(frozen=True)
class PairContext:
    """Tokens around one object: number of the first in its document, and ids.

    >>> PairContext(start=2, tokens=(7, 8, 9)).tokens
    (7, 8, 9)
    """

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

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> dictionary = build_dictionary(lm, [torch.arange(12) for _ in range(8)], DictionarySettings(top=2))
    >>> example = dictionary.entries[0].example
    >>> example.receiver_token == example.receiver, example.sender_token == example.sender
    (True, True)
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

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> dictionary = build_dictionary(lm, [torch.randint(50, (12,)) for _ in range(8)], DictionarySettings(top=2))
    >>> dictionary.entries[0].layer, dictionary.entries[0].rank, dictionary.entries[0].end
    ('blocks.0', 1, 'high')
    """

    layer: str
    relation: int
    end: str
    rank: int
    example: PairExample
    counterexamples: tuple[PairExample, ...]


@dataclass(frozen=True)
class RelationDictionary:
    """Entries, and about what: settings, and sizes of the corpus.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> dictionary = build_dictionary(lm, [torch.randint(50, (12,)) for _ in range(8)], DictionarySettings(top=2))
    >>> len(dictionary.of("blocks.0", 0)), dictionary.about["top"]
    (2, 2)
    """

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
        """Write a file of JSON lines, ``.jsonl``, that :func:`load_dictionary` reads."""
        with replaced_atomically(_checked(path)) as file:
            for row in ({"about": dict(self.about)}, *map(asdict, self.entries)):
                file.write((json_text(row) + "\n").encode())


def load_dictionary(path: str | Path) -> RelationDictionary:
    """Read what :meth:`RelationDictionary.save` wrote.

    Raises:
        ValueError: naming the file, and the line, if it is something else: numbers of layers, objects and tokens are
            integers from 0, ranks from 1, and values are finite.
        OSError: if it cannot be read.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> dictionary = build_dictionary(lm, [torch.randint(50, (12,)) for _ in range(8)], DictionarySettings(top=2))
    >>> dictionary.save("relations.jsonl")
    >>> load_dictionary("relations.jsonl") == dictionary
    True
    """
    path = Path(path)
    refuse_pipes(path)
    try:
        head, *rows = _read_lines(_checked(path))
        if not isinstance(head, Mapping) or not isinstance(about := head.get("about"), Mapping):
            raise ValueError(f"expected an object about it first, got {shortened(repr(head))}")
        entries = (_read(DictionaryEntry, f"line {number}", row) for number, row in enumerate(rows, 2))
        return RelationDictionary(tuple(entries), about)
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a relation dictionary ({first_line(error)})") from error


def _checked(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix != ".jsonl":
        raise ValueError(f"path: expected a name that ends in .jsonl, got {path.name!r}")
    return path


def _read_lines(path: Path) -> Iterator[Any]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except (RecursionError, ValueError) as error:
                raise ValueError(f"line {number}: {first_line(error)}") from error


_Kind = TypeVar("_Kind")


def _read(kind: type[_Kind], name: str, row: Any) -> _Kind:
    """An entry, pair or context of a file, whose fields have the types that the dataclass says."""
    names = {field.name: str(field.type) for field in fields(kind)}  # pyright: ignore[reportArgumentType]
    if not isinstance(row, Mapping) or row.keys() != names.keys():
        raise ValueError(f"{name}: expected {', '.join(names)}, got {shortened(repr(row))}")
    return kind(**{field: _FIELDS[of](f"{name}, {field}", row[field]) for field, of in names.items()})


def _integer(name: str, value: Any) -> int:
    least = 1 if name.endswith(", rank") else 0
    if type(value) is not int or value < least:
        raise ValueError(f"{name}: expected an integer from {least}, got {shortened(repr(value))}")
    return value


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name}: expected a finite number, got {shortened(repr(value))}")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"{name}: expected a name, got {shortened(repr(value))}")
    if name.endswith(", end") and value not in ("high", "low"):
        raise ValueError(f"{name}: expected high or low, got {value!r}")
    return value


def _several(of: Callable[[str, Any], Any], name: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list):
        raise ValueError(f"{name}: expected a list, got {shortened(repr(values))}")
    return tuple(of(name, value) for value in values)


_FIELDS: dict[str, Callable[[str, Any], Any]] = {
    "int": _integer,
    "float": _number,
    "str": _text,
    "PairContext": partial(_read, PairContext),
    "PairExample": partial(_read, PairExample),
    "tuple[int, ...]": partial(_several, _integer),
    "tuple[PairExample, ...]": partial(_several, partial(_read, PairExample)),
}
"""Readers of a field, by its type."""


def context_around(document: Sequence[int], place: int, width: int) -> PairContext:
    """The token at ``place`` and up to ``width`` on each side."""
    start = max(0, place - width)
    return PairContext(start, tuple(document[start : place + width + 1]))
