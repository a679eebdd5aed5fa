"""Sparse alignments: sparsemax and alpha-entmax, which give most keys exactly nothing.

Both are ``max((alpha - 1) e - tau, 0)^(1 / (alpha - 1))`` with the threshold tau at which a row sums to one. The
threshold and the support are found without gradients; then the threshold is written as a function of the supported
scores, so that ordinary differentiation gives the exact gradient: in closed form for sparsemax, and elsewhere by two
steps of Newton's method from the solution, which leave its value and give its first three derivatives.

Where alpha nears 1, tau nears -1, and the power makes rounding errors large. So entmax finds, in place of tau, the
logarithm of a row's highest weight, which for a maximum of zero is ``(-tau)^(1 / (alpha - 1))``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..checks import check_finite
from ..reference import fill_hidden
from .common import finish, prepare, require_above
from .soft import masked_softmax


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

    >>> sparsemax(torch.tensor([2.0, 1.5, -1.0]))
    tensor([0.7500, 0.2500, 0.0000])
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

    >>> entmax(torch.tensor([2.0, 1.0, -1.0]))
    tensor([0.8307, 0.1693, 0.0000])
    """
    if isinstance(alpha, Tensor):
        require_above("alpha", alpha, 1.0)
    else:
        check_finite(alpha=alpha)
        if not alpha >= 1:
            raise ValueError(f"alpha: expected at least 1, got {alpha}")
        if alpha in (1, 2):
            function = masked_softmax if alpha == 1 else sparsemax
            return function(scores, mask, bias=bias, temperature=temperature, dim=dim)
    x, allowed, empty = _rows(scores, mask, bias, temperature, dim)
    if empty:
        return scores.clone()
    steepness = alpha - 1
    if isinstance(steepness, Tensor):
        steepness = steepness.to(x.dtype)
        steepness = steepness.transpose(dim, -1) if steepness.dim() else steepness
    x = steepness * x
    with torch.no_grad():
        exact = not isinstance(alpha, Tensor) and alpha == 1.5
        highest = 2 * (-_threshold_15(x)).log() if exact else _bisection(x, steepness)
        support = _over_highest(x, highest, steepness) > -1
    for _ in range(2):
        weights, below = _entmax_weights(x, highest, support, steepness)
        slope = (weights / (1 + below)).sum(-1, keepdim=True)
        highest = highest - (weights.sum(-1, keepdim=True) - 1) / slope
    weights, _ = _entmax_weights(x, highest, support, steepness)
    weights = weights / weights.sum(-1, keepdim=True)
    return finish(weights.transpose(dim, -1), allowed, scores.dtype)


def _rows(
    scores: Tensor, mask: Tensor | None, bias: Tensor | None, temperature: float | Tensor, dim: int
) -> tuple[Tensor, Tensor, bool]:
    """Filled scores with the keys last and the maximum at zero, the mask as it was, and whether there are no keys."""
    x, allowed = prepare(scores, mask, bias=bias, temperature=temperature)
    if not x.numel():
        return x, allowed, True
    x = fill_hidden(x, allowed, dim).transpose(dim, -1)
    # None has weight so far below; in products minus infinity would make NaN of a gradient of zero.
    x = (x - x.detach().amax(-1, keepdim=True)).clamp_min(-math.sqrt(torch.finfo(x.dtype).max))
    return x, allowed, False


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


def _over_highest(x: Tensor, highest: Tensor, steepness: float | Tensor) -> Tensor:
    """Scaled rows over the power of the highest weight, given by its logarithm: at -1 and below there is no weight."""
    return x * (-steepness * highest).exp().clamp_max(torch.finfo(x.dtype).max)


def _entmax_weights(x: Tensor, highest: Tensor, support: Tensor, steepness: float | Tensor) -> tuple[Tensor, Tensor]:
    """Weights in the support, from scaled rows and the logarithm of the highest weight; and :func:`_over_highest`."""
    # Rounding may leave a supported score at -1, where a power has no gradient, but holds the threshold by its slope.
    least = -1 + torch.finfo(x.dtype).eps / 2
    below = torch.where(support, _over_highest(x, highest, steepness).clamp_min(least), 0.0)
    weights = torch.where(support, (highest + below.log1p() / steepness).exp(), 0.0)
    return weights, below


def _bisection(x: Tensor, steepness: float | Tensor) -> Tensor:
    """The logarithm of the highest weight, of scaled rows whose maximum is zero, by halving its interval."""
    high = torch.zeros_like(x[..., :1])
    low = high - torch.full_like(high, x.shape[-1]).log()
    for _ in range(1 - round(math.log2(torch.finfo(x.dtype).eps))):
        middle = (low + high) / 2
        shares = (_over_highest(x, middle, steepness).clamp_min(-1.0).log1p() / steepness).exp()
        too_high = shares.sum(-1, keepdim=True) * middle.exp() >= 1
        low, high = torch.where(too_high, low, middle), torch.where(too_high, middle, high)
    return high
