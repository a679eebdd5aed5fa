"""Patching: mediators of a second text put in the place of those of the first, one at a time.

Shapes: N tokens of each text, V vocabulary.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dual_attention.generation import evaluating
from dual_attention.model_analysis.interventions import Target, measure_patching, mediator_targets, predict_answers
from dual_attention.model_analysis.sites import choose_sites
from dual_attention.model_analysis.views.tokens import token_labels

from .requests import Json, choice_of, integer_of, text_of
from .session import Session

BY = ("kind", "head")
"""Mediators of all heads of a kind together, or of each head and relation."""

SHOWN = 8
"""Next tokens of each text that answers are chosen from."""


def patching(session: Session, request: Mapping[str, Any]) -> Iterator[Json]:
    """Recovery of a second text's answer by each mediator of each layer.

    Args:
        request: ``text``, and ``other`` of as many tokens; ``place`` of the token after which answers are predicted, by
            default the last; ``by``, one of :data:`BY`; ids of ``answer`` and ``foil``, by default the tokens whose
            probabilities the second text raises and lowers most, or the two likeliest where no token differs so far.

    Yields:
        At first labels of both texts, ``tokens`` and ``others``; ``place``; ``by``; ``answer`` and ``foil`` by ``id``
        and ``token``; next ``candidates`` likewise, with their probabilities after the text, ``here``, and after the
        other, ``there``; ``differences`` of the logits of answer and foil in both; and the ``count`` of cells to come.
        Then for each layer ``cells`` with ``layer``, ``kind`` (empty for both), ``mediator`` (``head`` for all of them
        at once), ``number`` of the head or relation (None for all), ``recovery`` (None if the differences are equal),
        ``change`` of the logit difference, and divergence ``kl`` in nats.

    Raises:
        ValueError: for texts that the model cannot read, of different lengths or the same, and a token out of range.
    """
    ids, others = _texts(session, request)
    known = session.tokenizer.vocab_size
    place = integer_of(request, "place", 0, len(ids) - 1, len(ids) - 1)
    by = choice_of(request, "by", BY)
    x, y = session.tensor(ids), session.tensor(others)
    with session.reserved() as model, evaluating(model):
        here, there = (model(tokens).logits[0, place, :known].float() for tokens in (x, y))
        layers = list(dict.fromkeys(choice.site.layer for choice in choose_sites(model, session.layers)))
        targets = {layer: _targets(model, layer, by) for layer in layers}
    alike = ids[: place + 1] == others[: place + 1]  # so are the predictions, to rounding
    if alike:
        there = here
    p, q = here.softmax(-1), there.softmax(-1)
    likeliest = here.topk(2).indices if alike else [(q - p).argmax(), (p - q).argmax()]
    answer, foil = (
        integer_of(request, name, 0, known - 1, int(token))
        for name, token in zip(("answer", "foil"), likeliest, strict=True)
    )
    if answer == foil:
        raise ValueError("The answer and the token that it is compared with need to be different.")
    shown = [one for logits in (there, here) for one in logits.topk(min(SHOWN, known)).indices.tolist()]

    yield {
        "tokens": token_labels(session.tokenizer, ids),
        "others": token_labels(session.tokenizer, others),
        "place": place,
        "by": by,
        "answer": session.named(answer),
        "foil": session.named(foil),
        "candidates": [
            {**session.named(one), "here": float(p[one]), "there": float(q[one])}
            for one in dict.fromkeys([answer, foil, *shown])
        ],
        "differences": [float(one[answer] - one[foil]) for one in (here, there)],
        "count": sum(map(len, targets.values())),
    }
    predict = predict_answers(answer, foil, place=place)
    for own in targets.values():
        with session.reserved() as model:
            effects = measure_patching(
                model, x, y, own, predict=predict, metrics=("recovery", "logit_difference", "kl")
            )
        values = {(effect.name, effect.metric): effect.values[0] for effect in effects}
        cells = []
        for name, target in own.items():
            recovery, change, kl = (values[name, metric] for metric in ("recovery", "logit_difference", "kl"))
            known = None if alike or not math.isfinite(recovery) else recovery
            cells.append({**_about(target), "recovery": known, "change": change, "kl": kl})
        yield {"cells": cells}


def patched(session: Session, request: Mapping[str, Any]) -> Json:
    """All that :func:`patching` yields, in one object as a page keeps it: the first item, and all ``cells``."""
    begin, *layers = patching(session, request)
    return {**begin, "cells": [cell for layer in layers for cell in layer["cells"]]}


def _texts(session: Session, request: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """The tokens of both."""
    ids, others = (session.tokens(text_of(request, name)) for name in ("text", "other"))
    if len(ids) != len(others):
        raise ValueError(f"The second text needs {len(ids)} tokens, as the first has; it has {len(others)}.")
    if ids == others:
        raise ValueError("The second text has the tokens of the first; it needs others.")
    return ids, others


def _targets(model: Any, layer: str, by: Any) -> dict[str, Target]:
    """Mediators of a layer, and its heads."""
    found = mediator_targets(model, layer, by=by)
    if by == "kind":
        return {**found, "heads": Target("head", layers=[layer])}
    for choice in choose_sites(model, layer):
        kind = choice.site.kind
        if choice.site.tap("head_output") is not None:
            for number in choice.heads:
                found[f"{kind} head {number}"] = Target("head", layers=[layer], heads={kind: number})
    return found


def _about(target: Target) -> Json:
    """Layer, kind, mediator and number of a target."""
    heads: Any = target.heads
    (layer,) = target.layers  # pyright: ignore[reportGeneralTypeIssues]
    kind, number = heads or "", target.relations
    if target.mediator == "relation":
        kind = "relational"
    elif isinstance(heads, Mapping):
        ((kind, number),) = heads.items()
    return {"layer": layer, "kind": kind, "mediator": target.mediator, "number": number}
