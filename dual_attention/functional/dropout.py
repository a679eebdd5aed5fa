"""Dropout that draws sixteen random bits for an entry on a CPU, where drawing is most of its time.

PyTorch draws a number in double precision for each entry there: at 655,360 entries and one thread 3.9 of the 4.4 ms of
a forward pass.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .checks import in_transform
from .derivatives import is_traced

LEVELS = 2**16
"""Rates are rounded to one of so many; the factor of what is kept is that of the rounded rate."""


def drop(x: Tensor, rate: float) -> Tensor:
    """``x`` with entries dropped at ``rate``, and the others times one over the share that is kept.

    Compiled, exported, under ``torch.func`` and on other devices than a CPU this is PyTorch's own.
    """
    if not rate or not x.is_cpu or is_traced() or in_transform():
        return F.dropout(x, rate)
    return x * kept(x, rate)


def kept(like: Tensor, rate: float, generator: torch.Generator | None = None) -> Tensor:
    """Factors of dropout in the shape and type of a tensor: zero, or one over the share that is kept."""
    if not like.is_cpu:
        return torch.empty_like(like).bernoulli_(1.0 - rate, generator=generator).div_(1.0 - rate)
    share = max(1, round((1.0 - rate) * LEVELS))
    if share == LEVELS:
        return torch.ones_like(like)
    bits = torch.empty(-(-like.numel() // 4), dtype=torch.int64, device=like.device)
    bits.random_(-(2**63), None, generator=generator)
    bits = bits.view(torch.int16)[: like.numel()].view(like.shape)
    factors = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    return torch.lt(bits, share - LEVELS // 2, out=factors).mul_(LEVELS / share)
