"""Shared by all alignments: checks, the order of scaling, bias and mask, and the result."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import MaybeNone, check_broadcast, check_floating, check_same_device, is_readable, require_rate
from ..masks import check_mask


class Alignment(NamedTuple):
    """Weights from an alignment, and the draw behind them if there was one.

    Attributes:
        weights: of the shape of the scores.
        log_prob: where something was drawn, the log-probability of the draw, without the key axis; 0 where nothing may
            be attended. None otherwise.
        entropy: of the distribution drawn from, of the same shape, or None.

    >>> alignment = hard_alignment(torch.tensor([[1.0, 2.0, 3.0]]), estimator="argmax")
    >>> alignment.weights
    tensor([[0., 0., 1.]])
    """

    weights: Tensor
    log_prob: Tensor | MaybeNone = None
    entropy: Tensor | MaybeNone = None


def prepare(
    scores: Tensor, mask: Tensor | None, *, bias: Tensor | None = None, temperature: float | Tensor = 1.0
) -> tuple[Tensor, Tensor]:
    """Scores in float32 or better, scaled and biased; and the mask of their shape, by which they are yet to be filled.

    The order matters: dividing filled scores by a temperature below one overflows, and rows become NaN. Arguments and
    errors as :func:`.masked_softmax`.
    """
    check_floating("scores", scores)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if isinstance(temperature, Tensor):
        require_above("temperature", temperature, 0.0)
    else:
        require_rate("temperature", temperature)
    if isinstance(temperature, Tensor) or temperature != 1.0:
        scores = scores / temperature
    if bias is not None:
        check_same_device(scores=scores, bias=bias)
        check_broadcast("bias", bias, scores)
        scores = scores + bias
    allowed = scores != -torch.inf
    if mask is not None:
        check_mask("mask", mask, scores)
        check_same_device(scores=scores, mask=mask)
        allowed = allowed & mask
    return scores, allowed


def finish(weights: Tensor, allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights exactly zero where masked, in the type of the scores."""
    return weights.masked_fill(~allowed, 0.0).to(dtype)


def require_above(name: str, values: Tensor, bound: float) -> None:
    """Raise ``ValueError`` unless all numbers of a tensor, where they can be read, are finite and above a bound."""
    values = values.detach()
    if is_readable(values):
        right = values.isfinite() & (values > bound)
        if not right.all():
            raise ValueError(f"{name}: expected finite numbers above {bound:g}, got {values[~right][0].item():g}")
