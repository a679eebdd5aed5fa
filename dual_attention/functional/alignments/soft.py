"""Soft (global) alignment, and the uniform one that is its ablation."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import fill_hidden
from .common import finish, prepare


def masked_softmax(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    dim: int = -1,
) -> Tensor:
    """Soft alignment (Xu et al. 2015, arXiv 1502.03044; "global" in Luong et al. 2015, arXiv 1508.04025, eq. 7).

    Math: a_s = exp(e_s / tau) / sum_j exp(e_j / tau), over the keys j that may be attended

    Args:
        scores: ``(..., S)``, or with the keys on axis ``dim``.
        mask: boolean, broadcastable to the scores, True = may be attended.
        bias: added after the division by the temperature; minus infinity masks.
        temperature: tau > 0, which always divides. Near 0 the maximum takes all (tied maxima share), at infinity the
            weights are uniform.

    Returns:
        Weights of the scores' shape and type, computed in float32 or better. Masked ones are exactly zero, and so is a
        row with nothing to attend.

    Raises:
        TypeError, ValueError: for a mask that is not boolean or does not broadcast, or a temperature not positive.

    >>> mask = torch.tensor([[True, True, False], [False, False, False]])
    >>> masked_softmax(torch.tensor([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]), mask)
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    x, allowed = prepare(scores, mask, bias=bias, temperature=temperature)
    return finish(torch.softmax(fill_hidden(x, allowed, dim), dim=dim), allowed, scores.dtype)


def uniform_alignment(scores: Tensor, mask: Tensor | None = None, *, dim: int = -1) -> Tensor:
    """The same weight for every key that may be attended, whatever its score: an ablation (survey 4.1).

    Args, returns and errors as :func:`masked_softmax`.

    >>> uniform_alignment(torch.randn(1, 4), torch.tensor([[True, True, False, False]]))
    tensor([[0.5000, 0.5000, 0.0000, 0.0000]])
    """
    x, allowed = prepare(scores, mask)
    count = allowed.sum(dim=dim, keepdim=True).clamp_min(1)
    return (allowed.to(x.dtype) / count).to(scores.dtype)
