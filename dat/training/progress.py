"""Progress of training on the screen: a live bar on a terminal, plain lines elsewhere, or nothing."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from dual_attention._base.extras import require

from .metrics import Row
from .plan import Plan

WIDE = 120
"""Columns of a terminal with room for a long bar."""
LEFT = 8
"""Columns of the time left, after a blank."""
SHOWN = ("loss", "accuracy", "perplexity", "bits_per_byte")
"""Ends of the names of the numbers that are shown."""


class Progress:
    """Display of a training's progress, told by the loop; this one shows nothing."""

    def start(self, plan: Plan, step: int) -> None:
        """Begin, or continue, at ``step`` of the plan."""
        self.plan, self.done = plan, step

    def place(self, epoch: int) -> str:
        """The position of training in words."""
        by_epochs = self.plan.unit == "epoch"
        return f"epoch {epoch}/{self.plan.spans}" if by_epochs else f"step {self.done}/{self.plan.total_steps}"

    def step(self, *, epoch: int, numbers: Callable[[], dict[str, float]]) -> None:
        """Note one more optimiser step; ``numbers()`` gives this epoch's means so far and is called only when shown."""

    def row(self, row: Row) -> None:
        """Note the row of an epoch."""

    def close(self) -> None:
        """End the display, for whatever reason training ended."""


class LineProgress(Progress):
    """One line for each evaluated epoch, at most one of each kind in ``seconds``: for log files and pipes.

    A row with a validation is of another kind than one without.
    """

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds = seconds

    def start(self, plan: Plan, step: int) -> None:
        super().start(plan, step)
        self._first = step
        self._started = time.monotonic()
        self._shown = {True: self._started - self._seconds, False: self._started}

    def row(self, row: Row) -> None:
        now = time.monotonic()
        self.done = row["step"]
        left, validated = self.plan.total_steps - self.done, any(name.startswith("val_") for name in row)
        if left and now - self._shown[validated] < self._seconds:
            return
        self._shown[validated] = now
        rate = (now - self._started) / max(1, self.done - self._first)
        shown = [f"{name.replace('_', ' ')} {value:.3f}" for name, value in row.items() if name.endswith(SHOWN)]
        print(f"{self.place(row.get('epoch', 0))}  {'  '.join(shown)}  {rate * left:.0f} s left", flush=True)


class BarProgress(Progress):
    """A live bar with the epoch, this epoch's means, the last validation and the time left."""

    def __init__(self) -> None:
        rich = require("rich.progress", extra="train")
        console = require("rich.console", extra="train").Console()
        wide = console.width >= WIDE
        self._bar: Any = rich.Progress(
            *([rich.TextColumn("[bold]training[/]")] if wide else []),
            rich.BarColumn(bar_width=40 if wide else 10),
            rich.TextColumn("{task.fields[text]}"),
            rich.TimeRemainingColumn(compact=True),
            console=console,
        )
        self._room = console.width - (50 if wide else 11) - LEFT
        self._validation = ""
        self._shown = 0.0

    def start(self, plan: Plan, step: int) -> None:
        super().start(plan, step)
        self._task: Any = self._bar.add_task("", total=plan.total_steps, completed=step, text=self.place(0))
        self._bar.start()

    def step(self, *, epoch: int, numbers: Callable[[], dict[str, float]]) -> None:
        self.done += 1
        now = time.monotonic()
        if now - self._shown < 0.2:
            self._bar.advance(self._task)
            return
        self._shown = now
        self._bar.update(self._task, advance=1, text=self.text(epoch + 1, numbers()))

    def text(self, epoch: int, numbers: Mapping[str, float]) -> str:
        """The words that have room beside the bar and the time left; the last numbers are left out first."""
        begin, end = self.place(epoch), self._validation and f"  {self._validation}"
        shown = [f"{name} {value:.3f}" for name, value in numbers.items()]
        while shown and len(f"{begin}  {' '.join(shown)}{end}") > self._room:
            shown.pop()
        return "  ".join(filter(None, (begin, " ".join(shown)))) + f"[green]{end}[/]" * bool(end)

    def row(self, row: Row) -> None:
        shown = next((name for name in ("val_accuracy", "val_loss") if name in row), None)
        if shown is not None:
            self._validation = f"{shown.replace('_', ' ')} {row[shown]:.3f}"

    def close(self) -> None:
        self._bar.stop()


def choose_progress(show: bool) -> Progress:
    """The bar on a terminal, lines elsewhere; nothing when ``show`` is False."""
    if not show:
        return Progress()
    return BarProgress() if sys.stdout.isatty() else LineProgress()
