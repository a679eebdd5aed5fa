"""Passages of random tokens, with labels that are planted or drawn at random."""

from __future__ import annotations

import torch

from dual_attention.model_analysis.measures import distance_strata
from studies.looking_inside.passages import DISTANCES, SEMANTIC, SYNONYMS, SYNTACTIC, Passages


def passages(planted: str | None, length: int = 56) -> Passages:
    """Random tokens; one label holds for equal tokens if it is planted, all others for pairs drawn at random."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(14, (16, length), generator=generator)
    n = length - 1
    apart = (torch.ones(n, n).tril(-1) > 0) & (distance_strata(n) < DISTANCES[-1])
    equal = tokens[:, :-1, None] == tokens[:, None, :-1]
    labels = {
        name: apart & (equal if name == planted else torch.rand(16, n, n, generator=generator) < 1 / 14)
        for name in (SEMANTIC, SYNTACTIC, SYNONYMS)
    }
    distances = distance_strata(n, DISTANCES)
    masks = dict.fromkeys(labels, apart.expand(16, n, n))
    return Passages(tokens, torch.arange(16) % 8, labels, masks, distances, distances.expand(16, n, n))
