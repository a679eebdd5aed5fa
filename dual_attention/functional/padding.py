"""Zeros in place of padded senders: weights of zero do not silence NaN or infinity, forward or backward."""

from __future__ import annotations

from torch import Tensor

from .masks import MaskPattern


def zero_padding(pattern: MaskPattern, *senders: Tensor, axis: int = 2) -> tuple[Tensor, ...]:
    """Tensors with zeros for padding, where ``axis`` is that of the M senders; the same tensors if none are padded.

    What serves every example, with a first axis of one, has zeros only where all examples are padded.
    """
    if pattern.padding is None:
        return senders
    zeroed = []
    for x in senders:
        real = pattern.padding
        if x.shape[0] == 1 and real.shape[0] != 1:
            real = real.any(dim=0, keepdim=True)
        shape = [real.shape[0], *[1] * (x.dim() - 1)]
        shape[axis] = real.shape[1]
        zeroed.append(x.masked_fill(~real.view(shape), 0.0))
    return tuple(zeroed)
