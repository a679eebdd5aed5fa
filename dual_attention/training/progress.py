"""Progress of training on the screen: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from .._extras import require
from .metrics import Row

SHOWN = ("loss", "accuracy", "perplexity", "bits_per_byte")
"""Ends of the names of the numbers that are shown."""


class Progress(Protocol):
    """Display of a training's progress, told by the loop."""

    def start(self, *, total_steps: int, step: int, epochs: int, unit: str = "epoch") -> None:
        """Begin, or continue, at ``step``; training goes by epochs, or by steps if ``unit`` is another."""
        ...

    def step(self, *, epoch: int, numbers: Callable[[], dict[str, float]]) -> None:
        """Note one more optimiser step; ``numbers()`` gives this epoch's means so far and is called only when shown."""
        ...

    def row(self, row: Row) -> None:
        """Note the row of an epoch."""
        ...

    def close(self) -> None:
        """End the display, for whatever reason training ended."""
        ...


class NoProgress:
    """Shows nothing."""

    def start(self, *, total_steps: int, step: int, epochs: int, unit: str = "epoch") -> None: ...

    def step(self, *, epoch: int, numbers: Callable[[], dict[str, float]]) -> None: ...

    def row(self, row: Row) -> None: ...

    def close(self) -> None: ...


class LineProgress:
    """One line for each evaluated epoch, at most one in ``seconds``: for log files and pipes."""

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds = seconds
        self._started = self._shown = time.monotonic()
        self._first = self._total = self._epochs = 0
        self._unit = "epoch"

    def start(self, *, total_steps: int, step: int, epochs: int, unit: str = "epoch") -> None:
        self._first, self._total, self._epochs, self._unit = step, total_steps, epochs, unit
        self._started = self._shown = time.monotonic()

    def step(self, *, epoch: int, numbers: Callable[[], dict[str, float]]) -> None: ...

    def row(self, row: Row) -> None:
        now = time.monotonic()
        if row["step"] < self._total and now - self._shown < self._seconds:
            return
        self._shown = now
        rate = (now - self._started) / max(1, row["step"] - self._first)
        left = rate * (self._total - row["step"])
        by_epochs = self._unit == "epoch"
        place = f"epoch {row['epoch']}/{self._epochs}" if by_epochs else f"step {row['step']}/{self._total}"
        print(f"{place}  {row_text(row)}  {left:.0f} s left", flush=True)

    def close(self) -> None: ...


class BarProgress:
    """A live bar with the epoch, this epoch's means, the last validation and the time left."""

    def __init__(self) -> None:
        rich = require("rich.progress", extra="train")
        self._bar: Any = rich.Progress(
            rich.TextColumn("[bold]training[/]"),
            rich.BarColumn(),
            rich.TextColumn("{task.fields[place]}  {task.fields[text]}"),
            rich.TimeRemainingColumn(compact=True),
        )
        self._task: Any = None
        self._epochs = self._total = self._done = 0
        self._by_epochs = True
        self._validation = ""
        self._shown = 0.0

    def start(self, *, total_steps: int, step: int, epochs: int, unit: str = "epoch") -> None:
        self._epochs, self._total, self._done, self._by_epochs = epochs, total_steps, step, unit == "epoch"
        self._task = self._bar.add_task("", total=total_steps, completed=step, place=self._place(0), text="")
        self._bar.start()

    def _place(self, epoch: int) -> str:
        return f"epoch {epoch}/{self._epochs}" if self._by_epochs else f"step {self._done}/{self._total}"

    def step(self, *, epoch: int, numbers: Callable[[], dict[str, float]]) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._shown < 0.2:
            self._bar.advance(self._task)
            return
        self._shown = now
        text = " ".join(f"{name} {value:.3f}" for name, value in numbers().items())
        self._bar.update(self._task, advance=1, place=self._place(epoch + 1), text=f"{text}{self._validation}")

    def row(self, row: Row) -> None:
        shown = next((name for name in ("val_accuracy", "val_loss") if name in row), None)
        if shown is not None:
            self._validation = f"  [green]{shown.replace('_', ' ')} {row[shown]:.3f}[/]"

    def close(self) -> None:
        self._bar.stop()


def row_text(row: Row) -> str:
    """Losses, accuracies and other measures of a row, in words."""
    shown = [(name, value) for name, value in row.items() if name.endswith(SHOWN)]
    return "  ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in shown)


def choose_progress(show: bool) -> Progress:
    """The bar on a terminal, lines elsewhere; nothing when ``show`` is False."""
    if not show:
        return NoProgress()
    return BarProgress() if sys.stdout.isatty() else LineProgress()
