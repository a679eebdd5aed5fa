"""Peak memory of a call.

On the CPU the figure is the highest sum of bytes that torch's allocator held during the call, beyond what it held
before: the profiler records every allocation and release, also those inside of operators and backward passes, so this
is exact and does not depend on the state of the process. Scratch memory that matrix libraries take from the system for
themselves is not in it. The rise of the process's resident memory is measured beside it, in a call of its own before
the profiler is used: it has everything, and the noise of what the system's allocator keeps or had kept before.

On a GPU the figure is the peak of torch's caching allocator.
"""

from __future__ import annotations

import gc
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.clock import synchronise


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
        CLEAR.write_text("5", encoding="ascii")  # 5: the highest so far is forgotten
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
