"""Libraries built from C by the compiler of the machine, when they are first needed, and kept for later processes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .._base.files import cache_folder, make_private

SWITCH = "DUAL_ATTENTION_NATIVE"
"""Environment variable; 0 means that nothing is built or loaded."""

COMPILERS = ("cc", "gcc", "clang")
"""Looked for in this order, after ``$CC``."""

FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-pthread")

PROCESSOR_FLAGS = ("-march=native", "-mcpu=native")
"""Ways to ask for all instructions of this processor; compilers know one or the other."""

SECONDS = 120
"""Time after which a compiler is given up."""

OLD = 3600
"""Seconds after which a build is over, whatever has become of it."""

_GIVEN_UP: set[str] = set()
"""Compilers that took too long in this process."""


class UnavailableError(Exception):
    """Why a library cannot be had here, as a clause."""


def built(source: Path) -> ctypes.CDLL:
    """The library of a C file, which may include headers beside it; built now unless it is kept.

    It is kept in the cache folder of the user under a name that tells its sources, the compiler and the processor, so
    that machines which share the folder do not take each other's. Its code runs with all rights of whoever loads it:
    it is taken only from folders that nobody but this user and root can write.

    Raises:
        UnavailableError: if it is switched off, or there is no compiler, or it fails, or there is nowhere to keep it.
    """
    if os.environ.get(SWITCH) == "0":
        raise UnavailableError(f"{SWITCH}=0")
    if sys.platform == "win32":
        raise UnavailableError("nothing is compiled on Windows")
    try:
        compiler = _compiler()
        name, cache = f"{source.stem}-{_fingerprint(source, compiler)}", cache_folder()
        kept, checksum = cache / "native" / f"{name}.so", cache / "native-checksums" / f"{name}.sha256"
        for folder in (cache, kept.parent, checksum.parent):
            make_private(folder)
            if not _is_trusted(folder, stat.S_ISDIR):
                raise UnavailableError(f"{folder} is a link, or others than this user and root can write it")
        _remove_leftovers(kept.parent)
        if not _is_whole(kept, checksum):
            _build(source, (compiler, *FLAGS), kept, checksum)
        return ctypes.CDLL(str(kept))
    except OSError as error:
        raise UnavailableError(str(error)) from error


def _is_trusted(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """Whether there is a file or a folder, as ``is_kind`` of its mode says, to which only this user or root wrote."""
    if not os.path.lexists(path):
        return False
    status = path.lstat()
    return is_kind(status.st_mode) and status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022


def _is_whole(kept: Path, checksum: Path) -> bool:
    """Whether a library is as it was built; to load one that was cut off would end the process."""
    trusted = all(_is_trusted(path, stat.S_ISREG) for path in (kept, checksum))
    return trusted and checksum.read_bytes() == _digest(kept)


def _digest(library: Path) -> bytes:
    return hashlib.sha256(library.read_bytes()).hexdigest().encode()


def _remove_leftovers(folder: Path) -> None:
    """Remove the folders of builds that were killed."""
    for path in folder.glob("tmp*"):
        with suppress(FileNotFoundError):  # of another process that removes it, too
            if time.time() - path.lstat().st_mtime > OLD:
                shutil.rmtree(path, ignore_errors=True)


def _compiler() -> str:
    for name in (os.environ.get("CC"), *COMPILERS):
        found = name and shutil.which(name)
        if found:
            return found
    raise UnavailableError(f"found no compiler: neither $CC nor {', '.join(COMPILERS)}")


def _fingerprint(source: Path, compiler: str) -> str:
    """A name for what is built of these sources, by that compiler, for this processor."""
    digest = hashlib.sha256()
    for part in (source, *sorted(source.parent.glob("*.h"))):
        digest.update(part.read_bytes())
    file = Path(compiler).resolve()
    status = file.stat()
    about = (file, status.st_size, status.st_mtime_ns, *FLAGS, sys.platform, platform.machine(), _processor())
    digest.update("\n".join(map(str, about)).encode())
    return digest.hexdigest()[:16]


def _processor() -> str:
    """Text that tells processors with other instructions apart, as far as the system says."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    named = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(named)}))


def _build(source: Path, compiler: tuple[str, ...], kept: Path, checksum: Path) -> None:
    """Build the library; it appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        library, digest = Path(folder) / kept.name, Path(folder) / checksum.name
        failures: list[str] = []
        for flag in PROCESSOR_FLAGS:
            failure = _compile((*compiler, flag, str(source), "-o", str(library), "-lm"))
            if failure is None:
                digest.write_bytes(_digest(library))
                for made, place in ((library, kept), (digest, checksum)):
                    made.chmod(0o600)  # whatever the umask
                    os.replace(made, place)
                return
            failures.append(failure)
        raise UnavailableError(f"{compiler[0]} failed: {failures[0]}")


def _compile(command: tuple[str, ...]) -> str | None:
    """None if it works, otherwise what the compiler says, in a line."""
    too_slow = f"it took longer than {SECONDS} seconds"
    if command[0] in _GIVEN_UP:
        return too_slow
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=pipe, start_new_session=True) as process:
        try:
            _, errors = process.communicate(timeout=SECONDS)
        except BaseException as error:  # of an interrupt, too: processes of another session do not get it
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            _GIVEN_UP.add(command[0])
            return too_slow
    if process.returncode == 0:
        return None
    lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
    shown = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
    return f"exit status {process.returncode}, {shown}"
