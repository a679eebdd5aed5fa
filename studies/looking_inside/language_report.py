"""Tables and reading of what was found in language models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dual_attention.model_analysis.measures import Selectivity
from dual_attention.model_analysis.measures.intervals import holm

from .language_results import ALL, LABELS, NOISE, AtPairs, LanguageFound
from .mediators import MEDIATORS

ALPHA = 0.05
AHEAD = 0.01
"""AUC by which relations are to be farther from 1/2 than a control, to be better."""
FEWEST = 2
"""Models from which a mediator is named, or in which opposite results make a disagreement."""


def holm_of_models(models: Sequence[LanguageFound]) -> list[float]:
    """p of D of all relations in each model, after Holm among the models."""
    return holm([found.effect(ALL).difference.p for found in models])


def verdict(models: Sequence[LanguageFound]) -> str:
    """The announced words for what was found in all models."""
    p = holm_of_models(models)
    effects = [found.effect(ALL) for found in models]
    signs = {1 if one.difference.difference > 0 else -1 for one, own in zip(effects, p, strict=True) if own < ALPHA}
    sure = all(own < ALPHA for own in p)
    for sign, label in ((1, "semantic"), (-1, "syntactic")):
        own = [getattr(one, label) for one in effects]
        if sure and signs == {sign} and all(one.difference > 0 and one.p < ALPHA for one in own):
            other = LABELS[1 - LABELS.index(label)]
            beyond = [found.beyond_noise for found in models]
            says = all(sign * one.difference > 0 and one.p < ALPHA for one in beyond)
            return f"{label} rather than {other}" + ("" if says else ", of the place, not of what relations say there")
    return "it differs from model to model" if len(signs) > 1 else "undecided"


def detects(models: Sequence[LanguageFound], label: str) -> tuple[bool, bool]:
    """Whether relations detect a label in all models, and do so better than every control."""
    detected = better = True
    for found in models:
        own, *others = [one for one in found.read if one.label == label]
        detected &= own.p < ALPHA
        farthest = max(abs(one.held_out - 0.5) for one in others)
        better &= abs(own.held_out - 0.5) >= farthest + AHEAD
    return detected, detected and better


def mediator(models: Sequence[LanguageFound], task: str) -> str:
    """The announced words for what carries a task."""
    readable = [one for found in models for one in found.mediation if one.task == task and one.readable]
    if len(readable) < FEWEST:
        return f"not read: {len(readable)} of {len(models)} models do it well enough"
    for name in MEDIATORS:
        wins = True
        for one in readable:
            own = [pair for pair in one.p if name in pair.split(" - ")]
            signs = [1 if pair.startswith(f"{name} - ") else -1 for pair in own]
            p = holm([one.p[pair] for pair in own])
            wins &= all(s * one.differences[pair] > 0 for s, pair in zip(signs, own, strict=True)) and max(p) < ALPHA
        if wins:
            return f"{name} carries it, in {len(readable)} models"
    return f"no mediator carries it in all of the {len(readable)} models that are read"


def report(models: Sequence[LanguageFound]) -> str:
    """Tables in Markdown, with the verdicts by the announced rules."""
    lines = ["# Relations of language models", ""]
    lines += [f"By the announced rule, of {len(models)} models: **{verdict(models)}**.", "", *_models(models), ""]
    lines += ["## Reading", ""]
    for label in LABELS:
        one, better = detects(models, label)
        words = "detect it, better than the controls" if better else "detect it, no better than the controls"
        lines += [f"{label.capitalize()} label: relations {words if one else 'do not detect it in all models'}.", ""]
    lines += [*_reading(models), "", "## Interventions at pairs, nats a pair", "", *_at_pairs(models), ""]
    lines += ["## Single relations and directions, D", "", *_single(models), ""]
    lines += ["## Resampled at all pairs, nats a token", "", *_everywhere(models), "", "## Mediators", ""]
    for task in dict.fromkeys(one.task for found in models for one in found.mediation):
        lines += [f"{task.capitalize()}: {mediator(models, task)}.", ""]
    return "\n".join([*lines, *_mediation(models)]) + "\n"


def _models(models: Sequence[LanguageFound]) -> Iterator[str]:
    yield "| seed | loss | documents | passages | pairs with the label: there are, matched, drawn |"
    yield "|---|---|---|---|---|"
    for found in models:
        pairs = "; ".join(f"{label} {', '.join(f'{n:,}' for n in counts)}" for label, counts in found.pairs.items())
        yield f"| {found.seed} | {found.loss:.3f} | {found.documents} | {found.passages} | {pairs} |"


def _reading(models: Sequence[LanguageFound]) -> Iterator[str]:
    yield "| seed | label | scores | number | AUC, all documents | best, on the others | p | shuffled, 95 % |"
    yield "|---|---|---|---|---|---|---|---|"
    for found in models:
        for one in found.read:
            span = f"{min(one.aucs):.3f} to {max(one.aucs):.3f}"
            held = f"{one.held_out:.3f}"
            name = f"| {found.seed} | {one.label} | {one.scores} | {len(one.aucs)}"
            yield f"{name} | {span} | {held} | {one.p:.3f} | {one.shuffled:.3f} |"


def _at_pairs(models: Sequence[LanguageFound]) -> Iterator[str]:
    yield "| seed | changed | semantic: at pairs, S | syntactic: at pairs, S | D | p | documents | D of the loss |"
    yield "|---|---|---|---|---|---|---|---|"
    for found in models:
        for what in (ALL, NOISE, "selection"):
            one = found.effect(what)
            kinds = " | ".join(f"{own.with_label:.2e}, {_interval(own)}" for own in (one.semantic, one.syntactic))
            d = one.difference
            yield (
                f"| {found.seed} | {what} | {kinds} | {_interval(d)} | {d.p:.2g} | {d.documents} | "
                f"{_interval(one.loss)} |"
            )
        beyond = found.beyond_noise
        yield f"| {found.seed} | all less noise | | | {_interval(beyond)} | {beyond.p:.2g} | {beyond.documents} | |"
        if found.synonyms is not None:
            own = found.synonyms
            what = f"| {found.seed} | all relations, common synset"
            yield f"{what} | {own.with_label:.2e}, {_interval(own)} (p {own.p:.2g}) | | | | {own.documents} | |"
    corrected = ", ".join(f"{p:.2g}" for p in holm_of_models(models))
    yield ""
    yield f"p of D of all relations after Holm among the models: {corrected}."


def _interval(one: Selectivity) -> str:
    return f"{one.difference:+.2e} ± {one.half:.1e}"


def of_kind(found: LanguageFound, kind: str) -> list[AtPairs]:
    """Effects of single relations, or of random directions."""
    return [one for one in found.at_pairs if one.what.startswith(f"{kind} ")]


def _single(models: Sequence[LanguageFound]) -> Iterator[str]:
    yield "p < 0.05 after Holm among the relations of a model."
    yield ""
    yield "| seed | relations with D > 0 | with D < 0 | D of all relations | of random directions |"
    yield "|---|---|---|---|---|"
    for found in models:
        relations, directions = (of_kind(found, kind) for kind in ("relation", "direction"))
        p = holm([one.difference.p for one in relations])
        semantic, syntactic = (_named(relations, p, sign) for sign in (1, -1))
        spans = [sorted(one.difference.difference for one in kind) for kind in (relations, directions)]
        shown = " | ".join(f"{span[0]:+.2e} to {span[-1]:+.2e}" if span else "–" for span in spans)
        yield f"| {found.seed} | {semantic} | {syntactic} | {shown} |"


def _named(relations: Sequence[AtPairs], p: Sequence[float], sign: int) -> str:
    """Relations whose D has a sign, for sure."""
    sure = [one for one, own in zip(relations, p, strict=True) if own < ALPHA and sign * one.difference.difference > 0]
    return ", ".join(one.what.removeprefix("relation ") for one in sure) or "none"


def _everywhere(models: Sequence[LanguageFound]) -> Iterator[str]:
    yield "| seed | relation | change of the loss | random directions | outside |"
    yield "|---|---|---|---|---|"
    for found in models:
        for one in found.everywhere:
            span = f"{min(one.directions):+.4f} to {max(one.directions):+.4f}"
            outside = "yes" if one.is_outside else ""
            yield f"| {found.seed} | {one.relation} | {one.mean:+.4f} ± {one.half:.4f} | {span} | {outside} |"


def _mediation(models: Sequence[LanguageFound]) -> Iterator[str]:
    yield "| seed | task | clean | corrupt | right verb | restored by | share, 95 % |"
    yield "|---|---|---|---|---|---|---|"
    for found in models:
        for one in found.mediation:
            right = "–" if one.right is None else f"{one.right:.0%}"
            head = f"| {found.seed} | {one.task} | {one.clean:.3f} | {one.corrupt:.3f} | {right}"
            for part in one.restored:
                yield f"{head} | {part.mediator} | {part.share:.2f} ({part.low:.2f} to {part.high:.2f}) |"
