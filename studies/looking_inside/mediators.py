"""Mediators of what a language model copies, and of agreement: patched from clean into corrupt inputs.

Shapes: B sequences, N tokens of each, U documents or nouns, which are what intervals are over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor, nn

from dual_attention.generation import evaluating
from dual_attention.generation.tokenizer import Tokenizer
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Patch, Target, intervene
from dual_attention.model_analysis.interventions.predictions import (
    NOT_SCORED,
    Prediction,
    document_losses,
    logit_differences,
)
from studies._lib.inference import sign_flip_p

from .passages import Passages

MEDIATORS = ("relation", "selection", "symbol")
ALL, SENSORY = "all three", "sensory selection"
COPIED = 48
"""Tokens of a text that is repeated."""
SCORED_FROM = 4
"""Number, from 0, of the first of these whose prediction counts in the repetition."""
LEAST_GAIN, LEAST_RIGHT = 0.1, 0.65
"""Nats a token that a repetition gains, and share of right verbs, from which a model is read."""
SAMPLES = 10_000

VERBS = (("is", "are"), ("has", "have"), ("was", "were"))
AFTER = ("of this country", "of the world", "in this section", "for the future", "in the past", "of the present")
NOUNS = (
    *("nation", "state", "law", "power", "value", "object", "function", "method", "worker", "right", "interest"),
    *("idea", "party", "country", "word", "name", "class", "form", "act", "force", "line", "thing", "group", "year"),
    *("result", "point", "system", "member", "condition", "argument", "module", "file", "anarchist", "union"),
)
PLURALS = {"party": "parties", "country": "countries", "class": "classes"}


@dataclass(frozen=True)
class Restored:
    """Share of what was lost in the corrupt inputs that patching mediators brings back, with its 95 % interval."""

    mediator: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Mediation:
    """Shares of the mediators in what patching brings from clean into corrupt inputs.

    Attributes:
        task: ``"repeated text"`` (log-probabilities a token) or ``"agreement"`` (differences of logits).
        units: documents or nouns.
        clean, corrupt: mean measure of both.
        right: share of prompts with the larger logit for the right verb; None of repeated text.
        readable: whether the model does it well enough.
        restored: by each mediator and by several.
        p: of the difference of two mediators, ``"relation - selection"``, by sign flips over units.
        differences: mean differences of their measures, in the same order.
    """

    task: str
    units: int
    clean: float
    corrupt: float
    right: float | None
    readable: bool
    restored: tuple[Restored, ...]
    p: Mapping[str, float]
    differences: Mapping[str, float]


def targets_at(pairs: Sequence[tuple[int, int]]) -> dict[str, list[Target]]:
    """Every mediator of the relational heads of all layers at some pairs, all three, and the sensory selection."""
    own = {
        "relation": Target("relation", pairs=pairs),
        "selection": Target("selection", heads={"relational": None}, pairs=pairs),
        "symbol": Target("symbol", pairs=pairs),
    }
    sensory = Target("selection", heads={"sensory": None}, pairs=pairs)
    return {**{name: [own[name]] for name in MEDIATORS}, ALL: [own[name] for name in MEDIATORS], SENSORY: [sensory]}


def repeated_text(model: nn.Module, passages: Passages, *, batch: int = 16) -> Mediation:
    """Mediation of the gain of a text that is there for the second time."""
    first, other = passages.tokens[:, :COPIED], passages.tokens[passages.partners][:, :COPIED]
    clean, corrupt = torch.cat([first, first], 1), torch.cat([other, first], 1)
    pairs = [(i, j) for i in range(COPIED, 2 * COPIED - 1) for j in (i - COPIED, i - COPIED + 1)]
    targets = targets_at(pairs)
    found: dict[str, list[Tensor]] = {name: [] for name in ("clean", "corrupt", *targets)}
    with evaluating(model), torch.no_grad():
        for one, two in zip(clean.split(batch), corrupt.split(batch), strict=True):
            with capture(model, ["relations", "weights", "symbol_values"]) as maps:
                found["clean"].append(_log_probability(model, one))
            found["corrupt"].append(_log_probability(model, two))
            for name, own in targets.items():
                with intervene(model, [Patch(target) for target in own], source=maps):
                    found[name].append(_log_probability(model, two))
    values = {name: _means(torch.cat(parts), passages.documents) for name, parts in found.items()}
    gain = float((values["clean"] - values["corrupt"]).mean())
    return _mediation("repeated text", values, None, gain >= LEAST_GAIN)


def _log_probability(model: nn.Module, tokens: Tensor) -> Tensor:
    """Mean log-probability of the repeated tokens that count, ``(B,)``."""
    targets = tokens[:, 1:].clone()
    targets[:, : COPIED + SCORED_FROM - 1] = NOT_SCORED
    return -document_losses(Prediction(model(tokens[:, :-1]).logits, targets)).double()


def agreement(model: nn.Module, tokenizer: Tokenizer) -> Mediation | None:
    """Mediation of the number of a noun to the verb; None if too few nouns and verbs are single tokens."""
    nouns = [pair for pair in map(_numbers, NOUNS) if _single(tokenizer, pair)]
    verbs = [pair for pair in VERBS if _single(tokenizer, pair)]
    if len(nouns) < 2 or not verbs:
        return None
    found: dict[str, list[Tensor]] = {}
    with evaluating(model), torch.no_grad():
        for after in AFTER:
            tokens, pair = _prompts(tokenizer, nouns, after)
            swapped = tokens.view(-1, 2, tokens.shape[1]).flip(1).reshape(tokens.shape)
            for verb in verbs:
                answers = torch.tensor([tokenizer.encode(f" {word}")[0] for word in verb])
                right = answers.repeat(len(nouns))
                wrong = answers.flip(0).repeat(len(nouns))
                with capture(model, ["relations", "weights", "symbol_values"]) as maps:
                    _keep(found, "clean", _verb_logits(model, tokens, right, wrong))
                _keep(found, "corrupt", _verb_logits(model, swapped, right, wrong))
                for name, own in targets_at([pair]).items():
                    with intervene(model, [Patch(target) for target in own], source=maps):
                        _keep(found, name, _verb_logits(model, swapped, right, wrong))
    each = {name: torch.stack(parts, 1) for name, parts in found.items()}  # (2 nouns, prompts)
    share = float((each["clean"] > 0).double().mean())
    values = {name: one.view(len(nouns), -1).mean(1) for name, one in each.items()}
    return _mediation("agreement", values, share, share >= LEAST_RIGHT)


def _numbers(noun: str) -> tuple[str, str]:
    return noun, PLURALS.get(noun, f"{noun}s")


def _single(tokenizer: Tokenizer, words: Sequence[str]) -> bool:
    return all(len(tokenizer.encode(f" {word}")) == 1 for word in words)


def _prompts(tokenizer: Tokenizer, nouns: Sequence[tuple[str, str]], after: str) -> tuple[Tensor, tuple[int, int]]:
    """Prompts ``(2 nouns, N)``, singular and plural in turn; and the pair of the last token and the noun."""
    place = len(tokenizer.encode("The"))
    rows = [tokenizer.encode(f"The {noun} {after}") for pair in nouns for noun in pair]
    return torch.tensor(rows), (len(rows[0]) - 1, place)


def _verb_logits(model: nn.Module, tokens: Tensor, right: Tensor, wrong: Tensor) -> Tensor:
    """Logit of the right verb less that of the wrong one, ``(B,)``."""
    logits = model(tokens).logits[:, -1:]
    return logit_differences(Prediction(logits, right[:, None], wrong[:, None])).double()


def _keep(found: dict[str, list[Tensor]], name: str, values: Tensor) -> None:
    found.setdefault(name, []).append(values)


def _means(values: Tensor, groups: Tensor) -> Tensor:
    """Mean of each group, in the order of their numbers."""
    return torch.stack([values[groups == group].mean() for group in groups.unique()])


def _mediation(task: str, values: Mapping[str, Tensor], right: float | None, readable: bool) -> Mediation:
    clean, corrupt = values["clean"], values["corrupt"]
    lost = clean - corrupt
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(lost), (SAMPLES, len(lost)), generator=generator)
    quantiles = torch.tensor([0.025, 0.975], dtype=torch.float64)
    restored = []
    for name in (*MEDIATORS, ALL, SENSORY):
        gained = values[name] - corrupt
        low, high = (gained[drawn].mean(1) / lost[drawn].mean(1)).quantile(quantiles).tolist()
        restored.append(Restored(name, float(gained.mean() / lost.mean()), low, high))
    apart = {f"{a} - {b}": values[a] - values[b] for a, b in combinations(MEDIATORS, 2)}
    return Mediation(
        task=task,
        units=len(lost),
        clean=float(clean.mean()),
        corrupt=float(corrupt.mean()),
        right=right,
        readable=readable,
        restored=tuple(restored),
        p={name: sign_flip_p(one.tolist()) for name, one in apart.items()},
        differences={name: float(one.mean()) for name, one in apart.items()},
    )
