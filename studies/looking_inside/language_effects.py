"""Effects of interventions on language models at pairs of words with a label, by document, and at all pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor, nn

from dual_attention.model_analysis.interventions import Target
from dual_attention.model_analysis.measures import Selectivity, selectivity
from dual_attention.model_analysis.measures.intervals import half_width

from .language_results import ALL, LABELS, NOISE, AtPairs, Everywhere
from .matched_pairs import MatchedPairs
from .pair_effects import Change, Changes, Mediators, Totals, random_directions, total_effects
from .passages import Passages


def changes(mediators: Mediators, directions: int) -> dict[str, list[tuple[Target, Change]]]:
    """Interventions at pairs: all relations, noise instead, selection, each relation, random directions of a layer."""
    layers = [(number, site.layer) for number, site in enumerate(mediators.sites)]
    found: dict[str, list[tuple[Target, Change]]] = {
        ALL: [(Target("relation", layers=name), mediators.resampled(layer)) for layer, name in layers],
        NOISE: [(Target("relation", layers=name), mediators.noise(layer)) for layer, name in layers],
        "selection": [
            (Target("selection", layers=name, heads="relational"), mediators.selection(layer)) for layer, name in layers
        ],
    }
    for layer, name in layers:
        target, count = Target("relation", layers=name), mediators.sites[layer].n_relations
        axes = torch.eye(count)
        for number, axis in enumerate(axes):
            found[f"relation {layer}.{number}"] = [(target, mediators.along(layer, axis))]
        usual = math.sqrt(fmean(mediators.size(layer, axis) ** 2 for axis in axes))
        for number, direction in enumerate(random_directions(count, directions, layer)):
            scale = usual / mediators.size(layer, direction)
            found[f"direction {layer}.{number}"] = [(target, mediators.along(layer, direction, scale))]
    return found


ByDocument = dict[int, tuple[float, float]]
"""Effects at pairs with a label and at those without, by the number of the document, in nats a pair."""


def at_labelled_pairs(
    model: nn.Module, passages: Passages, drawn: Mapping[str, MatchedPairs], chosen: Changes, least: int
) -> tuple[list[AtPairs], Selectivity]:
    """Effects of changes at the pairs of both labels; and D of all relations, less that of noise."""
    totals = {label: both_kinds(model, passages, drawn[label], chosen) for label in LABELS}
    found, by_what = [], {}
    for what in chosen:
        values = {
            metric: [
                by_document([kind[what] for kind in totals[label]], metric, drawn[label], passages.documents, least)
                for label in LABELS
            ]
            for metric in ("kl", "loss")
        }
        semantic, syntactic = (_selectivity(one) for one in values["kl"])
        by_what[what] = _both_labels(*values["kl"])
        difference, loss = _selectivity(by_what[what]), _selectivity(_both_labels(*values["loss"]))
        found.append(AtPairs(what, semantic, syntactic, difference, loss))
    apart = {what: [a - b for a, b in by_what[what].values()] for what in (ALL, NOISE)}
    return found, selectivity(apart[ALL], apart[NOISE])


def both_kinds(
    model: nn.Module, passages: Passages, pairs: MatchedPairs, chosen: Changes
) -> tuple[dict[str, Totals], dict[str, Totals]]:
    """Effects of changes at pairs with a label, and at those without."""
    with_label, without = (
        total_effects(model, passages, pairs.places(labelled=labelled), chosen) for labelled in (True, False)
    )
    return with_label, without


def by_document(
    totals: Sequence[Totals], metric: str, pairs: MatchedPairs, documents: Tensor, least: int
) -> ByDocument:
    """Effects a pair of each document that has at least so many pairs.

    Args:
        totals: at pairs with the label, and at those without.
    """
    found = {}
    for document in documents.unique().tolist():
        own = documents == document
        count = int(pairs.count[own].sum())
        if count >= least:
            with_label, without = (float(getattr(one, metric)[own].sum()) / count for one in totals)
            found[document] = with_label, without
    return found


def _both_labels(semantic: ByDocument, syntactic: ByDocument) -> ByDocument:
    """Selectivity for each of two labels, of documents that have both."""
    both = [one for one in semantic if one in syntactic]
    return {one: (semantic[one][0] - semantic[one][1], syntactic[one][0] - syntactic[one][1]) for one in both}


def _selectivity(values: ByDocument) -> Selectivity:
    return selectivity([one for one, _ in values.values()], [other for _, other in values.values()])


def synonyms(
    model: nn.Module, passages: Passages, mediators: Mediators, pairs: MatchedPairs, documents: int
) -> Selectivity | None:
    """Selectivity of all relations for pairs with a common synset; None with too few documents."""
    if len(passages.documents[pairs.count > 0].unique()) < documents:
        return None
    chosen = {ALL: changes(mediators, 0)[ALL]}
    totals = [kind[ALL] for kind in both_kinds(model, passages, pairs, chosen)]
    return _selectivity(by_document(totals, "kl", pairs, passages.documents, 1))


def everywhere(
    model: nn.Module, passages: Passages, mediators: Mediators, *, most: int, directions: int
) -> list[Everywhere]:
    """Change of the loss when a relation, or a direction that changes as much, is resampled at all pairs."""
    size, n = passages.strata.shape[:2]
    pairs = torch.zeros(size, n, n, dtype=torch.bool)
    pairs[:most] = True
    found = []
    for layer, site in enumerate(mediators.sites):
        target, count = Target("relation", layers=site.layer), site.n_relations
        drawn = random_directions(count, directions, layer)
        for number, axis in enumerate(torch.eye(count)):
            scales = [mediators.size(layer, axis) / mediators.size(layer, one) for one in drawn]
            along = [mediators.along(layer, *one) for one in zip(drawn, scales, strict=True)]
            chosen = {"relation": [(target, mediators.along(layer, axis))]}
            chosen |= {str(place): [(target, change)] for place, change in enumerate(along)}
            effects = total_effects(model, passages, pairs, chosen)
            losses = {what: (one.loss[:most] / n).tolist() for what, one in effects.items()}
            own = losses.pop("relation")
            means = tuple(map(fmean, losses.values()))
            found.append(Everywhere(f"{layer}.{number}", fmean(own), half_width(own), means))
    return found
