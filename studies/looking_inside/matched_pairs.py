"""Pairs with a label, each with one like it without, in equal numbers at each distance for several labels.

Shapes: B passages, N words, Q pairs with a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dual_attention.model_analysis.measures import combine_strata, matched_negatives

from .passages import Passages


@dataclass(frozen=True)
class MatchedPairs:
    """Pairs with a label, and as many without, of the same passages and strata.

    Attributes:
        positives, negatives: passage, receiver and sender of each, int64 ``(Q, 3)``; those in a row are alike.
        size: B and N.
    """

    positives: Tensor
    negatives: Tensor
    size: tuple[int, int]

    def of(self, which: Tensor) -> MatchedPairs:
        """Some of them, by number."""
        return MatchedPairs(self.positives[which], self.negatives[which], self.size)

    @property
    def count(self) -> Tensor:
        """Pairs with the label in each passage, int64 ``(B,)``."""
        return torch.bincount(self.positives[:, 0], minlength=self.size[0])

    def places(self, *, labelled: bool) -> Tensor:
        """The pairs with the label, or those without, boolean ``(B, N, N)``."""
        found = torch.zeros(self.size[0], self.size[1], self.size[1], dtype=torch.bool)
        chosen = self.positives if labelled else self.negatives
        found[chosen[:, 0], chosen[:, 1], chosen[:, 2]] = True
        return found


def match_pairs(passages: Passages, label: str, *, seed: int = 0) -> MatchedPairs:
    """Match pairs with a label to others of the same passage, distance and frequencies; those without a match drop out.

    Args:
        seed: of the draw where there are several.
    """
    strata = passages.strata
    chosen = matched_negatives(passages.labels[label], passages.masks[label], strata, seed=seed)
    examples = torch.arange(len(strata))[:, None, None]
    groups = combine_strata(examples, strata)
    found = []
    for part in chosen:  # equally many of each passage and stratum, so that a sorted list of each lines up
        places = part.nonzero()
        found.append(places[groups[part].argsort(stable=True)])
    return MatchedPairs(found[0], found[1], (len(strata), strata.shape[1]))


def balance(matched: Mapping[str, MatchedPairs], distances: Tensor, *, seed: int = 0) -> dict[str, MatchedPairs]:
    """Draw from the pairs of several labels, so that all have as many at each distance.

    Args:
        distances: stratum of each pair's distance, int64 ``(N, N)``.
        seed: of the draw, without replacement.
    """
    generator = torch.Generator().manual_seed(seed)
    kinds = int(distances.max()) + 1
    of = {name: distances[one.positives[:, 1], one.positives[:, 2]] for name, one in matched.items()}
    fewest = torch.stack([torch.bincount(found, minlength=kinds) for found in of.values()]).amin(0)
    drawn = {}
    for name, one in matched.items():
        kept = []
        for kind in range(kinds):
            own = (of[name] == kind).nonzero().flatten()
            kept.append(own[torch.randperm(len(own), generator=generator)[: int(fewest[kind])]])
        drawn[name] = one.of(torch.cat(kept).sort().values)
    return drawn
