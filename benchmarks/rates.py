"""What the machine can do at best, measured in the same run: products of matrices and copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks.clock import seconds_per_call
from benchmarks.work import Settings


@dataclass(frozen=True)
class Rates:
    """Multiply-adds a second of a large product in the run's dtype, and bytes a second read and written by a copy."""

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
        left, right, product = (torch.ones(n, n, device=device, dtype=dtype) for _ in range(3))
        seconds = self._fastest(lambda: torch.mm(left, right, out=product))
        source, copy = (torch.ones(n_bytes, dtype=torch.uint8, device=device) for _ in range(2))
        self.best = Rates(
            max(self.best.multiply_adds, n**3 / seconds),
            max(self.best.bytes, 2 * n_bytes / self._fastest(lambda: copy.copy_(source))),
        )
        return self.best

    def _fastest(self, call: Callable[[], object]) -> float:
        call()
        number = 10 if self._settings.device == "cuda" else 1
        return min(seconds_per_call(call, number, self._settings.device) for _ in range(self.TRIES))
