"""Zeros in place of padded senders: weights of zero do not silence NaN or infinity, forward or backward."""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import in_transform
from .derivatives import is_traced
from .masks import MaskPattern


def zero_padding(pattern: MaskPattern, *senders: Tensor, axis: int = 2, owned: bool = False) -> tuple[Tensor, ...]:
    """Tensors with zeros for padding, where ``axis`` is that of the M senders; the same tensors if none are padded.

    What serves every example, with a first axis of one, has zeros only where all examples are padded.

    Args:
        owned: nobody else holds the tensors, so that where no gradients are wanted they are written to, not copied.
    """
    if pattern.padding is None:
        return senders
    in_place = owned and not (torch.is_grad_enabled() or is_traced() or in_transform())
    fill, zeroed = Tensor.masked_fill_ if in_place else Tensor.masked_fill, []
    for x in senders:
        real = pattern.padding
        if x.shape[0] == 1 and real.shape[0] != 1:
            real = real.any(dim=0, keepdim=True)
        shape = [real.shape[0], *[1] * (x.dim() - 1)]
        shape[axis] = real.shape[1]
        zeroed.append(fill(x, ~real.view(shape), 0.0))
    return tuple(zeroed)
