"""Mediators of copies and of agreement, and the announced words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.measures import Selectivity
from studies.looking_inside import mediators
from studies.looking_inside.language_report import mediator, verdict
from studies.looking_inside.language_results import AtPairs, LanguageFound
from studies.looking_inside.mediators import ALL, MEDIATORS, Mediation, agreement, repeated_text

from .planted import passages
from .test_language import planted_model


def test_repeated_text():
    found = repeated_text(planted_model(), passages(None))
    shares = {one.mediator: one.share for one in found.restored}
    assert (found.units, found.right) == (8, None)
    assert set(found.p) == {"relation - selection", "relation - symbol", "selection - symbol"}
    assert all(one.low <= one.high for one in found.restored)
    assert set(shares) == {*MEDIATORS, ALL, mediators.SENSORY}
    assert shares["relation"] not in (0.0, shares["selection"], shares["symbol"])  # they are patched apart


class Words(ByteTokenizer):
    """Words are tokens."""

    def encode(self, text):
        return [sum(map(ord, word)) % 250 for word in text.split()]


def test_agreement_of_a_model_that_knows_nothing():
    found = agreement(planted_model(), Words())
    assert found is not None and found.units == len(mediators.NOUNS)
    assert found.clean == pytest.approx(-found.corrupt)  # the corrupt prompt is the other clean one
    assert found.right is not None and 0.2 < found.right < 0.8 and not found.readable
    assert agreement(planted_model(), ByteTokenizer()) is None  # no word is a token


def test_patching_everything_everywhere_restores_the_clean_text(monkeypatch):
    """With all heads patched at all pairs, the second half hears what it heard in the clean text."""
    every = [(i, j) for i in range(2 * mediators.COPIED - 1) for j in range(i + 1)]
    of = mediators.targets_at

    def all_heads(_pairs):
        own = of(every)
        return {**own, ALL: [*own[ALL], mediators.Target("head", heads={"sensory": None})]}

    capture = mediators.capture
    monkeypatch.setattr(mediators, "targets_at", all_heads)
    monkeypatch.setattr(mediators, "capture", lambda model, names: capture(model, [*names, "head_output"]))
    found = repeated_text(planted_model(), passages(None))
    shares = {one.mediator: one.share for one in found.restored}
    assert shares[ALL] == pytest.approx(1, abs=1e-6)
    assert shares["symbol"] < 0.9


def mediation(p, differences, readable=True):
    names = ("relation - selection", "relation - symbol", "selection - symbol")
    return Mediation(
        "repeated text",
        9,
        -3.0,
        -4.0,
        None,
        readable,
        (),
        dict(zip(names, p, strict=True)),
        dict(zip(names, differences, strict=True)),
    )


def found(*, d=(0.01, 0.001), s=(0.02, 0.001), beyond=(0.01, 0.001), copies=None):
    """A model with D, S of both labels, and D less that of noise: mean and p."""

    def selectivity(one):
        return Selectivity(0.1, 0.05, one[0], 0.004, one[1], 20)

    effect = AtPairs("all relations", *map(selectivity, (s, s, d, d)))
    own = () if copies is None else (copies,)
    return LanguageFound("run", 0, 4.0, 30, 300, {}, (), (effect,), selectivity(beyond), None, (), own)


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ([found()] * 3, "semantic rather than syntactic"),
        (
            [found(beyond=(0.01, 0.2))] * 3,
            "semantic rather than syntactic, of the place, not of what relations say there",
        ),
        (
            [found(beyond=(-0.01, 0.001))] * 3,
            "semantic rather than syntactic, of the place, not of what relations say there",
        ),
        ([found(d=(-0.01, 0.001), beyond=(-0.01, 0.001))] * 3, "syntactic rather than semantic"),
        ([found(d=(0.01, 0.04))] * 3, "undecided"),  # Holm
        ([found(s=(0.02, 0.2))] * 3, "undecided"),  # D, but nothing that is selective
        ([found(s=(-0.02, 0.001))] * 3, "undecided"),
        ([*[found()] * 2, found(d=(0.01, 0.3))], "undecided"),
        ([*[found()] * 2, found(d=(-0.01, 0.001))], "it differs from model to model"),
    ],
)
def test_the_announced_words(models, words):
    assert verdict(models) == words


@pytest.mark.parametrize(
    ("copies", "words"),
    [
        ([mediation((0.01, 0.01, 0.9), (0.3, 0.4, 0.1))] * 3, "relation carries it, in 3 models"),
        ([mediation((0.01, 0.9, 0.01), (-0.3, 0.0, 0.3))] * 2, "selection carries it, in 2 models"),
        ([mediation((0.9, 0.01, 0.01), (0.0, -0.4, -0.4))] * 2, "symbol carries it, in 2 models"),
        ([mediation((0.01, 0.06, 0.9), (0.3, 0.4, 0.1))] * 3, "no mediator carries it in all of the 3"),
        ([mediation((0.01, 0.01, 0.9), (0.3, -0.4, 0.1))] * 3, "no mediator carries it in all of the 3"),
        ([mediation((0.01, 0.01, 0.9), (0.3, 0.4, 0.1), readable=False)] * 3, "not read: 0 of 3 models"),
    ],
)
def test_words_about_mediators(copies, words):
    assert words in mediator([replace(found(), mediation=(one,)) for one in copies], "repeated text")
