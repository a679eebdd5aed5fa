"""Processes that this package starts, or that run nothing but it."""

import io
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


def usable_streams() -> None:
    """Replace standard streams that are closed by empty ones, and let them show an escape for what they cannot show."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the process ends)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def starting_workers() -> Iterator[None]:
    """Context in which workers start that hear no Ctrl-C until :func:`follow_parent`, which ignores it.

    A terminal tells all processes. Those that are still importing would print where they were, and be missed.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_parent() -> None:
    """Prepare a worker: no Ctrl-C of its own, and no life after the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def check_not_repeated() -> None:
    """``RuntimeError`` in a worker that runs the script of its parent again, which would wait for that parent."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # true until the script is imported
        raise RuntimeError(
            "a worker process ran this script again from its beginning; put what it does below "
            "if __name__ == '__main__':"
        )


def leave(main: Callable[[], int]) -> NoReturn:
    """Run a program, and end this process with its status without taking the interpreter down.

    Threads of PyTorch's process groups outlive these groups. One that wants the interpreter while it is taken down is
    ended by it, and aborts the process ("terminate called without an active exception"), although all is done.
    """
    try:
        status = main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _end_with_parent() -> None:
    """End this process as soon as its parent has ended, however that did."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
