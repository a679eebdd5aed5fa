"""Switches: heads, relations and symbols of a language model changed by hand, and what that does to its predictions.

Shapes: N tokens of the text, V vocabulary, C controls.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dual_attention.functional import cross_entropy
from dual_attention.generation import evaluating
from dual_attention.model_analysis.interventions import Ablate, Intervention, Rotated, Scale, Target, intervene
from dual_attention.model_analysis.views.tokens import token_labels

from .requests import Json, Malformed, integer_of, number_of, text_of
from .session import Session

CONTROLS = 5
"""Random rotations, each of which takes a forward pass."""

SHOWN = 12
"""Next tokens that are compared."""

MOST_FACTOR = 100.0

CHANGES = ("zero", "mean", "scale")
"""Effects of a switch: put zero, or the mean over the text, or multiply."""


class Switch(NamedTuple):
    """A head, a relation, or the symbols of a head, that is changed."""

    mediator: str
    layer: str
    kind: str
    number: int

    @property
    def part(self) -> str:
        """Its name within its layer, such as ``relation 3``."""
        names = {"head": f"{self.kind} head", "relation": "relation", "symbol": "symbols of head"}
        return f"{names[self.mediator]} {self.number}"


def switches_of(given: Any) -> list[Switch]:
    """Switches in a request: objects with the fields of :class:`Switch`."""
    if not isinstance(given, list) or not given:
        raise ValueError("switches: expected at least one head, relation or symbol to be switched, got none")
    found = []
    for one in given:
        if not isinstance(one, Mapping) or set(one) != set(Switch._fields):
            raise Malformed(f"A switch needs {', '.join(Switch._fields)}.")
        switch = Switch(**one)
        if not all(isinstance(part, str) for part in switch[:3]) or type(switch.number) is not int:
            raise Malformed("A switch names its mediator, layer and kind, and has a number.")
        found.append(switch)
    return found


def interventions_of(switches: Iterable[Switch], change: str = "zero", factor: float = 0.0) -> list[Intervention]:
    """The interventions of switches, one for those of a kind in a layer.

    Raises:
        ValueError: for another change; from the call, for a mediator, layer or number that the model does not have.
    """
    if change not in CHANGES:
        raise ValueError(f"change: expected one of {', '.join(CHANGES)}, got {change!r}")
    groups: dict[tuple[str, str, str], list[int]] = {}
    for mediator, layer, kind, number in switches:
        groups.setdefault((mediator, layer, kind), []).append(number)
    found: list[Intervention] = []
    for (mediator, layer, kind), numbers in groups.items():
        if mediator not in ("head", "relation", "symbol"):
            raise ValueError(f"mediator: expected head, relation or symbol, got {mediator!r}")
        chosen: dict[str, Any] = {"relations": numbers} if mediator == "relation" else {"heads": {kind: numbers}}
        target = Target(mediator, layers=[layer], **chosen)
        found.append(Scale(target, factor) if change == "scale" else Ablate(target, change))
    return found


def change_in_words(change: str, factor: float, over: str) -> str:
    """One of :data:`CHANGES`, with what a mean is over."""
    return {"zero": "zero", "mean": f"mean over the {over}", "scale": f"times {factor:g}"}[change]


def requested_change(request: Mapping[str, Any]) -> tuple[str, float]:
    """The ``change`` and its ``factor`` in a request."""
    return str(request.get("change", "zero")), number_of(request, "factor", -MOST_FACTOR, MOST_FACTOR, 0.0)


def controls_of(interventions: Sequence[Intervention]) -> list[list[Intervention]]:
    """The same changes turned into random directions, several times."""
    return [
        [Rotated(one, seed=draw * len(interventions) + place) for place, one in enumerate(interventions)]
        for draw in range(CONTROLS)
    ]


class Predicted(NamedTuple):
    """Predictions of the tokens after each of a text.

    Attributes:
        log_probs: natural logarithms of probabilities, ``(N, V)``, float32.
        losses: cross-entropy of each next token in nats, ``(N - 1,)``.
    """

    log_probs: Tensor
    losses: Tensor


def predicted(model: nn.Module, tokens: Tensor, interventions: Sequence[Intervention] = ()) -> Predicted:
    """Predictions of a language model for tokens ``(1, N)``, with interventions."""
    with evaluating(model), intervene(model, interventions):
        log_probs = model(tokens).logits[0].float().log_softmax(-1)
    return Predicted(log_probs, cross_entropy(log_probs[:-1], tokens[0, 1:], reduction="none"))


def _divergence(before: Predicted, after: Predicted) -> Tensor:
    """Kullback-Leibler divergence of the prediction after each token in nats, ``(N,)``."""
    p, q = before.log_probs, after.log_probs
    return (p.exp() * (p - q)).sum(-1)


def switch_effects(session: Session, request: Mapping[str, Any]) -> Json:
    """Effects of switches on the predictions for a text, beside those of random rotations of the same change.

    Args:
        request: ``text``; ``switches``, see :func:`switches_of`; ``change``, one of :data:`CHANGES`; ``factor`` of a
            scaling; and ``place`` of the token after which predictions are compared, by default the last. With
            ``beside``, the model beside takes the place of the switched one, and there are no controls.

    Returns:
        ``switched``: the switches and their change in words, or the model beside; ``tokens``: labels; ``place``;
        ``losses`` of each token but the first, as lists ``before``, ``after`` and ``control``, the mean of the
        controls; ``loss``, the means of those, with ``controls``, that of each control;
        ``divergence`` of ``after`` and of ``controls`` from before, means over places; ``next``: tokens with their
        probabilities before, after, and with the controls.

    Raises:
        ValueError: for a text that the model cannot read, and what is wrong with a switch.
    """
    ids = session.tokens(text_of(request))
    other = session.beside if request.get("beside") else None
    switches = [] if other else switches_of(request.get("switches"))
    change, factor = requested_change(request)
    interventions = interventions_of(switches, change, factor)
    place = integer_of(request, "place", 0, len(ids) - 1, len(ids) - 1)
    tokens = session.tensor(ids)
    with session.reserved() as model:
        before = predicted(model, tokens)
        controls = [predicted(model, tokens, control) for control in controls_of(interventions) if not other]
        after = before if other else predicted(model, tokens, interventions)
    if other:
        with other.reserved() as model:
            after = predicted(model, other.tensor(ids))
    control = torch.stack([one.losses for one in controls]).mean(0).tolist() if controls else [None] * (len(ids) - 1)
    names = ", ".join(f"{one.part} of {one.layer}" for one in switches)
    return {
        "switched": other.title if other else f"{names}: {change_in_words(change, factor, 'text')}",
        "tokens": token_labels(session.tokenizer, ids),
        "place": place,
        "losses": {"before": before.losses.tolist(), "after": after.losses.tolist(), "control": control},
        "loss": {
            "before": _mean(before.losses),
            "after": _mean(after.losses),
            "controls": [_mean(one.losses) for one in controls],
        },
        "divergence": {
            "after": _mean(_divergence(before, after)),
            "controls": [_mean(_divergence(before, one)) for one in controls],
        },
        "next": _next_tokens(session, place, before, after, controls),
    }


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None


def _next_tokens(
    session: Session, place: int, before: Predicted, after: Predicted, controls: Sequence[Predicted]
) -> list[Json]:
    """The likeliest tokens after a place, before or after the change, the likeliest before it first."""
    known = session.tokenizer.vocab_size
    p, q = (one.log_probs[place, :known].exp() for one in (before, after))
    control = torch.stack([one.log_probs[place, :known].exp() for one in controls or [before]])
    chosen = torch.maximum(p, q).topk(min(SHOWN, known)).indices
    chosen = chosen[p[chosen].argsort(descending=True, stable=True)].tolist()
    return [
        {
            "token": token_labels(session.tokenizer, [token])[0],
            "before": float(p[token]),
            "after": float(q[token]),
            "control": float(control[:, token].mean()) if controls else None,
            "controls": [float(control[:, token].min()), float(control[:, token].max())],
        }
        for token in chosen
    ]
