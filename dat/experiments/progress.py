"""Progress of making data on the screen: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dual_attention._base.extras import require

SECONDS = 5.0
"""Least time between two plain lines; what is done sooner is not shown."""


@contextmanager
def data_progress(show: bool, words: Callable[[float, int, int], str]) -> Iterator[Callable[[int, int], None] | None]:
    """Context with the function that is told two numbers of how far it is; None where nothing is shown.

    Args:
        words: the line, from the seconds since the beginning and these numbers.
    """
    if not show:
        yield None
        return
    started = shown = time.monotonic()
    if sys.stdout.isatty():
        with require("rich.console", extra="train").Console().status("making data") as status:
            yield lambda *numbers: status.update(words(time.monotonic() - started, *numbers))
        return

    def write(*numbers: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= SECONDS:
            shown = now
            print(words(now - started, *numbers), flush=True)

    yield write
