"""Cross-entropy and its gradient from a chunk of logits, which are read twice and written once.

The loss of a language model is as much of a training step in a plain Transformer as in a DAT. PyTorch's operations for
this launch seven kernels and move three times as many bytes.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .support import next_power_of_2

COLUMNS = 4096
"""Logits that a program reads at once."""


def overwrite_logits(logits: Tensor, labels: Tensor, factors: Tensor) -> Tensor:
    """Losses ``(T,)`` in float32 of contiguous logits ``(T, V)``, which become the gradients of the losses times
    ``factors``; labels and factors, in float32: ``(T,)``."""
    losses, width = torch.empty_like(factors), logits.shape[1]
    kernel: Any = errors_kernel
    if len(losses):
        with torch.cuda.device_of(logits):  # nothing off the GPU
            block = min(COLUMNS, next_power_of_2(width))
            kernel[(len(losses),)](logits, labels, factors, losses, width, BLOCK=block, num_warps=8)
    return losses


errors_of_logits = torch.library.custom_op(
    "dual_attention::errors_of_logits", overwrite_logits, mutates_args=("logits",)
)


@errors_of_logits.register_fake
def _(logits: Tensor, labels: Tensor, factors: Tensor) -> Tensor:
    return torch.empty_like(factors)


@triton.jit
def errors_kernel(logits, labels, factors, losses, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * width
    most, total = tl.full((), float("-inf"), tl.float32), tl.full((), 0.0, tl.float32)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        z = tl.load(start + column, mask=column < width, other=float("-inf")).to(tl.float32)
        new = tl.maximum(most, tl.max(z, 0))
        shift = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(most - shift) + tl.sum(tl.exp(z - shift), 0)
        most = new
    log_sum = most + tl.log(total)
    label = tl.load(labels + row)
    tl.store(losses + row, log_sum - tl.load(start + label).to(tl.float32))
    tl.debug_barrier()  # the label's logit is read by other threads than overwrite it
    factor = tl.load(factors + row)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        z = tl.load(start + column, mask=column < width, other=float("-inf")).to(tl.float32)
        error = (tl.exp(z - log_sum) - tl.where(column == label, 1.0, 0.0)) * factor
        tl.store(start + column, error.to(logits.dtype.element_ty), mask=column < width)
