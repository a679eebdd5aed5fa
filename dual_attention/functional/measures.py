"""Measures of attention weights, and penalties that shape them.

Weights are as mechanisms return them, before dropout, with the keys last. Measures take distributions, or at least
weights that are not negative; they look at values and refuse others. They say where a mechanism looked, which by
itself does not explain what it did (Jain & Wallace 2019, arXiv 1902.10186; Wiegreffe & Pinter 2019,
arXiv 1908.04626).

Shapes: weights ``(..., L, S)``, L queries and S keys.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from .checks import check_floating, check_rows, check_tensor
from .masks import check_mask, require_boolean

Supervision = Literal["cross_entropy", "mse"]


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
    count = _counted(mask, weights).sum(-1).to(entropy.dtype)
    return torch.where(count > 1, entropy / count.clamp_min(2).log(), 0.0)


def alignment_error_rate(weights: Tensor, sure: Tensor, possible: Tensor | None = None) -> Tensor:
    """Alignment error rate of the links that the weights make (Och & Ney 2003; Luong et al. 2015, section 5.4).

    Math: 1 - (|A & G_s| + |A & G_p|) / (|A| + |G_s|), with A = {(t, argmax_s a_ts)}

    Args:
        weights: ``(..., L, S)``; a row without weight (a query that is padding) makes no link.
        sure: G_s, boolean, of the same shape, the links that must be there.
        possible: G_p, those that may be, of which the sure ones are a part; by default the sure ones.

    Returns:
        One number over all examples, 0 is best; NaN if there are no links at all.

    Raises:
        TypeError: if links are not boolean. ValueError: if shapes differ, a sure link is not possible, or a weight is
            negative.

    >>> weights = torch.tensor([[0.9, 0.1], [0.8, 0.2]])
    >>> alignment_error_rate(weights, sure=torch.eye(2, dtype=torch.bool))
    tensor(0.5000)
    """
    _require_weights(weights)
    possible = sure if possible is None else possible
    for name, links in (("sure", sure), ("possible", possible)):
        require_boolean(name, links)
        _require_shape(name, links, weights)
    if (sure & ~possible).any():
        raise ValueError("possible: expected it to hold every sure link")
    found = torch.zeros_like(sure)
    if weights.shape[-1]:
        found = found.scatter(-1, weights.argmax(-1, keepdim=True), True) & (weights > 0).any(-1, keepdim=True)
    hits = (found & sure).sum() + (found & possible).sum()
    return 1 - hits / (found.sum() + sure.sum())


def rank_correlation(weights: Tensor, human: Tensor, mask: Tensor | None = None) -> Tensor:
    """Spearman's rank correlation of weights with where people looked (Das et al. 2016, arXiv 1606.03556).

    Values that tie share the mean of their ranks.

    Args:
        weights, human: ``(..., S)``, of one shape.
        mask: boolean, broadcastable to them, True = counts.

    Returns:
        ``(...)``, in [-1, 1]; NaN where one of the two is constant, which has no ranks to compare.

    Raises:
        TypeError, ValueError: as :func:`attention_correctness`.

    >>> rank_correlation(torch.tensor([0.1, 0.2, 0.7]), torch.tensor([1.0, 5.0, 9.0]))
    tensor(1.)
    """
    _require_weights(weights)
    _require_shape("human", human, weights)
    counts = _counted(mask, weights)

    def ranks(x: Tensor) -> Tensor:
        others = counts[..., None, :]
        below = ((x[..., None, :] < x[..., :, None]) & others).sum(-1)
        tied = ((x[..., None, :] == x[..., :, None]) & others).sum(-1)
        return below + (tied - 1) / 2.0

    n = counts.sum(-1, keepdim=True).clamp_min(1)
    first, second = (
        torch.where(counts, r - torch.where(counts, r, 0.0).sum(-1, keepdim=True) / n, 0.0).double()
        for r in (ranks(weights), ranks(human))
    )
    product = (first * second).sum(-1) / (first.square().sum(-1) * second.square().sum(-1)).sqrt()
    return product.to(torch.promote_types(weights.dtype, torch.float32))


def supervised_attention_loss(
    weights: Tensor, gold: Tensor, mask: Tensor | None = None, *, kind: Supervision = "cross_entropy"
) -> Tensor:
    """Loss of the weights against given ones, to be added to that of the task (survey 4.2).

    Args:
        weights, gold: ``(..., S)``, of one shape; gold rows sum to one, or to zero where nothing is known.
        mask: boolean, broadcastable to them, True = could be attended.
        kind: ``"cross_entropy"``, -sum gold log a; or ``"mse"``, the mean of squares over the keys.

    Returns:
        ``(...)``. Under cross-entropy a weight of zero counts as the smallest normal number, so that a sparse
        alignment gives a large loss and not an infinite one.

    Raises:
        TypeError, ValueError: if shapes do not fit or ``kind`` is unknown.

    >>> gold = torch.tensor([[0.0, 1.0]])
    >>> supervised_attention_loss(torch.tensor([[0.5, 0.5]]), gold)
    tensor([0.6931])
    """
    check_floating("weights", weights)
    _require_shape("gold", gold, weights)
    if kind not in get_args(Supervision):
        raise ValueError(f"kind: expected one of {', '.join(get_args(Supervision))}, got {kind!r}")
    counts = _counted(mask, weights)
    if kind == "mse":
        squares = (weights - gold).square().masked_fill(~counts, 0.0)
        return squares.sum(-1) / counts.sum(-1).clamp_min(1)
    log = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
    return -(gold * log).masked_fill(~counts, 0.0).sum(-1)


def doubly_stochastic_penalty(weights: Tensor, key_mask: Tensor | None = None) -> Tensor:
    """Penalty on keys that receive more or less than one in all (Xu et al. 2015, arXiv 1502.03044, eq. 14).

    Math: sum_s (1 - sum_t a_ts)^2

    Args:
        weights: ``(..., L, S)``.
        key_mask: boolean ``(..., S)``, broadcastable, True = a real key; others cost nothing.

    Returns:
        ``(...)``.

    >>> doubly_stochastic_penalty(torch.eye(3)), doubly_stochastic_penalty(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    (tensor(0.), tensor(2.))
    """
    check_rows("weights", weights)
    shortfall = 1 - weights.sum(-2)
    if key_mask is not None:
        check_mask("key_mask", key_mask, shortfall)
        shortfall = shortfall.masked_fill(~key_mask, 0.0)
    return shortfall.square().sum(-1)


def coverage_loss(weights: Tensor) -> Tensor:
    """Penalty on attending again what was attended before (See et al. 2017, arXiv 1704.04368, eqs. 10 and 12).

    Math: sum_t sum_s min(a_ts, c_ts),  c_ts = sum_{t' < t} a_t's

    Args:
        weights: ``(..., L, S)``, the queries in order.

    Returns:
        ``(...)``.

    >>> twice, once = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> coverage_loss(twice), coverage_loss(once)
    (tensor(1.), tensor(0.))
    """
    check_rows("weights", weights)
    return torch.minimum(weights, weights.cumsum(-2) - weights).sum((-2, -1))


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


def _require_shape(name: str, x: Tensor, weights: Tensor) -> None:
    check_tensor(name, x)
    if x.shape != weights.shape:
        raise ValueError(f"{name}: expected the weights' shape {tuple(weights.shape)}, got {tuple(x.shape)}")


def _counted(mask: Tensor | None, weights: Tensor) -> Tensor:
    """The mask in the shape of the weights; by default everything counts."""
    if mask is None:
        return torch.ones_like(weights, dtype=torch.bool)
    check_mask("mask", mask, weights)
    return mask.expand(weights.shape)
