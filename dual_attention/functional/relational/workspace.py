"""Memory for intermediate results of an operation.

Memory fresh from the system costs more than the sums that fill it. An operation on the CPU therefore keeps its
workspace for the next call of the same thread; on a GPU the caching allocator of PyTorch does as much.
"""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

LARGEST_KEPT = 2**23
"""Bytes of one tensor, at most, that are usually kept after a call. A thread keeps up to ten for each type that it
has used."""

_OF_THREAD = threading.local()
"""Memory that each thread keeps, by type and name."""


class Workspace:
    """Uninitialised tensors by name, like a given one, each on the memory of the last of that name.

    Args:
        like: tells type and device.
        largest_kept: bytes of one of them, at most, that are kept for the next call.
    """

    def __init__(self, like: Tensor, largest_kept: int = LARGEST_KEPT) -> None:
        self.like, self.largest_kept = like, largest_kept
        self.taken: dict[str, Tensor] = {}
        self.kept = vars(_OF_THREAD).setdefault(str(like.dtype), {}) if like.is_cpu else self.taken

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A contiguous tensor of that shape."""
        size = math.prod(shape)
        memory = self.kept if size * self.like.itemsize <= self.largest_kept else self.taken
        if memory is not self.kept:
            self.kept.pop(name, None)  # rather than hold both
        if name not in memory or memory[name].numel() < size:
            with torch.inference_mode(False):  # a tensor made under inference mode serves nothing else
                memory[name] = self.like.new_empty(size)
        return memory[name][:size].view(shape)

    def product(self, name: str, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
        """The product of two stacks of matrices, ``scale * torch.bmm(a, b)``, scaled before it is rounded."""
        return self.tensor(name, a.shape[0], a.shape[1], b.shape[2]).baddbmm_(a, b, beta=0, alpha=scale)


def free_workspace() -> None:
    """Give back the memory that attention on the CPU keeps between calls, in this thread.

    Nothing is lost but a little time in the next call. The caching allocator's counterpart on a GPU is
    ``torch.cuda.empty_cache``.

    >>> free_workspace()
    """
    vars(_OF_THREAD).clear()
