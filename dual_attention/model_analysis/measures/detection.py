"""Detection of a label of pairs by scores: matched AUC, intervals over examples, and the maximum over scores corrected.

Shapes: B examples, N objects, S scores of each pair: relations, attention heads, or those of a control.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..._base.intervals import half_width
from ..._layers.inputs import check_choice
from ._checks import check_labels, check_relations, check_strata, pair_mask
from .auc import MatchedAuc, RankedScores

Shuffle = Literal["objects", "pairs"]


@dataclass(frozen=True)
class Detection:
    """AUC of every score for a label, and how surprising it is.

    Attributes:
        auc: of all pairs together, ``(S,)`` float64; below 0.5 for a score that is low where the label holds.
        by_example: of each example alone, ``(B, S)`` float64; NaN where it has nothing to compare.
        positives: number of pairs with the label that were compared.
        matched: their share among those with the label; others have no negative in their stratum.
        null: largest |AUC - 1/2| of any score after each shuffle of the labels, ``(permutations,)`` float64.

    >>> detection = detect(torch.rand(8, 5, 5, 3), torch.rand(8, 5, 5) > 0.5)
    >>> detection.auc.shape, detection.by_example.shape
    (torch.Size([3]), torch.Size([8, 3]))
    """

    auc: Tensor
    by_example: Tensor
    positives: int
    matched: float
    null: Tensor

    @property
    def best(self) -> int:
        """The score whose AUC is furthest from 1/2."""
        return int((self.auc - 0.5).abs().argmax())

    @property
    def p(self) -> Tensor:
        """p of each score against the maximum over all of them, ``(S,)``; NaN without shuffles (Westfall & Young)."""
        if not len(self.null):
            return torch.full_like(self.auc, torch.nan)
        strength = (self.auc - 0.5).abs()
        exceeded = (self.null[:, None] >= strength - 1e-12).sum(0)
        return (exceeded + 1) / (len(self.null) + 1)

    def shuffled(self, level: float = 0.95) -> float:
        """The quantile of |AUC - 1/2| that the best of as many scores reaches for shuffled labels."""
        return float(self.null.quantile(level)) if len(self.null) else float("nan")

    def interval(self, score: int, level: float = 0.95) -> tuple[float, float]:
        """t-interval of a score's mean AUC over examples; NaN with fewer than two that have something to compare."""
        values = self.by_example[:, score]
        values = values[~values.isnan()].tolist()
        if len(values) < 2:
            return float("nan"), float("nan")
        mean, half = sum(values) / len(values), half_width(values, level=level)
        return mean - half, mean + half


def detect(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    strata: Tensor | None = None,
    *,
    permutations: int = 0,
    shuffle: Shuffle = "objects",
    seed: int = 0,
) -> Detection:
    """Measure how well scores of pairs tell those with a label from others of the same stratum.

    Args:
        scores: ``(B, N, N, S)``, for instance relations.
        labels: boolean, broadcastable to ``(B, N, N)``.
        mask: pairs that count, boolean, broadcastable to ``(B, N, N)``; by default all.
        strata: integers, broadcastable to ``(B, N, N)``, see ``measures.matching``; by default one stratum.
        permutations: shuffles of the labels, for p-values.
        shuffle: ``"objects"`` permutes rows and columns of an example's labels together (Mantel 1967), which keeps
            that pairs share their objects; ``"pairs"`` permutes pairs within examples and strata, as if they were
            independent, which they seldom are.
        seed: of the shuffles.

    >>> labels = torch.rand(8, 5, 5) > 0.5
    >>> detect(labels[..., None].float(), labels).auc
    tensor([1.], dtype=torch.float64)
    """
    check_relations("scores", scores, square=True)
    check_choice("shuffle", shuffle, Shuffle)
    counts = pair_mask(mask, scores)
    pairs = tuple(counts.shape)
    labels, strata = check_labels(labels, pairs), check_strata(strata, pairs, scores.device)
    ranked = RankedScores(scores[counts], strata[counts])
    found = ranked.auc(labels[counts])
    if not found.positives:
        raise ValueError(f"labels: expected both kinds in one stratum, got {int(labels[counts].sum())} positives")
    generator = torch.Generator().manual_seed(seed)
    examples = torch.arange(len(counts), device=counts.device)[:, None, None].expand(pairs)[counts]
    null = []
    for _ in range(permutations):
        if shuffle == "objects":
            shuffled = _permute_objects(labels, counts, generator)[counts]
        else:
            shuffled = _permute_within(labels[counts], examples, ranked.strata, generator)
        null.append(_strength(ranked.auc(shuffled)))
    each = [RankedScores(scores[b][own], strata[b][own]).auc(labels[b][own]).auc for b, own in enumerate(counts)]
    by_example = torch.stack(each) if each else scores.new_zeros((0, scores.shape[3]), dtype=torch.float64)
    strengths = torch.tensor(null, dtype=torch.float64, device=found.auc.device)
    return Detection(found.auc, by_example, found.positives, found.matched, strengths)


def _strength(found: MatchedAuc) -> float:
    """Largest |AUC - 1/2|; 0 where a shuffle left nothing to compare."""
    return float((found.auc - 0.5).abs().max()) if found.positives else 0.0


def _permute_objects(labels: Tensor, counts: Tensor, generator: torch.Generator) -> Tensor:
    """Labels ``(B, N, N)`` of objects that changed places, within examples, among those of which a pair counts."""
    shuffled = torch.zeros_like(labels)
    for b in range(len(labels)):
        objects = (counts[b].any(0) | counts[b].any(1)).nonzero()[:, 0]
        others = objects[torch.randperm(len(objects), generator=generator).to(objects.device)]
        shuffled[b, objects[:, None], objects] = labels[b][others[:, None], others]
    return shuffled


def _permute_within(positive: Tensor, examples: Tensor, strata: Tensor, generator: torch.Generator) -> Tensor:
    """Labels ``(n,)`` of pairs that changed places within examples and strata."""
    groups = examples * (int(strata.max()) + 1) + strata
    order = groups.argsort(stable=True)
    mixed = torch.randperm(len(groups), generator=generator).to(groups.device)
    mixed = mixed[groups[mixed].argsort(stable=True)]
    shuffled = torch.empty_like(positive)
    shuffled[order] = positive[mixed]
    return shuffled
