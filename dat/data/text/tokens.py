"""Tokens on disk: text is tokenized once, into a file that is mapped into memory; files of tokens are used in place."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dual_attention._checksums import sha256_of
from dual_attention._files import named_in_errors
from dual_attention._words import listed
from dual_attention.generation.tokenizer import Tokenizer, fingerprint

from ..._numpy import np
from .documents import Documents, Tokens
from .files import Piece, python_documentation
from .formats import have_fields, read_documents
from .hub_datasets import read_dataset, split_identity
from .shards import NoText, Report, make_shards, open_shards

TOKEN_SUFFIXES = (".npy", ".bin")

_LAYOUT = 3  # of the files of kept tokens; those of another are left alone
_SAMPLED = 1 << 20


class TokenSource(NamedTuple):
    """Tokens, and their origin.

    Attributes:
        arrays: vectors of unsigned integers; no sequence goes from one to the next.
        origin: what identifies them: names of files, sizes, hashes.
        documents: where they begin; None if that is not known.
        characters: of their text, if that is known.
        empty: documents without text, if that is known.
        left_out: files that were not read.
    """

    arrays: tuple[Tokens, ...]
    origin: dict[str, Any]
    documents: Documents | None = None
    characters: int | None = None
    empty: int | None = None
    left_out: Sequence[Path] = ()

    @property
    def size(self) -> int:
        """Number of tokens."""
        return sum(len(array) for array in self.arrays)

    @property
    def name(self) -> str:
        """Name of the sources, for messages."""
        return listed(_names(self.origin))


def holds_tokens(files: list[Path], argument: str) -> bool:
    """Whether files hold tokens rather than text."""
    kinds = {file.suffix in TOKEN_SUFFIXES for file in files}
    if len(kinds) > 1:
        raise ValueError(
            f"{argument}: expected files of text or files of tokens ({', '.join(TOKEN_SUFFIXES)}), got both"
        )
    return kinds == {True}


def open_tokens(files: list[Path]) -> TokenSource:
    """Files of tokens, mapped into memory."""
    arrays, origin = [], []
    for path in files:
        try:
            with named_in_errors(path):
                if path.suffix == ".npy":
                    array = np.load(path, mmap_mode="r", allow_pickle=False)
                else:
                    array = np.memmap(path, dtype=np.uint16, mode="r")
        except (ValueError, EOFError, OverflowError) as error:
            raise ValueError(f"{path}: not a file of tokens ({error})") from error
        if not isinstance(array, np.ndarray) or array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "an archive"
            raise ValueError(f"{path}: expected a vector of integers, got {found}")
        arrays.append(array)
        origin.append({"file": path.name, "tokens": len(array), "sha256 of its ends": _hash_of_ends(path)})
    return TokenSource(tuple(arrays), {"kind": "tokens", "files": origin})


def pieces_of_files(files: list[Path], separator: str, field: str) -> Iterator[Piece]:
    """The documents of files in turn; see :func:`~.formats.read_documents`."""
    return (piece for path in files for piece in read_documents(path, separator, field))


def pieces_of_documentation() -> Iterator[Piece]:
    """The documents of the documentation of the running Python."""
    return (Piece(text, True) for text in python_documentation())


def tokenize_files(
    files: list[Path],
    separator: str,
    tokenizer: Tokenizer,
    cache: Path,
    *,
    field: str = "text",
    report: Report | None = None,
) -> TokenSource:
    """Text files as tokens, from ``cache`` if they have been tokenized before.

    Args:
        field: key of the objects of JSON Lines, or column of Parquet files, that holds the text.
        report: told of the progress.
    """
    origin = origin_of_files(files, separator, field)
    return _tokenize(origin, lambda: pieces_of_files(files, separator, field), tokenizer, cache, report)


def origin_of_files(files: list[Path], separator: str, field: str) -> dict[str, Any]:
    """Identity of the documents of text files, as JSON."""
    listed = [{"file": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files]
    origin: dict[str, Any] = {"kind": "text", "files": listed, "separator": separator}
    return {**origin, "field": field} if have_fields(files) else origin


def tokenize_documentation(tokenizer: Tokenizer, cache: Path, *, report: Report | None = None) -> TokenSource:
    """The documentation of the running Python as tokens, from ``cache`` if it has been tokenized before."""
    return _tokenize(origin_of_documentation(), pieces_of_documentation, tokenizer, cache, report)


def origin_of_documentation() -> dict[str, Any]:
    """Identity of the documentation of the running Python, as JSON."""
    return {"kind": "documentation of Python", "python": sys.version}


def tokenize_dataset(
    split: Any,
    name: str,
    field: str,
    tokenizer: Tokenizer,
    cache: Path,
    *,
    most: int | None = None,
    report: Report | None = None,
) -> TokenSource:
    """A split of a data set as tokens, from ``cache`` if it has been tokenized before; see :mod:`.hub_datasets`.

    Args:
        most: rows to take, the first ones; None takes all.
        report: told of the progress.
    """
    origin = origin_of_dataset(split, name, field, most)
    return _tokenize(origin, lambda: read_dataset(split, name, field, most), tokenizer, cache, report)


def origin_of_dataset(split: Any, name: str, field: str, most: int | None = None) -> dict[str, Any]:
    """Identity of the documents of a split, as JSON."""
    origin = {"kind": "data set", "name": name, "split": str(split.split), "field": field, **split_identity(split)}
    return origin if most is None else {**origin, "first rows": most}


def _tokenize(
    origin: dict[str, Any],
    pieces: Callable[[], Iterable[Piece]],
    tokenizer: Tokenizer,
    cache: Path,
    report: Report | None,
) -> TokenSource:
    origin = {**origin, "tokenizer": fingerprint(tokenizer)}
    key = hashlib.sha256(repr((_LAYOUT, sorted(origin.items()))).encode()).hexdigest()[:16]
    try:
        make_shards(cache / key, pieces, tokenizer, origin, report=report)
    except NoText as error:
        raise ValueError(f"data: there is no text in {listed(_names(origin))}") from error
    text = open_shards(cache / key)
    return TokenSource((text.tokens,), origin, text.documents, text.characters, text.empty)


def _names(origin: dict[str, Any]) -> list[str]:
    return [item["file"] for item in origin.get("files", ())] or [origin.get("name", origin["kind"])]


def _hash_of_ends(path: Path) -> str:
    """Of large files, which are many: their first and last MiB."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        first = file.read(_SAMPLED)
        file.seek(max(size - _SAMPLED, 0))
        return hashlib.sha256(first + file.read(_SAMPLED)).hexdigest()
