"""Effects of three things on CoRelNet, from made-up results whose effects are known."""

from __future__ import annotations

import pytest

from dat.experiments.relational_games.experiment import RelationalGames
from dat.experiments.relational_games.factors import (
    draw_factors,
    effects_by_seed,
    factors_text,
    levels,
    means_by_seed,
    write_factors,
)
from dat.experiments.relational_games.presets import CORELNETS

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


def test_means():
    found = means_by_seed(rows(), "test")
    assert found["corelnet-softmax"] == pytest.approx([70 + 4 + 1 + 3 + 0.5, 70 + 4 + 2 + 3 + 0.5])
    assert found["corelnet-pooled-objects"] == pytest.approx([70 - 4 - 1 + 3 + 0.5, 70 - 4 - 2 + 3 + 0.5])


def test_the_picture(tmp_path):
    draw_factors(GAMES, rows(), tmp_path / "factors.png")
    assert (tmp_path / "factors.png").read_bytes()[:4] == b"\x89PNG"
    draw_factors(GAMES, rows()[:3], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
