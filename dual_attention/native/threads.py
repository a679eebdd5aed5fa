"""The threads that PyTorch computes with, for libraries in C."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

import torch

NAMES = {"linux": "libtorch_cpu.so", "darwin": "libtorch_cpu.dylib"}
"""File name of PyTorch's CPU library, by platform."""

ENTRY = "GOMP_parallel"
"""OpenMP's function that runs another one on a team of threads; that of LLVM and Intel has the name, too."""


@cache
def team() -> int | None:
    """Address of :data:`ENTRY` in the OpenMP that PyTorch uses; None if it uses none, or none with that function.

    Threads of our own would wait for cores on which those of PyTorch spin, as they do for a while after each operation.
    """
    library = Path(torch.__file__).parent / "lib" / NAMES.get(sys.platform, "")
    if not library.is_file():
        return None
    try:
        entry = getattr(ctypes.CDLL(str(library)), ENTRY)
    except (OSError, AttributeError):
        return None
    return ctypes.cast(entry, ctypes.c_void_p).value
