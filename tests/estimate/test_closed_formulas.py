"""Costs of every preset and of many options: those that closed formulas gave, which are kept as facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dual_attention import LANGUAGE_PRESETS
from dual_attention.estimate import estimate
from dual_attention.experiments.relational_games.model import empty_model
from dual_attention.experiments.relational_games.presets import PRESETS

FACTS = json.loads(Path(__file__).with_name("closed_formulas.json").read_text(encoding="utf-8"))
GAMES = "games:"


def cases() -> list[Any]:
    """Deep models, whose runs take seconds, are for the slow tests, but for one of them."""
    found = []
    for case in FACTS["cases"]:
        model, arguments = case["model"], case["arguments"]
        name = model if isinstance(model, str) else model["model"]
        deep = isinstance(model, str) and model in LANGUAGE_PRESETS and "tiny" not in model and model != "T-353M"
        marks = [pytest.mark.slow] if deep else []
        options = [f"{key}={value}" for key, value in arguments.items()]
        if isinstance(model, dict):
            options += [str(model[key]) for key in ("symbol_retrieval", "ra_type", "pos_enc_type") if key in model]
        found.append(pytest.param(case, id=", ".join([name, *options]), marks=marks))
    return found


@pytest.mark.parametrize("case", cases())
def test_costs_are_those_of_the_closed_formulas(case: dict[str, Any]):
    model: Any = case["model"]
    if isinstance(model, str) and model.startswith(GAMES):
        model = empty_model(PRESETS[model.removeprefix(GAMES)], "same")
    found = estimate(model, device="cpu", **case["arguments"])
    # Since the formulas were written, a model builds its mask once and hands it on.
    kept = found.activation_bytes + found.cast_bytes - case.get("mask_bytes", 0)
    figures = (
        found.parameters,
        found.trainable_parameters,
        found.forward_flops,
        found.backward_flops,
        found.least_step_flops,
        found.cache_bytes(),
        kept,
    )
    assert dict(zip(FACTS["figures"], figures, strict=True)) == dict(
        zip(FACTS["figures"], case["figures"], strict=True)
    )


def test_every_preset_is_among_them():
    names = {case["model"] for case in FACTS["cases"] if isinstance(case["model"], str)}
    assert names == {*LANGUAGE_PRESETS, *(GAMES + name for name in PRESETS)}
