"""Progress of the tokenization of a text on the screen: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dual_attention._extras import require

from ...data.text.shards import Report

SECONDS = 5.0
"""Between two lines; what is done sooner is not shown."""


@contextmanager
def tokenization_progress(show: bool) -> Iterator[Report | None]:
    """Context with the function that a tokenization tells its progress; None where nothing is shown."""
    if not show:
        yield None
        return
    started = shown = time.monotonic()

    def words(characters: int, tokens: int) -> str:
        seconds = max(time.monotonic() - started, 1e-9)
        speed = f"{characters / seconds / 1e6:.1f}M characters a second"
        return f"tokenized {characters / 1e6:,.0f}M characters: {tokens / 1e6:,.0f}M tokens, {speed}"

    if sys.stdout.isatty():
        with require("rich.console", extra="train").Console().status("reading the text") as status:
            yield lambda characters, tokens: status.update(words(characters, tokens))
        return

    def write(characters: int, tokens: int) -> None:
        nonlocal shown
        if time.monotonic() - shown >= SECONDS:
            shown = time.monotonic()
            print(words(characters, tokens), flush=True)

    yield write
