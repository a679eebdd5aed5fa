"""Positions and pairs that are real, inferred from the mask: padding is visible to no receiver.

Shapes: B examples (or 1, if all are alike), H heads (or 1), N receivers, M senders.
"""

from __future__ import annotations

import torch
from torch import Tensor


def real_senders(visible: Tensor) -> Tensor:
    """Senders that some receiver may attend, ``(B, M)``, by the pairs that may be attended, ``(B, H, N, M)``."""
    return visible.any(dim=1).any(dim=1)


def real_receivers(visible: Tensor, crosses: bool) -> Tensor:
    """Receivers that are real, ``(B, N)``: in self-attention, the last of the senders, those that are real senders.

    All are where attention ``crosses`` to other objects, whose padding is not theirs; and if none would be, as in a
    cache of a fixed size, where receivers are not the last.
    """
    if crosses:
        return torch.ones_like(visible[:, 0, :, 0])
    real = real_senders(visible)[:, visible.shape[3] - visible.shape[2] :]
    return real | ~real.any()


def real_pairs(visible: Tensor, crosses: bool) -> Tensor:
    """Pairs that some head may attend and whose receiver is real, ``(B, N, M)``."""
    return visible.any(dim=1) & real_receivers(visible, crosses)[..., None]
