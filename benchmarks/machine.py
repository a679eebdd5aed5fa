"""The machine of a benchmark: hardware, versions, commit."""

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import torch

from benchmarks.work import Settings

ROOT = Path(__file__).resolve().parent.parent


def cpu_model() -> str:
    """Name of the processor, as far as the system knows it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def hardware(settings: Settings) -> dict[str, Any]:
    """The processor with the cores this process may use and its threads, memory, and the GPU if one is used."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found: dict[str, Any] = {
        "cpu": cpu_model(),
        "cores": cores,
        "threads": settings.threads,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "memory_bytes": memory_bytes("MemTotal"),
        "system": platform.platform(),
    }
    if settings.device == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        found["gpu"] = {"name": gpu.name, "memory_bytes": gpu.total_memory, "cuda": torch.version.cuda}
    return found


def versions() -> dict[str, str | None]:
    """Versions of the packages involved; None for those not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("triton", "transformers"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def git_state() -> dict[str, Any]:
    """The commit, and whether the checkout differs from it; None where git or its folder is missing."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    status = git("status", "--porcelain")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def memory_bytes(field: str) -> int | None:
    """A size from Linux's table of memory; None elsewhere."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def available_bytes(device: str) -> int | None:
    """Free memory of the device; None if unknown."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    return memory_bytes("MemAvailable")


def device_name(settings: Settings) -> str:
    """Short name of the device for files: ``cpu``, or that of the GPU."""
    if settings.device == "cpu":
        return "cpu"
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name(0).lower()).strip("-")
