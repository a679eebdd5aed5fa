"""Kinship: models, runs, grids and refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from dat.cli.main import main
from dat.data.kinship import ANSWERS, FIRST_NAME, FIRST_WORD
from dat.experiments.kinship.config import PRESETS, KinshipConfig, KinshipDataConfig
from dat.experiments.kinship.experiment import Kinship, story_text
from dat.sweeps.grid import cells
from tests.support.processes import fork_workers

KINSHIP = Kinship()
QUIET = ["--output.progress=false", "--output.tensorboard=false", "--machine.threads=1"]
SMALL = ["--data.n_val=8", "--data.n_test=12", "--loop.steps=2", "--loop.batch_size=4", "--model.n_layers=1"]


def prepared(model="T", **data):
    config = KinshipConfig(data=KinshipDataConfig(n_val=64, n_test=64, **data), model=PRESETS[model])
    return KINSHIP.prepare(config, cache=Path()).problem


def test_models_are_as_large():
    sizes = {}
    for name, keys in PRESETS.items():
        model = keys.empty(KinshipConfig().vocab_size)
        sizes[name] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert max(sizes.values()) < 1.01 * min(sizes.values()), sizes


def test_sets_hold_what_training_has_not():
    problem, again = prepared(), prepared()
    assert {*problem.evaluation} == {"val", "names", "noise", *map(str, range(3, 11))}
    batches = [one.train.batch(torch.arange(256)) for one in (problem, again)]
    assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))
    tokens = {name: examples.tensors[0] for name, examples in problem.evaluation.items()}
    new = {*range(FIRST_NAME + 40, FIRST_NAME + 60)}
    names = {name: {*of_set[of_set >= FIRST_NAME].tolist()} for name, of_set in tokens.items()}
    assert names["names"] <= new and not any(found & new for name, found in names.items() if name != "names")
    assert not {*batches[0][0][batches[0][0] >= FIRST_NAME].tolist()} & new
    facts = {name: (of_set != 0).sum(1) // 3 - 1 for name, of_set in tokens.items()}
    assert {*facts["10"].tolist()} == {11} and {*facts["noise"].tolist()} == {8, 9, 10}
    trained = {tuple(row) for row in batches[0][0].tolist()}
    assert not trained & {tuple(row) for row in tokens["4"].tolist()}


def test_hidden_relations_are_all_one():
    shown, hidden = prepared(), prepared(blind=True)
    for name in ("10", "val"):
        (a, targets, *_), (b, same, *_) = (one.evaluation[name].tensors for one in (shown, hidden))
        words = (a >= FIRST_WORD) & (a < FIRST_NAME)
        assert torch.equal(targets, same) and (b[words] == FIRST_WORD).all() and torch.equal(a[~words], b[~words])


@pytest.mark.parametrize("name", PRESETS)
def test_what_follows_the_question_changes_nothing(name):
    problem = prepared(name, shortest=2, longest=3)
    model, (tokens, targets, *_) = problem.model.eval(), problem.evaluation["val"].tensors
    other = torch.where((targets >= 0).cumsum(1).roll(1, 1).bool() & (tokens == 0), 5, tokens)
    logits = [model(x, targets)[0][targets >= 0] for x in (tokens, other)]
    torch.testing.assert_close(*logits)


def accuracy(**data):
    torch.manual_seed(0)
    config = KinshipConfig(
        task="in-order",
        data=KinshipDataConfig(noise=0, more_noise=1, shortest=1, longest=2, lengths=(2,), n_val=1, n_test=900, **data),
        model=PRESETS["T-positions"],
    )
    problem = KINSHIP.prepare(config, cache=Path()).problem
    optimizer = torch.optim.Adam(problem.model.parameters(), lr=2e-3)
    for step in range(60):
        loss, _ = problem.loss(problem.model, problem.train.batch(torch.arange(32 * step, 32 * step + 32)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    problem.model.train()  # no dropout, and no look at heads
    with torch.no_grad():
        return float(problem.loss(problem.model, problem.evaluation["2"].batch(torch.arange(900)))[1]["accuracy"])


def test_a_model_learns_short_chains_and_nothing_without_relations():
    assert accuracy() > 0.6
    assert accuracy(blind=True) < 0.2 + 4 * (0.16 / 900) ** 0.5  # one of five answers


def test_a_model_is_trained_and_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--preset=T-relative", "--data.lengths=[3,4,6]", "--loop.eval_every=1", *SMALL, *QUIET]
    assert main(["train", "kinship", "--output.name=run", *words]) == 0
    result = json.loads(Path("runs/run/result.json").read_text())
    assert {*result["accuracy"]} == {*result["rule"]} == {"val", "3", "4", "6", "names", "noise"}
    row = KINSHIP.row(result)
    assert row["beyond"] == pytest.approx(100 * result["accuracy"]["6"], abs=1e-2)
    assert row["rule_within"] == pytest.approx(50 * (result["rule"]["3"] + result["rule"]["4"]), abs=1e-2)
    capsys.readouterr()
    assert main(["evaluate", "runs/run", "--json", "--machine.threads=1"]) == 0
    assert json.loads(capsys.readouterr().out)["names"]["accuracy"] == pytest.approx(result["accuracy"]["names"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.lengths=[5,4]"], "data.lengths: expected different lengths from 2 to 1,024, ascending, got (5, 4)"),
        (["--data.lengths=[11]"], "data.lengths: expected at most 10, got (11,)"),
        (["--data.names=11"], "data.lengths: expected no more persons than data.names=11, needs 12 for 10 relations"),
        (["--data.new_names=5"], "data.new_names: expected no more persons than data.new_names=5, needs 6 for 4"),
        (
            ["--data.more_noise=36"],
            "data.more_noise: expected no more persons than data.names=40, needs 41",
        ),
        (["--data.shortest=5"], "data.shortest: expected an integer from 1 to 4, got 5"),
        (["--data.names=90", "--data.more_noise=50"], "model.context: expected at least 165, the tokens of a sequence"),
        (
            ["--model.relative_positions=0"],
            "model.relative_positions: expected an integer of at least 1 or null",
        ),
    ],
)
def test_wrong_settings(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "kinship", *words, *QUIET]) == 2
    assert message in capsys.readouterr().err and not Path("runs").exists()


@pytest.mark.parametrize("grid", KINSHIP.scales.values(), ids=KINSHIP.scales)
def test_grids_that_come_with_it_can_be_run(grid):
    configs = [grid.config(cell) for cell in cells(KINSHIP, grid)]
    assert {config.seed for config in configs} == {*range(grid.seeds)}
    assert all(min(config.data.lengths) <= config.data.longest < max(config.data.lengths) for config in configs)


def test_the_tiny_grid_smaller(tmp_path, monkeypatch):
    """As ``dat reproduce kinship --scale tiny`` does it, one after another."""
    fork_workers(monkeypatch)
    monkeypatch.chdir(tmp_path)
    words = ["--data.n_val=8", "--data.n_test=8", "--loop.steps=1", "--loop.batch_size=4", "--models=[T,RCA]"]
    assert main(["reproduce", "kinship", "--scale=tiny", "--out=grid", "--quiet", "--workers=1", *words]) == 0
    with open("grid/results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 and all(0 <= float(row["at_6"]) <= 100 and row["rule_beyond"] for row in rows)
    assert "names never trained on" in Path("grid/comparison.md").read_text().lower()


def test_a_picture_is_drawn(tmp_path):
    picture = tmp_path / "kinship.png"
    assert main(["data", "kinship", f"--out={picture}"]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
    tokens, *_ = KinshipConfig().draw("10", 1, 0)
    *facts, question = story_text(tokens[0])
    assert len(facts) == 11 and question.startswith("Who is ") and all(any(w in f for w in ANSWERS) for f in facts)
