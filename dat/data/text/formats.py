"""Formats of files of text, by their suffixes: JSON Lines, Parquet (``pyarrow``, extra ``datasets``), and text."""

from collections.abc import Iterator
from pathlib import Path

from dual_attention._base.extras import require
from dual_attention._base.files import first_line

from .files import JSON_LINES, PARQUET, Piece, read_json_lines, read_pieces


def read_documents(path: Path, separator: str, field: str) -> Iterator[Piece]:
    """The documents of a file; ``separator`` parts those of text, ``field`` names the text of the others."""
    if path.suffix in JSON_LINES:
        return read_json_lines(path, field)
    if path.suffix == PARQUET:
        return read_parquet(path, field)
    return read_pieces(path, separator)


def read_parquet(path: Path, field: str) -> Iterator[Piece]:
    """The documents of a file, a row each; a row without a text is an empty one.

    Args:
        field: name of the column that holds the text.

    Raises:
        ValueError: naming the file, if it is no Parquet file, is damaged, or has no such column of texts.
        ImportError: if pyarrow is missing.
    """
    arrow, parquet = require("pyarrow", extra="datasets"), require("pyarrow.parquet", extra="datasets")
    try:
        with parquet.ParquetFile(path) as file:
            columns = {about.name: about.type for about in file.schema_arrow}
            if field not in columns:
                names = ", ".join(columns)
                raise ValueError(f"{path}: expected a column data.field={field!r}, got the columns {names}")
            kinds = arrow.types
            if not (kinds.is_string(columns[field]) or kinds.is_large_string(columns[field])):
                raise ValueError(f"{path}: expected texts in the column {field!r}, got {columns[field]}")
            for batch in file.iter_batches(batch_size=1024, columns=[field]):
                for text in batch.column(0).to_pylist():
                    yield Piece(text or "", True)
    except (arrow.ArrowInvalid, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{path}: damaged, or no Parquet file ({first_line(error)})") from error
