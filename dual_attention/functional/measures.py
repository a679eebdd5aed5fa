"""Measures of attention weights, and a penalty that shapes them.

Weights are as mechanisms return them, before dropout, with the keys last. Measures take distributions, or at least
weights that are not negative; they look at values and refuse others. They say where a mechanism looked, which by
itself does not explain what it did (Jain & Wallace 2019, arXiv 1902.10186; Wiegreffe & Pinter 2019,
arXiv 1908.04626).

Shapes: weights ``(..., L, S)``, L queries and S keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import check_floating, check_rows
from .masks import check_mask


def attention_correctness(weights: Tensor, region: Tensor) -> Tensor:
    """Weight inside the right region (Liu et al. 2016, arXiv 1605.09553; survey eq. 46).

    Args:
        weights: ``(..., S)``.
        region: boolean, broadcastable to the weights, True inside.

    Returns:
        ``(...)``, in [0, 1] for weights that sum to one.

    Raises:
        TypeError: if ``region`` is not boolean. ValueError: if shapes do not fit, or a weight is negative.

    >>> attention_correctness(torch.tensor([0.7, 0.2, 0.1]), torch.tensor([True, False, True]))
    tensor(0.8000)
    """
    _require_weights(weights)
    check_mask("region", region, weights)
    return weights.masked_fill(~region, 0.0).sum(-1)


def attention_entropy(weights: Tensor, mask: Tensor | None = None, *, normalise: bool = True) -> Tensor:
    """Entropy of the weights, from 0 (one key) to 1 (all alike).

    Rows that do not sum to one (local-p, sigmoid) are divided by their sums first.

    Args:
        weights: ``(..., S)``.
        mask: boolean, broadcastable to the weights, True = could be attended; by default all.
        normalise: divide by the logarithm of the number of keys that could be attended; 0 if that is at most one.
            False gives nats.

    Returns:
        ``(...)``; 0 for a row without weight.

    Raises:
        TypeError, ValueError: as :func:`attention_correctness`.

    >>> attention_entropy(torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
    tensor([1.0000, 0.4690])
    """
    _require_weights(weights)
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    total = weights.sum(-1, keepdim=True)
    p = weights / torch.where(total > 0, total, 1.0)
    entropy = -torch.xlogy(p, p).sum(-1)
    if not normalise:
        return entropy
    if mask is None:
        mask = torch.ones_like(weights, dtype=torch.bool)
    check_mask("mask", mask, weights)
    count = mask.expand(weights.shape).sum(-1).to(entropy.dtype)
    return torch.where(count > 1, entropy / count.clamp_min(2).log(), 0.0)


def structured_attention_penalty(weights: Tensor) -> Tensor:
    """Penalty on queries that attend to the same keys (Lin et al. 2017, arXiv 1703.03130, eq. 8).

    Math: |A A^T - I|_F^2

    Zero only if rows are one-hot at different keys; with fewer keys than queries it cannot be.

    Args:
        weights: A, ``(..., r, S)``.

    Returns:
        ``(...)``, to be averaged over the batch.

    >>> structured_attention_penalty(torch.eye(2)), structured_attention_penalty(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    (tensor(0.), tensor(2.))
    """
    check_rows("weights", weights)
    gram = weights @ weights.transpose(-2, -1)
    return (gram - torch.eye(weights.shape[-2], dtype=gram.dtype, device=gram.device)).square().sum((-2, -1))


def _require_weights(weights: Tensor) -> None:
    check_floating("weights", weights)
    if (weights < 0).any():
        raise ValueError(
            "weights: expected none negative, as in a distribution; alignments by tanh or the identity may give some"
        )
