"""Time of repeated calls, on the CPU and on a GPU."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import torch


def synchronise(device: str) -> None:
    """Wait for what is queued on a GPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_per_call(call: Callable[[], object], number: int, device: str) -> float:
    """Mean time of ``number`` calls in a row, in seconds; of the device between two events on a GPU.

    Collection of cyclic garbage waits until afterwards, as in :mod:`timeit`.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        synchronise(device)
        if device == "cuda":
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(number):
                call()
            last.record()
            torch.cuda.synchronize()
            return first.elapsed_time(last) / 1000 / number
        start = time.perf_counter()
        for _ in range(number):
            call()
        return (time.perf_counter() - start) / number
    finally:
        if collecting:
            gc.enable()
