"""Files that are replaced whole or not at all, and are on the disk when what wrote them returns."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

CACHE = "DUAL_ATTENTION_CACHE"
"""Environment variable that names the folder for what can be made again."""


def cache_folder() -> Path:
    """Folder of this user for what can be made again: ``$DUAL_ATTENTION_CACHE``, or the one of the system.

    That is ``relational-attention`` in ``$XDG_CACHE_HOME`` or ``~/.cache``, on macOS in ``~/Library/Caches``, on
    Windows in ``%LOCALAPPDATA%``.

    Raises:
        FileNotFoundError: if the user has no home folder, as in some containers, and no variable names another.
    """
    if sys.platform == "darwin":
        base = "~/Library/Caches"
    elif sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = os.path.expanduser(os.environ.get(CACHE) or f"{base}/relational-attention")
    if folder.startswith("~"):
        raise FileNotFoundError(f"{folder}: there is no such home folder; name a folder with {CACHE}")
    return Path(folder)


def make_private(folder: Path) -> None:
    """Make a folder, and those missing above it, which only this user can open, unless it is there."""
    for part in reversed((folder, *folder.parents)):
        if not part.is_dir():
            part.mkdir(mode=0o700, exist_ok=True)


class DigestWriter:
    """A file being written, and the SHA-256 of what was written.

    The first failure is kept in :attr:`error` and nothing is written after it: libraries that are handed a file hide
    why they could not write to it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sha256 = file, hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write bytes, or an object with a buffer of them."""
        if self.error is None:
            try:
                self._file.write(data)
                self._sha256.update(data)
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is complete."""

    def digest(self) -> str:
        """SHA-256 of what was written so far, in hexadecimal digits."""
        return self._sha256.hexdigest()


@contextmanager
def named_in_errors(path: Path, *, written_as: Path | None = None) -> Iterator[None]:
    """Context that adds ``path`` to system errors that name no file, such as that of a full disk, or ``written_as``."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(written_as)):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


@contextmanager
def replaced_atomically(path: Path) -> Iterator[DigestWriter]:
    """A file to write, which takes the place of ``path`` at the end of the block, once it is on the disk.

    It has the permissions of any new file. If the block fails, ``path`` is left as it was, and so is what it links to.
    """
    temporary = temporary_path(path)
    with named_in_errors(path, written_as=temporary):
        try:
            with open(temporary, "wb", opener=opened_without_links) as file:
                writer = DigestWriter(file)
                try:
                    yield writer
                finally:
                    if writer.error is not None:
                        raise writer.error
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)


def opened_without_links(path: str, flags: int) -> int:
    """Open a file for :func:`open`, unless it is a link, to what somebody else may have chosen."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


@contextmanager
def folder_made_atomically(folder: Path) -> Iterator[Path]:
    """A folder to fill, which becomes ``folder`` at the end of the block, and its files readable as any new ones.

    What a process left that was killed in such a block is removed.

    Raises:
        FileExistsError: if there is anything at ``folder``; it is left untouched.
        OSError: naming ``folder`` or its file, for instance if the disk is full, also where safetensors found that.
    """
    if os.path.lexists(folder):
        raise FileExistsError(f"{folder} exists already and is not overwritten")
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder.parent, folder.name)
    temporary = temporary_path(folder)
    try:
        temporary.mkdir()
        yield temporary
        mode = temporary.stat().st_mode & 0o666
        for file in (path for path in temporary.rglob("*") if path.is_file()):
            file.chmod(mode)
            sync_file(file)
        os.rename(temporary, folder)
    except Exception as error:
        found = re.search(r"\(os error (\d+)\)", str(error))  # as Rust has it
        number = getattr(error, "errno", None) or (int(found[1]) if found else None)
        if number is None:
            raise
        place = str(getattr(error, "filename", None) or folder).replace(str(temporary), str(folder))
        raise OSError(number, os.strerror(number), place) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_folder(folder.parent)


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write ``data`` to a temporary file beside ``path``, flush it to disk and rename it into place."""
    with replaced_atomically(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def sync_file(path: Path) -> None:
    """Wait until what was written to a file is on the disk."""
    with named_in_errors(path), open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can say so."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of file systems that sync no folders
            raise
    finally:
        os.close(folder)


def temporary_path(path: Path) -> Path:
    """Name beside ``path``, of this process, for what is to take its place; see :func:`remove_leftovers`."""
    return path.with_name(f".{path.name}.{os.getpid()}.dat.tmp")


_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.dat\.tmp")  # no name that other programs give


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove from ``folder`` what dead processes left half-written, or only what was to become ``name``.

    A leftover under the number of this process is of an earlier process with that number.
    """
    for path in folder.iterdir():
        found = _TEMPORARY.fullmatch(path.name)
        if found and name in (None, found["name"]) and not _is_another(int(found["process"])):
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, a folder with all that is in it, or a link, but not what that leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_another(process: int) -> bool:
    """Whether a process of this number, other than this one, is alive."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        pass
    return True


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically; numbers that are not finite, which JSON lacks, become null."""
    write_atomically(path, json_text(value, indent=2) + "\n")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """``value`` as JSON; numbers that are not finite, which JSON lacks, become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def refuse_pipes(path: Path) -> None:
    """Raise ``ValueError`` naming what is a pipe, say, whose reading may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path}: expected a file, got a pipe or a device")


def read_file(path: Path) -> bytes:
    """The contents of a file, as :func:`refuse_pipes` lets it be read."""
    refuse_pipes(path)
    return path.read_bytes()


def read_json(path: Path) -> Any:
    """Read a JSON file; ``ValueError`` names one that does not hold JSON."""
    data = read_file(path)
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested without end
        raise ValueError(f"{path}: is not JSON ({error})") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object; ``ValueError`` naming the file, if it holds something else."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def first_line(error: BaseException) -> str:
    """The beginning of a message that may be long, or the name of an error without one."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
