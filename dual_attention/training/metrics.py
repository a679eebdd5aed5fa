"""The log of a run: one JSON line an epoch, and the same numbers as TensorBoard scalars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .._extras import require
from .._files import write_atomically

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Rows of a metrics file, oldest first. A last line cut short by a crash is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


class MetricsLog:
    """Appends rows to ``metrics.jsonl`` and, when asked, to TensorBoard.

    Args:
        path: the JSON-lines file.
        tensorboard: folder of the event files; None writes none.
        epochs_done: position of training; rows of later epochs, left by an interrupted run, are dropped.
        unit: the key that counts a row's epochs, or what takes their place.
    """

    def __init__(
        self, path: Path, *, tensorboard: Path | None = None, epochs_done: int = 0, unit: str = "epoch"
    ) -> None:
        self.path = path
        kept = [row for row in read_rows(path) if row[unit] <= epochs_done]
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in kept))
        self._writer: Any = None
        if tensorboard is not None:
            require("tensorboard", extra="train")
            writer = require("torch.utils.tensorboard", extra="train").SummaryWriter
            self._writer = writer(str(tensorboard), purge_step=kept[-1]["step"] + 1 if kept else None)

    def log(self, row: Row) -> None:
        """Append one row; its key ``step`` places the numbers on TensorBoard's axis."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if self._writer is not None:
            for name, value in row.items():
                if isinstance(value, float):
                    self._writer.add_scalar(name.replace("_", "/", 1), value, row["step"])

    def close(self) -> None:
        """Flush and close the event files."""
        if self._writer is not None:
            self._writer.close()
