"""The log of a run: one JSON line an epoch."""

import hashlib
import json
from pathlib import Path
from typing import Any, TypedDict

from dual_attention._base.files import json_text, named_in_errors, read_file, sync_file, write_atomically

Row = dict[str, Any]


class MetricsMark(TypedDict):
    """The log at some moment: its length, and the SHA-256 of its contents."""

    bytes: int
    sha256: str


OF_THE_MACHINE = ("seconds", "examples_per_second", "tokens_per_second", "mfu", "peak_memory_bytes")
"""Numbers of a row that differ between equal runs."""


def read_rows(path: Path) -> list[Row]:
    """Rows of a metrics file, oldest first. A last line cut short by a crash is left out.

    Raises:
        ValueError: naming the file and the line, if another one is no row.
    """
    return _rows(read_file(path), path) if path.exists() else []


def _rows(contents: bytes, path: Path) -> list[Row]:
    rows = []
    *lines, last = contents.split(b"\n")
    for number, line in enumerate(lines, start=1):
        row = _row(line)
        if row is None:
            raise ValueError(f"{path}, line {number}: damaged, expected a row of metrics, got {line[:40]!r}")
        rows.append(row)
    unfinished = _row(last)
    return rows if unfinished is None else [*rows, unfinished]


def _row(line: bytes) -> Row | None:
    """The row that a line holds, None if it holds none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


class MetricsLog:
    """Appends rows to ``metrics.jsonl``.

    Numbers that are not finite, which JSON lacks, are written as null.

    Args:
        path: the JSON-lines file.
        epochs_done: position of training; rows of later epochs, left by an interrupted run, are dropped.
        unit: the key that counts a row's epochs, or what takes their place.
        mark: the log at the checkpoint that training continues from: what follows it is dropped, and what comes before
            it must be there as it was.

    Attributes:
        last_step: of the rows that are there already; None if there are none.

    Raises:
        ValueError: naming the file, if a row is lost or damaged.
    """

    def __init__(
        self, path: Path, *, epochs_done: int = 0, unit: str = "epoch", mark: MetricsMark | None = None
    ) -> None:
        self.path = path
        contents = read_file(path) if path.exists() else b""
        if mark is not None:
            contents = contents[: mark["bytes"]]
            if len(contents) < mark["bytes"] or hashlib.sha256(contents).hexdigest() != mark["sha256"]:
                raise ValueError(f"{path}: damaged, a row before the checkpoint is lost or changed; restore the file")
        kept = [row for row in _rows(contents, path) if _position(row, unit, path) <= epochs_done]
        text = "".join(json_text(row) + "\n" for row in kept)
        write_atomically(path, text)
        self._sha256, self._bytes = hashlib.sha256(text.encode()), len(text.encode())
        self.last_step: int | None = kept[-1]["step"] if kept else None

    def log(self, row: Row) -> None:
        """Append one row."""
        line = (json_text(row) + "\n").encode()
        with named_in_errors(self.path), open(self.path, "ab") as file:
            file.write(line)
        self._sha256.update(line)
        self._bytes += len(line)

    def mark(self) -> MetricsMark:
        """The log as it is now, for a checkpoint; it is on the disk then."""
        sync_file(self.path)
        return {"bytes": self._bytes, "sha256": self._sha256.hexdigest()}


def _position(row: Row, unit: str, path: Path) -> int:
    """Epoch of a row, or what takes its place."""
    position = row.get(unit)
    if type(position) is not int:
        raise ValueError(f"{path}: damaged, a row has {unit} {position!r}")
    return position
