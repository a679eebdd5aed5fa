"""Progress of training on the screen: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from .._extras import require
from .metrics import Row


class Progress(Protocol):
    """What the loop tells about its progress."""

    def start(self, *, total_steps: int, step: int, epochs: int) -> None:
        """Training begins, or continues, at ``step``."""
        ...

    def step(self, *, epoch: int, numbers: Callable[[], dict[str, float]]) -> None:
        """One optimiser step is done; ``numbers()`` gives this epoch's means so far and is called only when shown."""
        ...

    def row(self, row: Row) -> None:
        """An epoch is done."""
        ...

    def close(self) -> None:
        """Training has ended, for whatever reason."""
        ...


class NoProgress:
    """Shows nothing."""

    def start(self, *, total_steps: int, step: int, epochs: int) -> None: ...

    def step(self, *, epoch: int, numbers: Callable[[], dict[str, float]]) -> None: ...

    def row(self, row: Row) -> None: ...

    def close(self) -> None: ...


class LineProgress:
    """One line for each evaluated epoch, at most one in ``seconds``: for log files and pipes."""

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds = seconds
        self._started = self._shown = time.monotonic()
        self._first = self._total = self._epochs = 0

    def start(self, *, total_steps: int, step: int, epochs: int) -> None:
        self._first, self._total, self._epochs = step, total_steps, epochs
        self._started = self._shown = time.monotonic()

    def step(self, *, epoch: int, numbers: Callable[[], dict[str, float]]) -> None: ...

    def row(self, row: Row) -> None:
        now = time.monotonic()
        if row["step"] < self._total and now - self._shown < self._seconds:
            return
        self._shown = now
        rate = (now - self._started) / max(1, row["step"] - self._first)
        left = rate * (self._total - row["step"])
        print(f"epoch {row['epoch']}/{self._epochs}  {describe(row)}  {left:.0f} s left", flush=True)

    def close(self) -> None: ...


class BarProgress:
    """A live bar with the epoch, this epoch's means, the last validation and the time left."""

    def __init__(self) -> None:
        rich = require("rich.progress", extra="train")
        self._bar: Any = rich.Progress(
            rich.TextColumn("[bold]training[/]"),
            rich.BarColumn(),
            rich.TextColumn("epoch {task.fields[epoch]}  {task.fields[text]}"),
            rich.TimeRemainingColumn(compact=True),
        )
        self._task: Any = None
        self._epochs = 0
        self._validation = ""
        self._shown = 0.0

    def start(self, *, total_steps: int, step: int, epochs: int) -> None:
        self._epochs = epochs
        self._task = self._bar.add_task("", total=total_steps, completed=step, epoch=f"0/{epochs}", text="")
        self._bar.start()

    def step(self, *, epoch: int, numbers: Callable[[], dict[str, float]]) -> None:
        now = time.monotonic()
        if now - self._shown < 0.2:
            self._bar.advance(self._task)
            return
        self._shown = now
        text = " ".join(f"{name} {value:.3f}" for name, value in numbers().items())
        self._bar.update(self._task, advance=1, epoch=f"{epoch + 1}/{self._epochs}", text=f"{text}{self._validation}")

    def row(self, row: Row) -> None:
        if "val_accuracy" in row:
            self._validation = f"  [green]val accuracy {row['val_accuracy']:.3f}[/]"

    def close(self) -> None:
        self._bar.stop()


def describe(row: Row) -> str:
    """The losses and accuracies of a row in words."""
    shown = [(name, value) for name, value in row.items() if name.endswith(("loss", "accuracy"))]
    return "  ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in shown)


def choose_progress(show: bool) -> Progress:
    """The bar on a terminal, lines elsewhere; nothing when ``show`` is False."""
    if not show:
        return NoProgress()
    return BarProgress() if sys.stdout.isatty() else LineProgress()
