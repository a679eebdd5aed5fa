"""Costs of every preset and of many options: those that closed formulas gave, which are kept as facts."""

import json
from pathlib import Path
from typing import Any

import pytest

from dat.estimate import estimate
from dat.experiments.relational_games.model import empty_games_model
from dat.experiments.relational_games.presets import PRESETS, SLOT_MODELS
from dual_attention import LANGUAGE_PRESETS
from tests.support.depth import of_all_layers

FACTS = json.loads(Path(__file__).with_name("closed_formulas.json").read_text(encoding="utf-8"))
GAMES = "games:"
DEEP = 20
"""Layers of a language model whose run takes seconds."""
IN_FULL = "T-353M"
"""The deep model that is run with all its layers; costs of the others follow from those of one layer and of two."""


def cases() -> list[Any]:
    found = []
    for number, case in enumerate(FACTS["cases"]):
        model, arguments = case["model"], case["arguments"]
        options = [f"{key}={value}" for key, value in arguments.items()]
        if isinstance(model, dict):
            options += [str(model[key]) for key in ("symbol_retrieval", "ra_type", "pos_enc_type") if key in model]
            model = model["model"]
        quick = number % 3 == 0 or isinstance(case["model"], dict)  # a third of the presets
        marks = [] if quick and model != IN_FULL else [pytest.mark.slow]
        found.append(pytest.param(case, id=", ".join([model, *options]), marks=marks))
    return found


def figures(model: Any, arguments: dict[str, Any]) -> list[int]:
    found = estimate(model, device="cpu", **arguments)
    return [
        found.parameters,
        found.trainable_parameters,
        found.forward_flops,
        found.backward_flops,
        found.least_step_flops,
        found.cache_bytes(),
        found.activation_bytes + found.cast_bytes,
    ]


@pytest.mark.parametrize("case", cases())
def test_costs_are_those_of_the_closed_formulas(case: dict[str, Any]):
    """Every further layer of a model costs the same.

    Since the formulas were written, a model builds its mask once, projects symmetric relations once, merges heads that
    were rotated without a copy, and repeats neither keys nor symbols for the heads that share them; weights that are
    built keep the mask itself and its opposite, not that twice. A loss multiplies by the output layer once less, and
    keeps the gradients that it made.
    """
    model, arguments = case["model"], case["arguments"]
    config = LANGUAGE_PRESETS.get(model) if isinstance(model, str) else None
    if isinstance(model, str) and model.startswith(GAMES):
        model = empty_games_model(PRESETS[model.removeprefix(GAMES)], "same")
    if config is None or config.n_layers < DEEP or model == IN_FULL:
        found = figures(model, arguments)
    else:
        found = of_all_layers(config, lambda shallow: figures(shallow, arguments))
    since = [case.get("since", {}).get(name, 0) for name in FACTS["figures"]]
    wanted = [figure + difference for figure, difference in zip(case["figures"], since, strict=True)]
    assert dict(zip(FACTS["figures"], found, strict=True)) == dict(zip(FACTS["figures"], wanted, strict=True))


def test_every_preset_of_their_day_is_among_them():
    names = {case["model"] for case in FACTS["cases"] if isinstance(case["model"], str)}
    presets = {*LANGUAGE_PRESETS, *(GAMES + name for name in PRESETS)}
    assert names <= presets
    later = {"dat-0+2-sym-squared-distance", "dat-0+2-sym-symbolic-frozen", *SLOT_MODELS}
    later |= {"transformer-128-h2-matched", "rca-0+2-matched"}
    assert presets - names <= {GAMES + name for name in later}
