"""Theorem 1: the task, its construction, the models that learn it, and the files of a grid."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dat.cli.main import main
from dat.experiments.stream import BLOCK
from dat.experiments.theorem_1.config import PRESETS, SelectionDataConfig, SelectionModelConfig
from dat.experiments.theorem_1.constructed import constructed_errors
from dat.experiments.theorem_1.experiment import Theorem1, selection_loss
from dat.experiments.theorem_1.figure import draw_theorem
from dat.experiments.theorem_1.model import SelectAndRelate, relate_to_selected
from dat.experiments.theorem_1.task import (
    Draws,
    constructed_features,
    draw,
    relations,
    turned,
    utility,
    wanted,
)
from dat.training.experiment import count_parameters

THEOREM = Theorem1()
PARAMETERS = {
    ("relational", 8): 1_536,
    ("relational", 32): 8_832,
    ("relational", 128): 84_096,
    ("standard", 8): 603,
    ("standard", 32): 4_611,
    ("standard", 128): 55_203,
    ("symmetric", 32): 6_096,
}


def test_draws_have_the_margin_and_depend_on_their_seed_only():
    x, y = draw(500, 8, 0.2, seed=1)
    best, second = utility(x, y).topk(2).values.unbind(-1)
    assert (best - second).min() >= 0.2 and x.abs().max() <= 1 and y.abs().max() <= 1
    again = draw(500, 8, 0.2, seed=1)
    assert torch.equal(x, again[0]) and torch.equal(y, again[1])
    assert not torch.equal(x, draw(500, 8, 0.2, seed=2)[0])


def test_what_is_wanted():
    x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0, 0.9], [0.5, -0.5]]])
    assert turned(x).tolist() == [[0.0, 1.0]]
    torch.testing.assert_close(wanted(x, y), torch.tensor([[0.0, 1.81, math.sin(3 + 1.8)]]))


def test_the_construction_is_exact():
    x, y = (part.double() for part in draw(50, 6, 0.0, seed=0))
    q, k, u, w = constructed_features(x, y)
    scores = (q @ k.mT)[:, 0, 0]
    difference = scores - utility(x, y)
    torch.testing.assert_close(difference, difference[:, :1].expand_as(difference))  # a term of the receiver only
    torch.testing.assert_close((u * w).sum(-1), relations(x, y))
    output, weights = relate_to_selected(constructed_features(x, y), scale=3.0)
    torch.testing.assert_close(weights, torch.softmax(3 * utility(x, y), -1))
    torch.testing.assert_close(output, (weights[..., None] * relations(x, y)).sum(1))


@pytest.mark.parametrize("margin", [0.05, 0.2])
def test_errors_of_the_construction_keep_the_bound_of_the_theorem(margin):
    found = [constructed_errors(beta, margin, n=2000) for beta in (1.0, 10.0, 100.0)]
    assert all(one.exceeded == 0 and one.mean <= one.mean_bound for one in found)
    assert found[0].mean > 3 * found[1].mean > 100 * found[2].mean
    # (n - 1) exp(-beta margin) bounds the weight of the others, and a relation differs by less than 10
    assert found[2].largest <= 7 * math.exp(-100 * margin) * 10


def test_a_stream_has_the_same_draw_at_the_same_place():
    draws = Draws(4, 0.05, seed=3)
    whole = draws.batch(torch.arange(2 * BLOCK))
    part = draws.batch(torch.tensor([BLOCK + 5, 3]))
    for all_of, some in zip(whole, part, strict=True):
        assert torch.equal(all_of[[BLOCK + 5, 3]], some)
    assert not torch.equal(whole[0][:BLOCK], whole[0][BLOCK:])


@pytest.mark.parametrize(("point", "expected"), PARAMETERS.items())
def test_sizes(point, expected):
    assert count_parameters(SelectAndRelate(SelectionModelConfig(name=point[0], width=point[1]))) == expected


@pytest.mark.parametrize("name", PRESETS)
def test_models_and_their_sharpness(name):
    torch.manual_seed(0)
    model = SelectAndRelate(PRESETS[name])
    batch = Draws(8, 0.05, seed=0).batch(torch.arange(64))
    loss, numbers = selection_loss(model, batch)
    loss.backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
    assert 0 <= numbers["selected"] <= 1 and numbers["error"] > 0
    x, y, _ = batch
    soft, sharp = (model(x, y, sharpness=factor).weights.amax(-1) for factor in (1.0, 50.0))
    assert (sharp > soft).all() and model(x, y, sharpness=1e5).weights.amax(-1).mean() > 0.99


def test_symmetric_relations_do_not_change_with_the_sides():
    model = SelectAndRelate(PRESETS["symmetric"])
    assert model.sender is model.receiver
    x, y = torch.rand(4, 2), torch.rand(4, 1, 2)  # one sender, so that nothing is selected
    torch.testing.assert_close(model(x, y).output, model(y[:, 0], x[:, None]).output)


@pytest.mark.parametrize("margin", [-0.1, 1.5, math.nan])
def test_margins_that_no_draw_has(margin):
    with pytest.raises(ValueError, match=r"data\.margin: expected a number from 0 to 1\.0"):
        SelectionDataConfig(margin=margin)


def test_one_sender_is_no_choice():
    with pytest.raises(ValueError, match=r"data\.senders: expected an integer of at least 2"):
        SelectionDataConfig(senders=1)


@pytest.mark.slow
def test_relational_attention_learns_it_and_standard_attention_does_not(tmp_path, monkeypatch):
    """As the theorem has it, at width 32: 25 seconds."""
    monkeypatch.chdir(tmp_path)
    losses = {}
    for name in ("relational", "standard"):
        words = ["--output.progress=false", "--output.tensorboard=false", "--machine.threads=1"]
        assert main(["train", "theorem-1", f"--preset={name}", "--output.name", name, *words]) == 0
        result = json.loads(Path("runs", name, "result.json").read_text())
        losses[name] = result["loss"]["test"]
        if name == "relational":
            assert result["selected"]["test"] > 0.97 and losses[name] < 0.02
    assert losses["standard"] > 10 * losses["relational"]


@pytest.mark.slow
def test_a_grid_leaves_a_table_and_a_figure(tmp_path, monkeypatch):
    """The command runs every cell in processes of its own, and draws."""
    monkeypatch.chdir(tmp_path)
    small = ["--widths=[8,16]", "--seeds=2", "--loop.steps=3", "--data.n_val=8", "--data.n_test=50", "--workers=2"]
    assert main(["reproduce", "theorem-1", "--out=grid", "--quiet", *small]) == 0
    table = Path("grid/results.csv").read_text().splitlines()
    assert len(table) == 1 + 2 * 2 * 3 and "error_99" in table[0] and "error_x0.125" in table[0]
    assert "| relational attention |" in Path("grid/comparison.md").read_text()
    assert Path("grid/figures/theorem-1.png").stat().st_size > 20_000
    assert Path("grid/figures/constructed.csv").read_text().startswith("margin,sharpness,mean,")
    assert main(["plot", "theorem-1", "grid", "--out=again"]) == 0


def test_the_default_grid():
    grid = THEOREM.Grid()
    assert (grid.widths, grid.models, grid.seeds) == ((8, 16, 32, 64, 128), tuple(PRESETS), 5)
    with pytest.raises(ValueError, match="models: expected names among relational, symmetric, standard, got 'x'"):
        replace(grid, models=("x",))


def test_a_figure_of_other_attentions_only(tmp_path, recwarn):
    row = {"width": 8, "seed": 0, "error": 0.5, "error_x1": 0.5}
    draw_theorem(THEOREM, [{**row, "model": name} for name in ("standard", "another")], tmp_path / "found.png")
    assert (tmp_path / "found.png").exists() and not recwarn
