"""Ctrl-C, and the notice of a scheduler: the first one is obeyed between two steps; a second Ctrl-C stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType

EXIT_STATUS = 130
"""Exit status of a process after Ctrl-C, as shells expect it."""


class Interrupted(Exception):
    """Training was asked to stop and did, after saving its position; the message may say how to continue.

    Attributes:
        status: exit status of the process.
    """

    status = EXIT_STATUS


class Terminated(Interrupted):
    """It was asked by SIGTERM."""

    status = 75  # EX_TEMPFAIL: a scheduler that takes a machine back is to start the same again


class StopOnSignal:
    """Context in which the first SIGINT, and every SIGTERM, sets :attr:`stopped` instead of raising.

    A scheduler may give notice to a process that torchrun tells, too, so a second SIGTERM is no sign of impatience.

    :attr:`terminated` tells whether it was SIGTERM.

    Outside the main thread, where Python delivers no signals, it changes nothing.
    """

    def __init__(self) -> None:
        self.stopped = self.terminated = False
        self._previous: dict[signal.Signals, object] = {}

    def __call__(self) -> bool:
        return self.stopped

    def __enter__(self) -> StopOnSignal:
        if threading.current_thread() is threading.main_thread():
            for kind in (signal.SIGINT, signal.SIGTERM):
                self._previous[kind] = signal.signal(kind, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.stopped and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.stopped = True
        self.terminated = self.terminated or number == signal.SIGTERM

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]
