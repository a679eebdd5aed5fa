"""Selectivity of an effect: how much more an intervention matters for pairs with a label than for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor, nn

from ..._base.intervals import half_width, paired_p
from ..interventions.effects import Source, measure_effects
from ..interventions.kinds import Intervention
from ..interventions.predictions import Predict, predict_next_tokens
from .matching import matched_negatives


@dataclass(frozen=True)
class Selectivity:
    """Effects at pairs with a label and at matched pairs without, over documents.

    Attributes:
        with_label, without: mean effects.
        difference: the selectivity, their difference.
        half: half of its t-interval of 95%.
        p: two-sided, of the paired t-test that it is zero.
        documents: number of pairs of effects.

    >>> selectivity([0.3, 0.5, 0.4], [0.1, 0.1, 0.2]).documents
    3
    """

    with_label: float
    without: float
    difference: float
    half: float
    p: float
    documents: int


def selectivity(with_label: Sequence[float], without: Sequence[float]) -> Selectivity:
    """Selectivity of an intervention, from its effects on two or more documents.

    Args:
        with_label: effect on each document, for instance the change in cross-entropy, of the intervention at its pairs
            with the label.
        without: the same at as many pairs without it, of the same distances and frequencies; see
            :func:`.matching.matched_negatives`.

    >>> result = selectivity([0.3, 0.5, 0.4], [0.1, 0.1, 0.2])
    >>> round(result.difference, 3)
    0.267
    """
    if len(with_label) != len(without):
        raise ValueError(f"without: expected {len(with_label)} effects, as with_label has, got {len(without)}")
    if len(with_label) < 2:
        raise ValueError(f"with_label: expected effects on at least two documents, got {len(with_label)}")
    differences = [float(a) - float(b) for a, b in zip(with_label, without, strict=True)]
    return Selectivity(
        with_label=fmean(map(float, with_label)),
        without=fmean(map(float, without)),
        difference=fmean(differences),
        half=half_width(differences),
        p=paired_p(differences),
        documents=len(differences),
    )


def measure_selectivity(
    model: nn.Module,
    documents: Tensor,
    labels: Tensor,
    mask: Tensor,
    strata: Tensor | None = None,
    *,
    intervention: Callable[[list[tuple[int, int]]], Intervention | Sequence[Intervention]],
    lengths: Tensor | None = None,
    metric: str = "loss",
    predict: Predict = predict_next_tokens,
    source: Source = None,
    seed: int = 0,
) -> Selectivity:
    """Selectivity of an intervention on pairs of a model: its effect where a label holds, less where it does not.

    For instance, with ``intervention=lambda pairs: Ablate(Target("relation", layers=1, relations=3, pairs=pairs))``:
    does the model miss relation 3 more for pairs of the label than for others like them?

    Args:
        documents: token ids ``(B, N)``.
        labels, mask: boolean ``(B, N, N)``, pairs with the label and pairs that count, receivers first. Pairs with the
            last token do not count if the model predicts it and does not see it.
        strata: integers, broadcastable to them, see ``measures.matching``.
        intervention: makes an intervention for pairs of places (receiver, sender).
        lengths: tokens of each document, integers ``(B,)``; what follows only fills it up and is not read.
        metric, predict, source: as :func:`~dual_attention.model_analysis.interventions.measure_effects`.
        seed: of the choice of negatives.

    Returns:
        The selectivity over documents that have pairs of both kinds in one stratum, two at least.

    >>> from dual_attention.model_analysis.interventions import Ablate, Target
    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> tokens, labels = torch.randint(50, (4, 9)), torch.rand(4, 9, 9) > 0.8
    >>> mask = torch.ones(4, 9, 9, dtype=torch.bool).tril(-1)
    >>> measure_selectivity(
    ...     lm, tokens, labels & mask, mask,
    ...     intervention=lambda pairs: Ablate(Target("relation", relations=0, pairs=pairs)),
    ... ).documents
    4
    """
    sizes = _lengths(documents, lengths)
    last = torch.tensor(sizes, device=mask.device) - int(predict is predict_next_tokens)
    counts = torch.arange(documents.shape[1], device=mask.device) < last[:, None]
    chosen = matched_negatives(labels, mask & counts[:, None] & counts[..., None], strata, seed=seed)
    effects: tuple[list[float], list[float]] = [], []
    for padded, size, *kinds in zip(documents, sizes, *chosen, strict=True):
        document = padded[:size]
        if not kinds[0].any():
            continue
        for values, kind in zip(effects, kinds, strict=True):
            pairs = [(i, j) for i, j in kind.nonzero().tolist()]
            options = {"metrics": (metric,), "predict": predict, "source": source}
            (effect,) = measure_effects(model, [document[None]], {"": intervention(pairs)}, **options)
            values.append(effect.mean)
    if len(effects[0]) < 2:
        raise ValueError(f"labels: expected two or more documents with matched pairs, got {len(effects[0])}")
    return selectivity(*effects)


def _lengths(documents: Tensor, lengths: Tensor | None) -> list[int]:
    """Tokens of each document, all of them by default."""
    count, longest = documents.shape
    if lengths is None:
        return [longest] * count
    found = lengths.tolist()
    if lengths.shape != (count,) or not all(isinstance(size, int) and 0 <= size <= longest for size in found):
        raise ValueError(f"lengths: expected {count} integers from 0 to {longest}, got {found}")
    return found
