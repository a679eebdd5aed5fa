"""Measurements of this machine: time and peak memory of a call, and the best rates of products and copies.

Peak memory on the CPU is the highest sum of bytes that torch's allocator held during the call, beyond what it held
before: the profiler records every allocation and release, also those inside operators and backward passes, so the
figure is exact and does not depend on the state of the process. It leaves out scratch memory that matrix libraries take
from the system for themselves. The rise of the process's resident memory is measured beside it, in a separate call
before the profiler is used: it includes everything, and the noise of the system's allocator. On a GPU the figure is the
peak of torch's caching allocator.
"""

import gc
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.work import Settings


def synchronise(device: str) -> None:
    """Wait for the work queued on a GPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_per_call(call: Callable[[], object], number: int, device: str) -> float:
    """Mean seconds of ``number`` calls in a row; on a GPU, the device's time between two events.

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


def replay(call: Callable[[], object]) -> Callable[[], object] | None:
    """A call as a CUDA graph, whose replays take the device's time and none of Python's; None if it cannot be captured.

    What a call allocates stays with the graph, and results are those of the last replay.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is set up once, is set up before
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph.replay


def peak_memory(call: Callable[[], object], device: str) -> dict[str, int | None]:
    """Bytes beyond those before the call: ``allocated``, and on Linux CPUs ``resident``."""
    gc.collect()
    if device == "cuda":
        synchronise(device)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        synchronise(device)
        return {"allocated": torch.cuda.max_memory_allocated() - before, "resident": None}
    resident = peak_resident(call)
    return {"allocated": peak_allocated(call), "resident": resident}


def peak_allocated(call: Callable[[], object]) -> int:
    """Highest number of bytes that torch held on the CPU during the call beyond those before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    events = [event for event in events if event.get("name") == "[memory]" and event["args"]["Device Type"] == 0]
    return highest_sum([(event["ts"], event["args"]["Bytes"]) for event in events])


def highest_sum(changes: list[tuple[float, int]]) -> int:
    """Highest sum of (time, bytes) in order of time, where releases are negative; at least zero.

    What was allocated before is not recorded when it is released, so the sum starts at zero.
    """
    held, highest = 0, 0
    for _, change in sorted(changes, key=lambda timed: timed[0]):
        held += change
        highest = max(highest, held)
    return highest


STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def peak_resident(call: Callable[[], object]) -> int | None:
    """Rise of resident memory during the call, as Linux counts it in pages; None elsewhere."""
    try:
        CLEAR.write_text("5", encoding="ascii")  # 5: forget the highest so far
        before = resident("VmRSS")
    except OSError:
        call()
        return None
    call()
    return max(0, resident("VmHWM") - before)


def resident(field: str) -> int:
    """A size in bytes from the status of this process."""
    for line in STATUS.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise OSError(f"{STATUS} has no {field}")


@dataclass(frozen=True)
class Rates:
    """The best of a second: multiply-adds of a large matmul in the run's dtype; and bytes of a large copy, read and
    written, or of a large sum, which only reads."""

    multiply_adds: float
    bytes: float


class RateMeter:
    """Measures rates again and again during a run; the best of all tries counts.

    A machine that is busy for a while, or one whose clock falls, would otherwise give floors that are too high.
    """

    TRIES = 3

    def __init__(self, settings: Settings, *, quick: bool) -> None:
        torch.set_num_threads(settings.threads)
        self._settings, self._quick = settings, quick
        self.best = Rates(0.0, 0.0)
        self.measure()

    def measure(self) -> Rates:
        """Try once more; returns the best so far."""
        device, dtype = self._settings.device, getattr(torch, self._settings.dtype)
        cuda = device == "cuda"
        n = 256 if self._quick else 8192 if cuda else 2048
        n_bytes = 2**22 if self._quick else 2**30 if cuda else 2**28
        left, right, product = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(3))
        source, copy = (torch.ones(n_bytes // 4, device=device) for _ in range(2))
        moved = 2 * n_bytes / self._fastest(lambda: copy.copy_(source)), n_bytes / self._fastest(source.sum)
        self.best = Rates(
            max(self.best.multiply_adds, n**3 / self._fastest(lambda: torch.mm(left, right, out=product))),
            max(self.best.bytes, *moved),
        )
        return self.best

    def _fastest(self, call: Callable[[], object]) -> float:
        call()
        number = 10 if self._settings.device == "cuda" else 1
        return min(seconds_per_call(call, number, self._settings.device) for _ in range(self.TRIES))
