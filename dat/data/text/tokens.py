"""Tokens on disk: text is tokenized once, into a file that is mapped into memory; files of tokens are used in place."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dual_attention._base.checksums import sha256_of
from dual_attention._base.files import named_in_errors
from dual_attention._base.words import listed
from dual_attention.generation.tokenizer import Tokenizer, fingerprint

from ..._numpy import np
from .documents import Documents, Tokens
from .files import JSON_LINES, PARQUET, Piece, python_documentation
from .formats import read_documents
from .hub_datasets import folder_identity, read_dataset, split_identity
from .shards import NoText, Report, make_shards, open_shards

TOKEN_SUFFIXES = (".npy", ".bin")

_LAYOUT = 3  # of the files of kept tokens; those of another are left alone
_SAMPLED = 1 << 20
_ENDS = "sha256 of its ends"


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
                npy = path.suffix == ".npy"
                array = np.load(path, mmap_mode="r") if npy else np.memmap(path, dtype=np.uint16, mode="r")
        except (ValueError, EOFError, OverflowError) as error:
            raise ValueError(f"{path}: not a file of tokens ({error})") from error
        if not isinstance(array, np.ndarray) or array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "an archive"
            raise ValueError(f"{path}: expected a vector of integers, got {found}")
        arrays.append(array)
        origin.append({"file": path.name, "tokens": len(array), _ENDS: _hash_of_ends(path)})
    return TokenSource(tuple(arrays), {"kind": "tokens", "files": origin})


def is_file_of(entry: Mapping[str, Any], path: Path) -> bool:
    """Whether a file is that of an entry in an origin, by its name and hash."""
    if entry["file"] != path.name:
        return False
    return _hash_of_ends(path) == entry[_ENDS] if _ENDS in entry else sha256_of(path) == entry.get("sha256")


class SourceText(NamedTuple):
    """A text to tokenize.

    Attributes:
        identify: makes its origin; what it was made of is read for that.
        pieces: reads its documents.
        left_out: files that are not read.
    """

    identify: Callable[[], dict[str, Any]]
    pieces: Callable[[], Iterable[Piece]]
    left_out: Sequence[Path] = ()

    @property
    def origin(self) -> dict[str, Any]:
        """Identity of its documents, as JSON."""
        return self.identify()


def text_of_files(files: list[Path], separator: str, field: str, left_out: Sequence[Path] = ()) -> SourceText:
    """The documents of files in turn; see :func:`~.formats.read_documents`."""

    def identify() -> dict[str, Any]:
        listed = [{"file": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files]
        origin: dict[str, Any] = {"kind": "text", "files": listed, "separator": separator}
        return {**origin, "field": field} if any(path.suffix in (*JSON_LINES, PARQUET) for path in files) else origin

    pieces = lambda: (piece for path in files for piece in read_documents(path, separator, field))  # noqa: E731
    return SourceText(identify, pieces, left_out)


def documentation_of_python() -> SourceText:
    """The documentation of the running Python."""
    return SourceText(
        lambda: {"kind": "documentation of Python", "python": sys.version},
        lambda: (Piece(text, True) for text in python_documentation()),
    )


def text_of_dataset(split: Any, name: str, field: str, most: int | None = None) -> SourceText:
    """The documents of a split of a data set, all or the first ``most``; see :mod:`.hub_datasets`."""

    def identify() -> dict[str, Any]:
        which = {"kind": "data set", "name": name, "split": str(split.split), "field": field}
        marks = split_identity(split)
        hashed = _hash_of_ends if "streamed" in marks else sha256_of
        origin = {**which, **marks, **folder_identity(name, hashed)}
        return origin if most is None else {**origin, "first rows": most}

    return SourceText(identify, lambda: read_dataset(split, name, field, most))


def tokenize(
    text: SourceText | TokenSource, tokenizer: Tokenizer, cache: Path, *, report: Report | None = None
) -> TokenSource:
    """A text as tokens, from ``cache`` if it has been tokenized before; tokens as they are.

    Args:
        report: told of the progress.
    """
    if isinstance(text, TokenSource):
        return text
    origin = {**text.origin, "tokenizer": fingerprint(tokenizer)}
    key = hashlib.sha256(repr((_LAYOUT, sorted(origin.items()))).encode()).hexdigest()[:16]
    try:
        make_shards(cache / key, text.pieces, tokenizer, origin, report=report)
    except NoText as error:
        raise ValueError(f"data: there is no text in {listed(_names(origin))}") from error
    found = open_shards(cache / key)
    return TokenSource((found.tokens,), origin, found.documents, found.characters, found.empty, text.left_out)


def _names(origin: dict[str, Any]) -> list[str]:
    return [item["file"] for item in origin.get("files", ())] or [origin.get("name", origin["kind"])]


def _hash_of_ends(path: Path) -> str:
    """Hash of a file's first and last MiB; large files are many."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        first = file.read(_SAMPLED)
        file.seek(max(size - _SAMPLED, 0))
        return hashlib.sha256(first + file.read(_SAMPLED)).hexdigest()
