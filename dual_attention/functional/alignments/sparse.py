"""Sparse alignments: sparsemax and alpha-entmax, which give most keys exactly nothing.

Both are ``max((alpha - 1) e - tau, 0)^(1 / (alpha - 1))`` with the threshold tau at which a row sums to one. The
threshold and the support are found without gradients; then the threshold is written as a function of the supported
scores, so that ordinary differentiation gives the exact gradient: in closed form for sparsemax, and elsewhere by two
steps of Newton's method from the solution, which leave its value and give its first three derivatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .common import finish, prepare
from .soft import masked_softmax

HALVINGS = 50
"""Of the interval that holds the threshold; float32 needs about 24."""


def sparsemax(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    dim: int = -1,
) -> Tensor:
    """Sparsemax: the Euclidean projection of a row on the simplex (Martins & Astudillo 2016, arXiv 1602.02068).

    Math: a = max(e - tau(e), 0), with tau such that the row sums to one

    Exactly one-hot once the temperature is below the gap between the two highest scores. Arguments, shape and errors
    as :func:`.masked_softmax`.
    """
    x, allowed, empty = _rows(scores, mask, bias, temperature, dim)
    if empty:
        return scores.clone()
    support = _sparsemax_support(x.detach())
    size = support.sum(-1, keepdim=True)
    threshold = (torch.where(support, x, 0.0).sum(-1, keepdim=True) - 1) / size
    weights = torch.where(support, x - threshold, 0.0).clamp_min(0.0)
    return finish(weights.transpose(dim, -1), allowed, scores.dtype)


def entmax(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    alpha: float | Tensor = 1.5,
    bias: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    dim: int = -1,
) -> Tensor:
    """alpha-entmax (Peters et al. 2019, arXiv 1905.05702), between softmax (1) and sparsemax (2), and beyond.

    Math: a = argmax_p <p, e> + H_alpha(p) = max((alpha - 1) e - tau, 0)^(1 / (alpha - 1))

    Args:
        alpha: at least 1. 1 is softmax, 2 sparsemax, 1.5 is solved exactly, others by bisection. A tensor that
            broadcasts to the scores, with values above 1, may be learned (Correia et al. 2019, arXiv 1909.00015).

    Other arguments, shape and errors as :func:`.masked_softmax`.

    Raises:
        ValueError: if ``alpha`` is a number below 1.
    """
    if not isinstance(alpha, Tensor):
        if not alpha >= 1:
            raise ValueError(f"alpha: expected at least 1, got {alpha}")
        if alpha in (1, 2):
            function = masked_softmax if alpha == 1 else sparsemax
            return function(scores, mask, bias=bias, temperature=temperature, dim=dim)
    x, allowed, empty = _rows(scores, mask, bias, temperature, dim)
    if empty:
        return scores.clone()
    if isinstance(alpha, Tensor):
        alpha = alpha.to(x.dtype)
        alpha = alpha.transpose(dim, -1) if alpha.dim() else alpha
    x = (alpha - 1) * x
    power = 1 / (alpha - 1)
    with torch.no_grad():
        exact = not isinstance(alpha, Tensor) and alpha == 1.5
        threshold = _threshold_15(x) if exact else _bisection(x, alpha, power)
        support = x > threshold

    def above(threshold: Tensor) -> Tensor:
        # A supported score stays above the threshold up to rounding; zero has no gradient under a power.
        return torch.where(support, (x - threshold).clamp_min(torch.finfo(x.dtype).tiny), 1.0)

    for _ in range(2):
        base = above(threshold)
        excess = torch.where(support, base**power, 0.0).sum(-1, keepdim=True) - 1
        slope = torch.where(support, power * base ** (power - 1), 0.0).sum(-1, keepdim=True)
        threshold = threshold + excess / slope
    weights = torch.where(support, above(threshold) ** power, 0.0)
    weights = weights / weights.sum(-1, keepdim=True)
    return finish(weights.transpose(dim, -1), allowed, scores.dtype)


def _rows(
    scores: Tensor, mask: Tensor | None, bias: Tensor | None, temperature: float | Tensor, dim: int
) -> tuple[Tensor, Tensor, bool]:
    """Filled scores with the keys last and the maximum at zero, the mask as it was, and whether there are no keys."""
    filled, allowed = prepare(scores, mask, bias=bias, temperature=temperature)
    if not filled.numel():
        return filled, allowed, True
    x = filled.transpose(dim, -1)
    return x - x.detach().amax(-1, keepdim=True), allowed, False


def _sparsemax_support(x: Tensor) -> Tensor:
    """The keys with weight, of rows whose maximum is zero."""
    # What is more than one below the maximum never has weight; sums of filled scores would overflow.
    z = x.clamp_min(-2.0).sort(dim=-1, descending=True).values
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
    sums = z.cumsum(-1)
    size = (1 + ranks * z > sums).sum(-1, keepdim=True).clamp_min(1)
    threshold = (sums.gather(-1, size - 1) - 1) / size
    return x > threshold


def _threshold_15(x: Tensor) -> Tensor:
    """The threshold for alpha = 1.5, of halved rows whose maximum is zero."""
    z = x.clamp_min(-2.0).sort(dim=-1, descending=True).values
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
    mean = z.cumsum(-1) / ranks
    deviations = ranks * (z.square().cumsum(-1) / ranks - mean.square())
    thresholds = mean - ((1 - deviations) / ranks).clamp_min(0).sqrt()
    size = (thresholds <= z).sum(-1, keepdim=True).clamp_min(1)
    return thresholds.gather(-1, size - 1)


def _bisection(x: Tensor, alpha: float | Tensor, power: float | Tensor) -> Tensor:
    """The threshold of scaled rows whose maximum is zero, by halving the interval that holds it."""
    low = torch.full_like(x[..., :1], -1.0)
    high = low + (1 - x.shape[-1] ** (1 - alpha))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        too_low = ((x - middle).clamp_min(0.0) ** power).sum(-1, keepdim=True) >= 1
        low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
    return low
