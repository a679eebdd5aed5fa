"""One writer at a time: the lock of a folder, which ends with the process that holds it, however that ends."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dual_attention._base.extras import require
from dual_attention._base.files import opened_without_links, remove_leftovers

LOCK = ".lock"
"""File of a folder that is locked by its writer, and says who that is. It stays there, unlocked and empty."""


class InUse(RuntimeError):
    """Another process writes to the folder."""


@contextmanager
def locked(folder: Path, *cleaned: str) -> Iterator[None]:
    """Context in which no other process writes to ``folder``; what dead ones left half-written there is removed.

    The system keeps the lock and gives it up when the process ends, by ``kill -9`` as well.

    Args:
        cleaned: folders within ``folder`` from which leftovers are removed, too.

    Raises:
        InUse: if another process holds the lock; it is named.
    """
    filelock = require("filelock", extra="train")
    path = folder / LOCK
    lock = filelock.FileLock(str(path))
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        holder = path.read_text(encoding="utf-8", errors="replace").strip() or "another process"
        raise InUse(f"{folder}: in use by {holder}; wait until it ends, or stop it") from None
    try:
        _write(path, f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        for part in (folder, *(folder / name for name in cleaned)):
            if part.is_dir():
                remove_leftovers(part)
        yield
    finally:
        with suppress(OSError):
            _write(path, "")
        lock.release()


def _write(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=opened_without_links) as file:
        file.write(text)
