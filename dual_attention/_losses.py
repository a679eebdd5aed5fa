"""Regression losses of models that predict vectors."""

from __future__ import annotations

import torch
from torch import Tensor


def mean_squared_error(predictions: Tensor, targets: Tensor, scored: Tensor | None = None) -> Tensor:
    """Mean squared error over the numbers at the scored places, in float32 or wider; zero if there are none.

    Args:
        predictions, targets: ``(..., V)``.
        scored: boolean ``(...)``; by default all places. What targets hold at the others, NaN even, does not matter.

    Raises:
        TypeError: if targets are not floating point.
        ValueError: if shapes disagree.
    """
    if not targets.is_floating_point():
        raise TypeError(f"targets: expected floating-point numbers, got dtype {targets.dtype}")
    if targets.shape != predictions.shape:
        raise ValueError(f"targets: expected shape {tuple(predictions.shape)}, got {tuple(targets.shape)}")
    wide = torch.promote_types(predictions.dtype, torch.float32)
    errors = predictions.to(wide) - targets.to(wide)
    if scored is None:
        return errors.square().sum() / max(1, errors.numel())
    # Masked before squaring, so that NaN elsewhere reaches no gradient.
    errors = errors.masked_fill(~scored[..., None], 0.0)
    return errors.square().sum() / (scored.sum() * errors.shape[-1]).clamp_min(1)
