"""Positions and pairs that are real, inferred from the mask: padding is visible to no receiver.

Shapes: B examples (or 1, if all are alike), H heads (or 1), N receivers, M senders.
"""

from __future__ import annotations

import torch
from torch import Tensor


def real_senders(visible: Tensor) -> Tensor:
    """Senders that some receiver may attend, ``(B, M)``, by the pairs that may be attended, ``(B, H, N, M)``."""
    return visible.any(dim=1).any(dim=1)


def real_receivers(visible: Tensor) -> Tensor:
    """Receivers that are real senders, too, ``(B, N)``; of self-attention, where they are the last of the senders.

    All are real where there are more receivers than senders, which are other objects then.
    """
    n, m = visible.shape[2:]
    senders = real_senders(visible)
    return senders[:, m - n :] if n <= m else torch.ones_like(visible[:, 0, :, 0])


def real_pairs(visible: Tensor) -> Tensor:
    """Pairs that some head may attend and whose receiver is real, ``(B, N, M)``."""
    return visible.any(dim=1) & real_receivers(visible)[..., None]
