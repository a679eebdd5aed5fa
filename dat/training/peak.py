"""Operations a second that a device can do at most, of which MFU is a share."""

import time
from typing import NamedTuple

import torch


class Peaks(NamedTuple):
    """Operations a second of products of dense matrices, by precision."""

    bfloat16: float
    tf32: float
    float32: float


KNOWN = {
    "NVIDIA H200": Peaks(989.4e12, 494.7e12, 66.9e12),
    "NVIDIA H100 PCIe": Peaks(756e12, 378e12, 51.2e12),
    "NVIDIA H100 NVL": Peaks(835e12, 417.5e12, 60e12),
    "NVIDIA H100": Peaks(989.4e12, 494.7e12, 66.9e12),
    "NVIDIA A100": Peaks(312e12, 156e12, 19.5e12),
    "NVIDIA L40S": Peaks(362e12, 183e12, 91.6e12),
}
"""Peak rates by the beginning of the name that PyTorch gives to a GPU, longer names first; from NVIDIA's data sheets,
without sparsity."""
SIZE, TIMES = 1024, 10
"""Width of the matrices that a measurement multiplies, and how many times."""


def known_peak(name: str, precision: str) -> float | None:
    """The rate of a GPU by its name; None if it is not known.

    Args:
        precision: ``"bfloat16"``, ``"tf32"`` or ``"float32"``.
    """
    return next((getattr(peaks, precision) for start, peaks in KNOWN.items() if name.startswith(start)), None)


def measured_peak(device: torch.device, dtype: torch.dtype) -> float:
    """The rate of the fastest of several products of square matrices, with the threads that are set."""
    factors = torch.randn(2, SIZE, SIZE, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    best = float("inf")
    for _ in range(TIMES):
        _finished(device)
        start = time.perf_counter()
        torch.mm(factors[0], factors[1])
        _finished(device)
        best = min(best, time.perf_counter() - start)
    return 2 * SIZE**3 / best


def _finished(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
