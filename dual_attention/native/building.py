"""Libraries built from C by the compiler of the machine, when they are first needed, and kept for later processes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .._files import cache_folder, write_atomically

SWITCH = "DUAL_ATTENTION_NATIVE"
"""Environment variable; 0 means that nothing is built or loaded."""

COMPILERS = ("cc", "gcc", "clang")
"""Looked for in this order, after ``$CC``."""

FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-pthread")

PROCESSOR_FLAGS = ("-march=native", "-mcpu=native")
"""Ways to ask for all instructions of this processor; compilers know one or the other."""

SECONDS = 120
"""Until a compiler is given up."""


class UnavailableError(Exception):
    """Why a library cannot be had here, as a clause."""


def built(source: Path) -> ctypes.CDLL:
    """The library of a C file, which may include headers beside it; built now unless it is kept.

    It is kept in the cache folder of the user under a name that tells its sources, the compiler and the processor, so
    that machines which share the folder do not take each other's.

    Raises:
        UnavailableError: if it is switched off, or there is no compiler, or it fails, or there is nowhere to keep it.
    """
    if os.environ.get(SWITCH) == "0":
        raise UnavailableError(f"{SWITCH}=0")
    if sys.platform == "win32":
        raise UnavailableError("nothing is compiled on Windows")
    try:
        compiler = _compiler()
        kept = cache_folder() / "native" / f"{source.stem}-{_fingerprint(source, compiler)}.so"
        if not _is_whole(kept):
            for folder in (kept.parent, _checksum_of(kept).parent):
                folder.mkdir(parents=True, exist_ok=True)
            _build(source, compiler, kept)
            write_atomically(_checksum_of(kept), _digest(kept))
        return ctypes.CDLL(str(kept))
    except OSError as error:
        raise UnavailableError(str(error)) from error


def _is_whole(kept: Path) -> bool:
    """Whether a library is as it was built; to load one that was cut off would end the process."""
    checksum = _checksum_of(kept)
    return kept.exists() and checksum.exists() and checksum.read_text() == _digest(kept)


def _checksum_of(kept: Path) -> Path:
    return kept.parent.with_name("native-checksums") / f"{kept.stem}.sha256"


def _digest(kept: Path) -> str:
    return hashlib.sha256(kept.read_bytes()).hexdigest()


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
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(named)}))


def _build(source: Path, compiler: str, kept: Path) -> None:
    """Build the library; it appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        library = Path(folder) / kept.name
        commands = ((compiler, *FLAGS, flag, str(source), "-o", str(library), "-lm") for flag in PROCESSOR_FLAGS)
        failures: list[str] = []
        for command in commands:
            failure = _compile(command)
            if failure is None:
                os.replace(library, kept)
                return
            failures.append(failure)
        raise UnavailableError(f"{compiler} failed: {failures[0]}")


def _compile(command: tuple[str, ...]) -> str | None:
    """None if it works, otherwise what the compiler says, in a line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"it took longer than {SECONDS} seconds"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    told = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
    return f"exit status {done.returncode}, {told}"
