"""Detection of labels of words by the relations of a language model, and by the controls.

Shapes: B passages, N tokens that are read, S scores of each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dual_attention.generation import evaluating
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.measures import (
    attention_scores,
    compare,
    cosine_scores,
    random_relations,
    untrained_twin,
)
from dual_attention.model_analysis.sites import Site, choose_sites

from .entering import what_enters
from .passages import Passages

BATCH = 32
Scores = Callable[[Tensor], Tensor]
"""Scores of all pairs, ``(B, N, N, S)``, for tokens ``(B, N)``."""


@dataclass(frozen=True)
class LabelRead:
    """Detection of a label by the best of some scores.

    Attributes:
        label, scores: names.
        aucs: of each score, on all documents.
        best: number of the best one on every second document.
        held_out: its AUC on the others, below 1/2 if it is on the other side of 1/2 there.
        p: of the best one on all documents, against shuffled words, the maximum over the scores corrected.
        shuffled: AUC that the best of so many scores reaches in 95 % of the shuffles, at most.
        positives: pairs with the label that were compared.
        matched: their share among those with it.
    """

    label: str
    scores: str
    aucs: tuple[float, ...]
    best: int
    held_out: float
    p: float
    shuffled: float
    positives: int
    matched: float


def read_labels_of(
    model: nn.Module, passages: Passages, labels: Sequence[str], *, permutations: int
) -> list[LabelRead]:
    """Detection of each label by the relations first, then by every control."""
    found = []
    chosen_on = passages.documents % 2 == 0
    for name, scores in scores_of(model):
        with evaluating(model), torch.no_grad():
            values = torch.cat([scores(tokens[:, :-1]) for tokens in passages.tokens.split(BATCH)])
        for label in labels:
            options = {"permutations": permutations, "chosen_on": chosen_on}
            (one,) = compare({name: values}, passages.labels[label], passages.masks[label], passages.strata, **options)
            whole = one.detection
            aucs, p = tuple(whole.auc.tolist()), float(whole.p.min())
            shuffled = 0.5 + whole.shuffled()
            found.append(LabelRead(label, name, aucs, one.score, one.auc, p, shuffled, whole.positives, whole.matched))
    return found


def scores_of(model: nn.Module) -> Iterator[tuple[str, Scores]]:
    """Kinds of scores by name: the relations of all layers, and the controls."""
    sites = [choice.site for choice in choose_sites(model) if choice.site.n_relations]
    yield "relations", lambda tokens: _relations(model, tokens)
    twin = untrained_twin(model)
    yield "untrained relations", lambda tokens: _relations(twin, tokens)
    yield "random projections", lambda tokens: _projections(model, sites, tokens)
    for kind in ("relational", "sensory"):
        if any(choice.site.kind == kind for choice in choose_sites(model)):
            yield f"{kind} attention", lambda tokens, kind=kind: _weights(model, kind, tokens)
    yield "cosines", lambda tokens: _cosines(model, sites, tokens)


def _relations(model: nn.Module, tokens: Tensor) -> Tensor:
    with capture(model, "relations", heads="relational") as maps:
        model(tokens)
    return torch.cat([one.get("relations") for one in maps.heads("relational") if one.relations is not None], -1)


def _weights(model: nn.Module, kind: str, tokens: Tensor) -> Tensor:
    with capture(model, "weights", heads=kind) as maps:
        model(tokens)
    return torch.cat([attention_scores(one.get("weights")) for one in maps.heads()], -1)


def _entering(model: nn.Module, sites: Sequence[Site], tokens: Tensor) -> list[Tensor]:
    with what_enters(sites) as entered:
        model(tokens)
    return [entered[site.layer] for site in sites]


def _projections(model: nn.Module, sites: Sequence[Site], tokens: Tensor) -> Tensor:
    """As many random relations of what enters each layer as it has, of the same rank."""
    found = []
    for seed, (site, x) in enumerate(zip(sites, _entering(model, sites, tokens), strict=True)):
        heads = site.module
        options = {"symmetric": heads.symmetric_rels, "rel_score": heads.rel_score, "seed": seed}
        found.append(random_relations(x, heads.n_relations, heads.rel_proj_dim, **options))
    return torch.cat(found, -1)


def _cosines(model: nn.Module, sites: Sequence[Site], tokens: Tensor) -> Tensor:
    return torch.cat([cosine_scores(x) for x in _entering(model, sites, tokens)], -1)
