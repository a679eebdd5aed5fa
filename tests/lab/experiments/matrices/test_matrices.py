"""Progressive matrices as an experiment: models, runs, grids and refusals."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dat.cli.main import main
from dat.experiments.matrices.config import MatricesConfig, MatricesDataConfig
from dat.experiments.matrices.experiment import ProgressiveMatrices
from dat.experiments.matrices.model import PRESETS
from dat.sweeps.grid import cells
from dat.training.experiment import count_parameters
from tests.support.processes import fork_workers

MATRICES = ProgressiveMatrices()
EASY = MatricesDataConfig(
    rules=("constant",),
    attributes=3,
    values=5,
    ruled=1,
    noise=0,
    more_noise=0,
    answers=2,
    held_out_values=0,
    held_out_rules=0,
    n_val=1,
    n_test=1000,
)
QUIET = ["--output.progress=false", "--output.tensorboard=false", "--machine.threads=1"]
SMALL = ["--data.n_val=8", "--data.n_test=12", "--loop.steps=2", "--loop.batch_size=4"]


def prepared(**data):
    return MATRICES.prepare(MatricesConfig(data=MatricesDataConfig(n_val=40, n_test=40, **data)), cache=Path()).problem


@pytest.mark.parametrize("form", ["codes", "numbers", "drawings"])
def test_sets_are_drawn_apart_and_alike_in_every_run(form):
    first, again = prepared(form=form), prepared(form=form)
    assert {*first.evaluation} == {"val", "test", "values", "pairs", "noise"}
    batches = [problem.train.batch(torch.arange(256)) for problem in (first, again)]
    assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))
    trained = {tuple(row) for row in batches[0][0].flatten(1).tolist()}
    for examples in first.evaluation.values():
        assert not trained & {tuple(row) for row in examples.tensors[0].flatten(1).tolist()}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("form", ["codes", "drawings"])
def test_scores_follow_the_order_of_answers(name, form):
    """Answers in another order have the same scores; panels of the context in another order have others."""
    data = MatricesDataConfig(form=form, values=6, held_out_values=2)
    config = MatricesConfig(data=data, model=PRESETS[name])
    panels, *_ = config.draw("train", 3, 0)
    model = config.model.build(data.panel_shape, seed=0).eval()
    scores, order = model(panels), torch.tensor([3, 1, 0, 2, 7, 6, 5, 4])
    turned = torch.cat((panels[:, :8], panels[:, 8:][:, order]), 1)
    torch.testing.assert_close(model(turned), scores[:, order])
    assert scores.shape == (3, 8)
    other = torch.cat((panels[:, :8].flip(1), panels[:, 8:]), 1)
    assert not torch.allclose(model(other), scores, atol=1e-6)
    assert count_parameters(config.model.empty(data.panel_shape)) == count_parameters(model)


def test_hidden_contexts_are_all_alike():
    for form in ("codes", "numbers", "drawings"):
        panels, labels, _ = MatricesConfig(data=MatricesDataConfig(form=form, blind=True)).draw("train", 20, 0)
        open_eyed = MatricesConfig(data=MatricesDataConfig(form=form)).draw("train", 20, 0)
        assert not panels[:, :8].any() and torch.equal(panels[:, 8:], open_eyed[0][:, 8:])
        assert torch.equal(labels, open_eyed[1])


def trained(data):
    """Accuracy after 150 steps."""
    problem = MATRICES.prepare(MatricesConfig(data=data, model=PRESETS["corelnet"]), cache=Path()).problem
    optimizer = torch.optim.Adam(problem.model.parameters(), lr=3e-3)
    for step in range(150):
        loss, _ = problem.loss(problem.model, problem.train.batch(torch.arange(32 * step, 32 * step + 32)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(problem.loss(problem.model, problem.evaluation["test"].batch(torch.arange(1000)))[1]["accuracy"])


def test_a_model_learns_a_small_case_and_nothing_without_the_context():
    assert trained(EASY) > 0.8
    assert abs(trained(replace(EASY, blind=True)) - 0.5) < 4 * (0.25 / 1000) ** 0.5


def test_a_model_is_trained_and_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--preset=corelnet", "--data.form=drawings", "--loop.eval_every=1", *SMALL, *QUIET]
    assert main(["train", "matrices", "--output.name=run", *words]) == 0
    result = json.loads(Path("runs/run/result.json").read_text())
    assert {*result["accuracy"]} == {*result["rule"]} == {"val", "test", "values", "pairs", "noise"}
    capsys.readouterr()
    assert main(["evaluate", "runs/run", "--json", "--machine.threads=1"]) == 0
    assert json.loads(capsys.readouterr().out)["noise"]["accuracy"] == pytest.approx(result["accuracy"]["noise"])
    assert main(["info", "runs/run"]) == 0
    assert f"{result['parameters']:,}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--data.held_out_values=12"],
            "data.held_out_values: expected 0 to 6, so that 4 of 10 are trained on",
        ),
        (["--data.values=13"], "data.values: expected an integer from 4 to 12, got 13"),
        (["--data.held_out_rules=4"], "data.held_out_rules: expected 0 to 3, so that one is trained on, got 4"),
        (["--data.rules=[constant,constant]"], "data.rules: expected different rules, at least one"),
        (["--data.ruled=5"], "data.more_noise: expected 0 to 1, the attributes without a rule, got 3"),
        (["--data.answers=6"], "data.answers: expected a power of two from 2 to 8, of 3 attributes with a rule, got 6"),
        (["--data.form=drawings", "--data.attributes=7"], "data.attributes: expected at most 6 in drawings, got 7"),
        (["--data.form=drawings", "--data.width=19"], "data.width: expected at least 20 pixels for 10 values, got 19"),
        (["--data.rules=[arithmetic,progression]"], "one that can be asked in the set values with codes"),
        (["--model.n_heads_sa=3"], "model.d_model: expected a multiple of the 5 heads, got 64"),
        (["--preset=scl", "--model.d_model=60"], "d_model: expected a multiple of n_groups=8, got 60"),
    ],
)
def test_wrong_settings(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(MatricesConfig, "draw", lambda *_: pytest.fail("drawn"))
    assert main(["train", "matrices", *words, *QUIET]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("grid", MATRICES.scales.values(), ids=MATRICES.scales)
def test_grids_that_come_with_it_can_be_run(grid):
    configs = [grid.config(cell) for cell in cells(MATRICES, grid)]
    assert {config.seed for config in configs} == {*range(grid.seeds)}
    assert {config.data.form for config in configs} == {*grid.forms}


def test_the_tiny_grid_smaller(tmp_path, monkeypatch):
    """As ``dat reproduce matrices --scale tiny`` does it, one after another."""
    fork_workers(monkeypatch)
    monkeypatch.chdir(tmp_path)
    words = ["--data.n_val=8", "--data.n_test=8", "--steps=[1]", "--loop.batch_size=4", "--models=[dat,corelnet]"]
    assert main(["reproduce", "matrices", "--scale=tiny", "--out=grid", "--quiet", "--workers=1", *words]) == 0
    with open("grid/results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 and all(0 <= float(row["pairs"]) <= 100 and row["test_rule"] for row in rows)
    assert "rules never trained on with these attributes" in Path("grid/comparison.md").read_text()


def test_a_picture_is_drawn(tmp_path, capsys):
    picture = tmp_path / "matrices.png"
    assert main(["data", "matrices", f"--out={picture}"]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
