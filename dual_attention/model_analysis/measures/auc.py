"""Area under the ROC curve, of all pairs or among pairs that are alike in other respects.

Shapes: n pairs, S scores of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...functional.masks import require_boolean
from ._checks import check_floating_tensors, check_strata


def area_under_curve(scores: Tensor, positive: Tensor) -> float:
    """Probability that a positive's score exceeds a negative's, ties counting half: (n,), (n,) bool -> 0..1.

    >>> area_under_curve(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([False, True, True]))
    1.0
    """
    n_positive = int(positive.sum())
    if n_positive in (0, positive.numel()):
        raise ValueError(f"positive: expected both kinds, got {n_positive} positive of {positive.numel()}")
    return float(RankedScores(scores[:, None]).auc(positive).auc)


@dataclass(frozen=True)
class MatchedAuc:
    """AUC of scores for one label.

    Attributes:
        auc: ``(S,)`` float64; NaN if nothing could be compared.
        positives: number of positives that were compared.
        matched: their share among all positives; the others have no negative in their stratum.

    >>> RankedScores(torch.tensor([[1.0], [2.0], [3.0], [4.0]])).auc(torch.tensor([False, False, True, True]))
    MatchedAuc(auc=tensor([1.], dtype=torch.float64), positives=2, matched=1.0)
    """

    auc: Tensor
    positives: int
    matched: float


class RankedScores:
    """Scores of pairs, ranked once within strata, so that the AUC of many labels costs little.

    The AUC is that of positives against the negatives *of their own stratum*, averaged with each positive counting
    alike (the covariate-adjusted AUC of Janes & Pepe 2009). What is constant within a stratum, for instance the
    distance of the two objects, can therefore not raise it.

    Args:
        scores: ``(n, S)``, finite.
        strata: integers ``(n,)``; by default all pairs are of one stratum.

    >>> ranked = RankedScores(torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    >>> ranked.auc(torch.tensor([False, True, False, True])).auc
    tensor([0.7500], dtype=torch.float64)
    """

    def __init__(self, scores: Tensor, strata: Tensor | None = None) -> None:
        check_floating_tensors(scores=scores)
        if scores.dim() != 2:
            raise ValueError(f"scores: expected shape (pairs, scores), got {tuple(scores.shape)}")
        if not scores.isfinite().all():
            raise ValueError("scores: expected finite values, got some that are not")
        strata = check_strata(strata, (len(scores),), scores.device)
        _, self.strata, self.sizes = strata.unique(return_inverse=True, return_counts=True)
        columns = [_ranks_within(column, self.strata, self.sizes) for column in scores.unbind(1)]
        self.ranks = torch.stack(columns, 1) if columns else scores.double()

    def auc(self, positive: Tensor) -> MatchedAuc:
        """AUC of each score for the pairs that are ``positive``, boolean ``(n,)``."""
        require_boolean("positive", positive)
        if positive.shape != self.strata.shape:
            raise ValueError(f"positive: expected shape {tuple(self.strata.shape)}, got {tuple(positive.shape)}")
        where = self.strata[positive]
        count = torch.bincount(where, minlength=len(self.sizes)).double()
        negatives = self.sizes - count
        compared = (count > 0) & (negatives > 0)
        total = torch.zeros(len(self.sizes), self.ranks.shape[1], dtype=torch.float64, device=self.ranks.device)
        total.index_add_(0, where, self.ranks[positive])
        # Math: U = Σ ranks of positives - p(p + 1)/2, AUC of a stratum = U / (p q), weighted by p
        exceeded = (total - (count * (count + 1) / 2)[:, None]) / negatives[:, None]
        used = int(count[compared].sum())
        auc = exceeded[compared].sum(0) / used if used else torch.full_like(total.sum(0), torch.nan)
        return MatchedAuc(auc, used, used / max(1, int(positive.sum())))


def _ranks_within(scores: Tensor, strata: Tensor, sizes: Tensor) -> Tensor:
    """Ranks from 1 within strata, ties sharing the mean of theirs: ``(n,)`` float64."""
    _, value = scores.unique(return_inverse=True)
    _, run, lengths = (strata * (len(scores) + 1) + value).unique(return_inverse=True, return_counts=True)
    before = (sizes.cumsum(0) - sizes)[strata]  # pairs in strata before
    return (lengths.cumsum(0) - (lengths - 1).double() / 2)[run] - before
