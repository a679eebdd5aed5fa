"""Patching from a second input: which mediator carries what makes a model answer otherwise.

A model computes with one input, and one mediator of it at a time is that of another. The recovery says how far the
answer then is that of the other input.

Math: recovery = (D_patched - D) / (D_other - D),  D = z_answer - z_foil

Source: Wang et al. 2023 (arXiv 2211.00593); Zhang & Nanda 2024 (arXiv 2309.16042) on how to measure it
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from ..._layers.inputs import check_choice
from ...generation import evaluating
from ..capture import capture
from ..maps import Quantity
from ..sites import LayerChoice, choose_sites
from .effects import Effect, check_metrics, effects_from, measure_effects
from .kinds import Patch
from .predictions import METRICS, Predict, Prediction, check_place, checked_tokens, logit_differences
from .targets import TAPS, Mediator, Target

_MEDIATORS: dict[str, tuple[Mediator, ...]] = {
    "sensory": ("selection", "value"),
    "relational": ("selection", "relation", "symbol"),
}
"""Mediators of each kind of head."""


def mediator_targets(
    model: nn.Module, layers: LayerChoice = None, *, by: Literal["kind", "head"] = "kind"
) -> dict[str, Target]:
    """Every mediator of every layer, by a name such as ``"blocks.0 relational selection"``.

    Args:
        layers: as :func:`~dual_attention.model_analysis.capture.capture`; by default all.
        by: ``"kind"``: those of all heads of a kind together; ``"head"``: of each head, relations of each relation.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> list(mediator_targets(lm))
    ['blocks.0 sensory selection', 'blocks.0 sensory value', 'blocks.0 relational selection',
     'blocks.0 relational relation', 'blocks.0 relational symbol']
    """
    check_choice("by", by, ("kind", "head"))
    found: dict[str, Target] = {}
    for choice in choose_sites(model, layers):
        site = choice.site
        for mediator in _MEDIATORS[site.kind]:
            if site.tap(TAPS[mediator]) is None:
                continue
            name, layer = f"{site.layer} {site.kind} {mediator}", [site.layer]
            if by == "kind":
                heads: Any = None if mediator == "relation" else site.kind
                found[name] = Target(mediator, layers=layer, heads=heads)
                continue
            for number in range(site.n_relations if mediator == "relation" else site.n_heads):
                part: Any = {"relations": number} if mediator == "relation" else {"heads": {site.kind: number}}
                found[f"{name} {number}"] = Target(mediator, layers=layer, **part)
    return found


def predict_answers(answers: int | Tensor, foils: int | Tensor, *, place: int = -1) -> Predict:
    """A ``predict`` for one answer of a language model, and a wrong one, after one token.

    Args:
        answers, foils: token ids, one for all documents or integers ``(B,)``.
        place: of the token after which they are predicted.

    Raises:
        TypeError, ValueError: from the call, for documents of another shape, a place that is not in them, and ids of
            another shape or that are no tokens.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> predict_answers(17, 4)(lm, torch.randint(50, (2, 9))).logits.shape
    torch.Size([2, 50])
    """

    def predict(model: nn.Module, document: Tensor) -> Prediction:
        if document.dim() != 2:
            raise ValueError(f"document: expected token ids (B, N), got shape {tuple(document.shape)}")
        check_place(place, document.shape[1])
        logits = model(document).logits[:, place]
        count, size = logits.shape
        named = ("answers", answers), ("foils", foils)
        ids = (checked_tokens(name, given, count, size, logits.device) for name, given in named)
        return Prediction(logits, *(one.expand(count) for one in ids))

    return predict


def measure_patching(
    model: nn.Module,
    document: Any,
    other: Any,
    targets: Mapping[str, Target | Sequence[Target]],
    *,
    predict: Predict,
    metrics: Sequence[str] = ("recovery",),
) -> list[Effect]:
    """Effects of putting mediators of another input in the place of those of a document, one after the other.

    Nothing but the targets is that of the other input: what later layers make of it, they compute. So recoveries of
    different mediators need not add up.

    Args:
        document: token ids ``(B, N)``, or whatever ``predict`` takes.
        other: the same of other inputs, as many and of the same length; of token ids or images also one for all.
        targets: by name; each one, or several that are patched at once. See :func:`mediator_targets`.
        predict: calls the model with either; answers and foils are those that it names for the document.
        metrics: ``"recovery"``: 0 where the difference of the logits of answer and foil is that of the document, 1
            where it is that of the other input; NaN where these are equal. ``"loss"``, ``"logit_difference"`` and
            ``"kl"`` as :func:`.effects.measure_effects`.

    Returns:
        An effect for each target and metric, in their order, with a value for each document.

    Raises:
        TypeError, ValueError: as :func:`.effects.measure_effects`; also if the lengths of the inputs differ, or a
            recovery is asked for without foils.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> document, other = torch.randint(50, (2, 1, 9))
    >>> effects = measure_patching(lm, document, other, mediator_targets(lm), predict=predict_answers(17, 4))
    >>> effects[0].name, effects[0].metric, len(effects[0].values)
    ('blocks.0 sensory selection', 'recovery', 1)
    """
    check_metrics(metrics, ("recovery", *METRICS))
    listed = {name: [given] if isinstance(given, Target) else list(given) for name, given in targets.items()}
    if not listed or not all(listed.values()):
        raise ValueError("targets: expected at least one, got none")
    chosen = [target for given in listed.values() for target in given]
    names: list[Quantity] = list(dict.fromkeys(TAPS[target.mediator] for target in chosen))
    layers = list(dict.fromkeys(choice.site.layer for target in chosen for choice in target.locate(model)))
    other = _like(document, other)
    with evaluating(model):
        with capture(model, names, layers=layers) as maps:
            goal = predict(model, other)
        start = predict(model, document)
    patches = {name: [Patch(target) for target in given] for name, given in listed.items()}
    asked = list(dict.fromkeys("logit_difference" if metric == "recovery" else metric for metric in metrics))
    effects = measure_effects(model, [document], patches, metrics=asked, predict=predict, source=maps)
    values = {(effect.name, effect.metric): effect.values for effect in effects}
    if "recovery" in metrics:
        gaps = _gaps(start, goal)
        for name in listed:
            pairs = zip(values[name, "logit_difference"], gaps, strict=True)
            values[name, "recovery"] = tuple(change / gap if gap else math.nan for change, gap in pairs)
    return effects_from({(name, metric): values[name, metric] for name in listed for metric in metrics})


def _like(document: Any, other: Any) -> Any:
    """The other inputs, if these are tensors as many as documents, so that each has the answer of its document."""
    if not isinstance(document, Tensor) or not isinstance(other, Tensor):
        return other
    if other.shape[1:] != document.shape[1:] or len(other) not in (1, len(document)):
        raise ValueError(f"other: expected shape {tuple(document.shape)}, or one of those, got {tuple(other.shape)}")
    return other.expand_as(document)


def _gaps(start: Prediction, goal: Prediction) -> list[float]:
    """Gaps between the logit differences of two predictions, by the answers and foils of the first."""
    if goal.logits.shape[1:] != start.logits.shape[1:] or len(goal.logits) not in (1, len(start.logits)):
        raise ValueError(f"other: expected logits {tuple(start.logits.shape)}, got {tuple(goal.logits.shape)}")
    there = Prediction(goal.logits.expand_as(start.logits), start.targets, start.foils)
    return (logit_differences(there) - logit_differences(start)).tolist()
