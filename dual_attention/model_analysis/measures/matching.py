"""Strata of pairs that are alike in distance, frequency or identity, and negatives drawn from them.

A relation that is large for near pairs, or for rare tokens, seems to detect any label whose pairs are near or rare.
Strata make the comparison fair: see :class:`.auc.RankedScores`.

Shapes: B examples, N objects, which are receivers and senders.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ._checks import check_labels, check_strata


def distance_strata(length: int, edges: Sequence[int] | None = None) -> Tensor:
    """Strata by the distance |i - j| of receiver and sender, int64 ``(N, N)``.

    Args:
        length: N.
        edges: ascending distances at which a stratum begins, for instance ``(1, 2, 4, 8)``; by default each distance
            is a stratum of its own.

    >>> distance_strata(3)
    tensor([[0, 1, 2],
            [1, 0, 1],
            [2, 1, 0]])
    """
    place = torch.arange(length)
    distance = (place[:, None] - place[None, :]).abs()
    if edges is None:
        return distance
    begins = torch.tensor(edges)
    if begins.dim() != 1 or (begins[1:] <= begins[:-1]).any():
        raise ValueError(f"edges: expected ascending distances, got {list(edges)}")
    return torch.bucketize(distance, begins, right=True)


def frequency_strata(tokens: Tensor, counts: Tensor) -> Tensor:
    """Strata by how often the tokens of receiver and sender occur, in steps of a factor of two: int64 ``(B, N, N)``.

    Args:
        tokens: ids, ``(B, N)``.
        counts: occurrences of each id in the corpus, ``(vocabulary,)``, see :func:`count_tokens`.

    >>> frequency_strata(torch.tensor([[0, 1]]), torch.tensor([1, 8])).shape
    torch.Size([1, 2, 2])
    """
    own = frequency_bins(tokens, counts)
    return combine_strata(own[:, :, None], own[:, None, :])


def frequency_bins(tokens: Tensor, counts: Tensor) -> Tensor:
    """Bin of each token's frequency, in steps of a factor of two: int64, the shape of tokens.

    >>> frequency_bins(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 8]))
    tensor([1, 1, 3])
    """
    if tokens.numel() and (int(tokens.min()) < 0 or int(tokens.max()) >= len(counts)):
        raise ValueError(
            f"tokens: expected ids from 0 to {len(counts) - 1}, of which counts are given, "
            f"got {int(tokens.min())} to {int(tokens.max())}"
        )
    # A count of 0 stands for an id that the corpus lacks.
    return (counts.double() + 1).log2().floor().long()[tokens]


def count_tokens(documents: Sequence[Tensor], vocab_size: int) -> Tensor:
    """Occurrences of each id in documents, each ``(length,)``: int64 ``(vocab_size,)``.

    >>> count_tokens([torch.tensor([0, 2]), torch.tensor([2])], vocab_size=4)
    tensor([1, 0, 2, 0])
    """
    counts = torch.zeros(vocab_size, dtype=torch.long)
    for document in documents:
        counts += torch.bincount(document.flatten().long().cpu(), minlength=vocab_size)
    return counts


def identity_strata(tokens: Tensor) -> Tensor:
    """Two strata: pairs of one token and itself, and pairs of different tokens: ``(B, N) -> (B, N, N)`` int64.

    >>> identity_strata(torch.tensor([[7, 8, 7]]))
    tensor([[[1, 0, 1],
             [0, 1, 0],
             [1, 0, 1]]])
    """
    return (tokens[:, :, None] == tokens[:, None, :]).long()


def receiver_strata(tokens: Tensor) -> Tensor:
    """Strata by the token that receives, so that only senders are compared: ``(B, N) -> (B, N, N)`` int64.

    >>> receiver_strata(torch.tensor([[7, 8, 7]]))
    tensor([[[7, 7, 7],
             [8, 8, 8],
             [7, 7, 7]]])
    """
    return tokens[:, :, None].expand(-1, -1, tokens.shape[1]).long()


def combine_strata(*strata: Tensor) -> Tensor:
    """Strata of pairs that are alike in every respect: numbers from 0, in the shape to which ``strata`` broadcast.

    >>> combine_strata(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]))
    tensor([0, 1, 2])
    """
    if not strata:
        raise ValueError("strata: expected at least one")
    columns = torch.broadcast_tensors(*strata)
    shape = columns[0].shape
    combined = torch.zeros(columns[0].numel(), dtype=torch.long, device=columns[0].device)
    for column in columns:
        values, inverse = column.flatten().unique(return_inverse=True)
        combined = (combined * len(values) + inverse).unique(return_inverse=True)[1]
    return combined.view(shape)


def matched_negatives(
    labels: Tensor, mask: Tensor, strata: Tensor | None = None, *, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """As many negatives as positives, from the same example and stratum, for interventions on either.

    Args:
        labels, mask: boolean ``(B, N, N)``; pairs with the label, and pairs that count.
        strata: integers, broadcastable to them; by default one stratum.
        seed: of the draw, without replacement. Where a stratum has more positives than negatives, positives are drawn.

    Returns:
        The chosen positives and negatives, boolean ``(B, N, N)``; equally many in each example and stratum.

    >>> labels = torch.eye(4, dtype=torch.bool)[None]
    >>> positives, negatives = matched_negatives(labels, torch.ones_like(labels))
    >>> positives.shape, negatives.shape
    (torch.Size([1, 4, 4]), torch.Size([1, 4, 4]))
    """
    pairs = tuple(mask.shape)
    labels = check_labels(labels, pairs)
    examples = torch.arange(len(mask), device=mask.device).view(-1, *[1] * (mask.dim() - 1))
    stratum = combine_strata(examples, check_strata(strata, pairs, mask.device))[mask]
    positive = labels[mask]
    order = torch.randperm(len(positive), generator=torch.Generator().manual_seed(seed)).to(mask.device)
    place = torch.empty_like(order)
    for kind in (positive, ~positive):  # number of each pair, in random order, among those of its kind and stratum
        own = order[kind[order]]
        place[own] = number_within(stratum[own])
    size = int(stratum.max()) + 1 if len(stratum) else 0
    counts = [torch.bincount(stratum[kind], minlength=size) for kind in (positive, ~positive)]
    chosen = place < torch.minimum(*counts)[stratum] if size else positive
    return _scattered(chosen & positive, mask), _scattered(chosen & ~positive, mask)


def number_within(groups: Tensor) -> Tensor:
    """Number, from 0, of each element among those of its group: ``(n,) -> (n,)``."""
    order = groups.argsort(stable=True)
    counts = torch.bincount(groups)
    starts = counts.cumsum(0) - counts
    number = torch.empty_like(groups)
    number[order] = torch.arange(len(groups), device=groups.device) - starts[groups[order]]
    return number


def _scattered(values: Tensor, mask: Tensor) -> Tensor:
    return torch.zeros_like(mask).masked_scatter(mask, values)
