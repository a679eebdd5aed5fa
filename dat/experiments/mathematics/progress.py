"""Progress of the generation of questions on the screen: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dual_attention._extras import require

from ...data.mathematics import Report

SECONDS = 5.0
"""Between two lines."""


@contextmanager
def generation_progress(title: str, show: bool) -> Iterator[Report | None]:
    """Context with the function that a generation tells its progress; None where nothing is shown."""
    if not show:
        yield None
    elif sys.stdout.isatty():
        rich = require("rich.progress", extra="train")
        columns: tuple[Any, ...] = rich.TextColumn(f"[bold]{title}[/]"), rich.BarColumn(), rich.MofNCompleteColumn()
        with rich.Progress(*columns, rich.TimeRemainingColumn(compact=True), transient=True) as bar:
            task: Any = None

            def draw(done: int, total: int) -> None:
                nonlocal task
                task = bar.add_task("", total=total) if task is None else task
                bar.update(task, completed=done)

            yield draw
    else:
        yield _lines(title)


def _lines(title: str) -> Report:
    """A line now and then."""
    started = shown = time.monotonic()

    def write(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= SECONDS or done == total:
            shown, left = now, (now - started) / done * (total - done)
            print(f"{title}: {done:,} of {total:,} questions  {left:.0f} s left", flush=True)

    return write
