"""Effects of three things on CoRelNet, from made-up results whose effects are known."""

from __future__ import annotations

import pytest

from dual_attention.experiments.relational_games.experiment import RelationalGames
from dual_attention.experiments.relational_games.factors import effects_by_seed, factors_text, levels, write_factors
from dual_attention.experiments.relational_games.presets import CORELNETS

GAMES = RelationalGames()


def rows(seeds=(0, 1)):
    made = []
    for seed in seeds:
        for task in ("same", "occurs"):
            for model in CORELNETS:
                softmax, order, removed = levels(model)
                accuracy = 70 + 4 * softmax + (1 + seed) * order + 3 * softmax * removed + (task == "same")
                made.append({"task": task, "model": model, "n_train": 500, "seed": seed, "test": accuracy})
    return made


def test_each_of_the_eight_has_other_factors():
    assert len({levels(model) for model in CORELNETS}) == 8
    assert levels("corelnet-softmax") == (1, 1, 1) and levels("corelnet-pooled-objects") == (-1, -1, -1)


def test_effects():
    found = effects_by_seed(rows(), "test")
    assert found["softmax",] == pytest.approx([8, 8]) and found["order kept",] == pytest.approx([2, 4])
    assert found["objects removed",] == pytest.approx([0, 0])
    assert found["softmax", "objects removed"] == pytest.approx([6, 6])
    assert found["softmax", "order kept"] == pytest.approx([0, 0])


def test_seeds_that_lack_a_model_are_left_out():
    assert len(effects_by_seed(rows()[:-1], "test")["softmax",]) == 1
    assert factors_text(GAMES, rows()[:-1]) == "" == factors_text(GAMES, [])


def test_the_table(tmp_path):
    write_factors(GAMES, rows(), tmp_path / "factors.md")
    text = (tmp_path / "factors.md").read_text()
    assert "| order kept | +3.0 ± 12.7 | 0.2 | 0.82 |" in text and "| softmax | +8.0 ± 0.0 | 0 | 0 |" in text
    write_factors(GAMES, rows()[:3], tmp_path / "none.md")
    assert not (tmp_path / "none.md").exists()
