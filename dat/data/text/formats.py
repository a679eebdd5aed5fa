"""The formats of files of text, by their suffixes: JSON Lines, Parquet, and text."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from .files import JSON_LINES, PARQUET, Piece, read_json_lines, read_pieces
from .parquet import read_parquet


def read_documents(path: Path, separator: str, field: str) -> Iterator[Piece]:
    """The documents of a file; ``separator`` parts those of text, ``field`` names the text of the others."""
    if path.suffix in JSON_LINES:
        return read_json_lines(path, field)
    if path.suffix == PARQUET:
        return read_parquet(path, field)
    return read_pieces(path, separator)


def have_fields(paths: Sequence[Path]) -> bool:
    """Whether a file is of a format that names its text."""
    return any(path.suffix in (*JSON_LINES, PARQUET) for path in paths)
