"""Ranges of a block's segments in a packed sequence, so that tiles in which no pair shares a segment are skipped.

Shapes: B batch, or 1 if every example has the same segments; ``own`` the side whose blocks programs own, ``other`` the
side that they walk.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .support import ceil_div, next_power_of_2

STEP = 1024
"""Positions that are compared with a block's segments at once, at most."""


def segment_reach(own: Tensor, other: Tensor, block: int) -> Tensor:
    """Range of the other positions that may share a segment with each block of positions.

    Those are the positions whose segment lies between the least and the greatest of the block: for segments in order
    no more than need be, for any others too many rather than too few. It stays on the device: nothing waits for it.

    Takes contiguous integers ``(B or 1, length)`` and ``(B or 1, other length)``, and a power of two; returns int32
    ``(B or 1, blocks, 2)``: the first such position and the last plus one, or the other length and zero.
    """
    length, others = own.shape[1], other.shape[1]
    batch, blocks = max(own.shape[0], other.shape[0]), ceil_div(length, block)
    reach = torch.empty(batch, blocks, 2, dtype=torch.int32, device=own.device)
    strides = (batch_stride(own), batch_stride(other))
    if reach.numel():
        step = min(next_power_of_2(max(others, 1)), STEP)
        kernel: Any = reach_kernel
        kernel[blocks, batch](own, other, reach, *strides, length, others, BLOCK=block, STEP=step)
    return reach


@triton.jit
def reach_kernel(own, other, reach, own_batch, other_batch, length, others, BLOCK: tl.constexpr, STEP: tl.constexpr):
    batch = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0)
    # Beyond the end the last position is read again, which changes neither extreme.
    positions = tl.minimum(block * BLOCK + tl.arange(0, BLOCK), length - 1)
    segments = tl.load(own + batch * own_batch + positions).to(tl.int64)
    least, greatest = tl.min(segments, 0), tl.max(segments, 0)
    begin, end = others + tl.zeros((STEP,), tl.int32), tl.zeros((STEP,), tl.int32)
    for start in range(0, others, STEP):
        j = start + tl.arange(0, STEP)
        segment = tl.load(other + batch * other_batch + j, mask=j < others, other=0).to(tl.int64)
        near = (j < others) & (segment >= least) & (segment <= greatest)
        begin = tl.where(near, tl.minimum(begin, j), begin)
        end = tl.where(near, j + 1, end)
    into = reach + (batch * tl.num_programs(0) + block) * 2
    tl.store(into, tl.min(begin, 0))
    tl.store(into + 1, tl.max(end, 0))


def batch_stride(x: Tensor | None) -> int:
    """Stride of the batch in a contiguous tensor; zero if all examples share it."""
    return 0 if x is None or x.shape[0] == 1 else x.stride(0)
