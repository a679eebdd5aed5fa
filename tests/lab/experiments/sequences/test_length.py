"""Length: models, runs and grids."""

import csv
import json
from pathlib import Path

import pytest
import torch

from dat.cli.main import main
from dat.experiments.sequences.config import LengthConfig, LengthDataConfig, LengthGrid
from dat.experiments.sequences.experiment import Length
from dat.experiments.sequences.presets import PRESETS
from dat.sweeps.grid import cells
from dat.training.experiment import count_parameters
from tests.lab.cli.commands import QUIET, printed, refusal
from tests.support.processes import fork_workers
from tests.support.refusals import refused

LENGTH = Length()
PARAMETERS = {  # in all, and trained, with 98 tokens
    "T": (116_480, 116_480),
    "DAT-symbolic": (118_464, 116_416),
    "DAT-symbolic-sym": (118_496, 116_448),
    "DAT-clipped": (116_448, 116_448),
    "DAT-clipped-sym": (116_480, 116_480),
    "DAT-clipped-8": (116_456, 116_456),
}
SMALL = ["--data.n_val=8", "--data.n_test=12", "--loop.steps=2", "--loop.batch_size=4"]


@pytest.mark.parametrize(("name", "expected"), PARAMETERS.items())
def test_sizes_are_matched(name, expected):
    model = PRESETS[name].empty(98)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert (count_parameters(model), trained) == expected


@pytest.mark.parametrize("task", ["argsort", "equation"])
def test_only_short_sequences_are_trained_on(task):
    data = LengthDataConfig(longest=5, lengths=(3, 5, 9), n_val=50, n_test=40)
    config = LengthConfig(task=task, data=data)
    problem = LENGTH.prepare(config, cache=Path()).problem
    lengths = {name: {*(x.tensors[1] >= 0).nonzero()[:, 1].tolist()} for name, x in problem.evaluation.items()}
    if task == "argsort":  # answers of M objects are the positions from 2M to 3M - 1
        assert lengths == {"val": {*range(4, 15)}, "3": {6, 7, 8}, "5": {*range(10, 15)}, "9": {*range(18, 27)}}
    else:  # the one of K constants is at K + 2
        assert lengths == {"val": {4, 5, 6, 7}, "3": {5}, "5": {7}, "9": {11}}
    trained = problem.train.batch(torch.arange(256))
    assert {*(trained[1] >= 0).nonzero()[:, 1].tolist()} == lengths["val"]
    assert int(trained[0].max()) < config.vocab_size
    long = {tuple(row) for row in problem.evaluation["5"].tensors[0].tolist()}
    if task == "argsort":
        assert not long & {tuple(row) for row in trained[0].tolist()}


def test_a_model_is_trained_and_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--data.longest=4", "--data.lengths=[2,4,6]", "--loop.eval_every=1", *SMALL, *QUIET]
    assert main(["train", "length", "--preset=DAT-clipped-sym", "--output.name=run", *words]) == 0
    result = json.loads(Path("runs/run/result.json").read_text())
    assert set(result["whole"]) == {"val", "2", "4", "6"}
    row = LENGTH.row(result)
    assert row["beyond"] == pytest.approx(100 * result["accuracy"]["6"], abs=1e-2)
    assert row["within"] == pytest.approx(50 * (result["accuracy"]["2"] + result["accuracy"]["4"]), abs=1e-2)
    assert "whole_at_6" in row and "at_val" not in row
    numbers = json.loads(printed(capsys, "evaluate", "runs/run", "--json", "--machine.threads=1"))
    assert numbers["6"]["accuracy"] == pytest.approx(result["accuracy"]["6"])
    assert "argsort, trained on lengths to 4" in printed(capsys, "evaluate", "runs/run", "--machine.threads=1")
    assert "runs/run: a run of length, no language model" in refusal(capsys, "info", "runs/run")


@pytest.mark.slow
def test_the_numbers_do_not_depend_on_the_batches_of_an_evaluation(tmp_path, monkeypatch):
    """Validation sequences have answers of different lengths; loss and matching are means over their positions."""
    monkeypatch.chdir(tmp_path)
    found = {}
    for size in (5, 256):
        words = ["--data.longest=9", "--data.lengths=[4]", f"--loop.eval_batch_size={size}", *SMALL, *QUIET]
        assert main(["train", "length", f"--output.name=run-{size}", *words]) == 0
        result = json.loads(Path(f"runs/run-{size}/result.json").read_text())
        found[size] = {metric: result[metric]["val"] for metric in LENGTH.table.metrics}
        assert main(["evaluate", f"runs/run-{size}", "--machine.threads=1"]) == 0
    assert found[5] == pytest.approx(found[256], rel=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.lengths=[4,3]"], "data.lengths: expected different lengths from 2 to 1,024, ascending, got (4, 3)"),
        (["--data.lengths=[49]"], "data.lengths: expected at most 48, all objects, got 49"),
        (["--data.longest=49"], "data.longest: expected at most 48, all objects, got 49"),
        (["--data.lengths=[45]"], "model.context: expected at least 135, the tokens of a sequence, got 128"),
        (["--data.longest=1"], "data.longest: expected an integer of at least 2, got 1"),
    ],
)
def test_wrong_settings(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refusal(capsys, "train", "length", *words, *QUIET) and not Path("runs").exists()


@pytest.mark.parametrize("grid", LENGTH.scales.values(), ids=LENGTH.scales)
def test_grids_that_come_with_it_can_be_run(grid):
    configs = [grid.config(cell) for cell in cells(LENGTH, grid)]
    assert {config.seed for config in configs} == {*range(grid.seeds)}
    assert all(min(config.data.lengths) <= config.data.longest < max(config.data.lengths) for config in configs)


test_lengths_that_are_refused = refused((lambda: LengthGrid(longest=(1,)), "longest: expected 2 to 1,024"))


@pytest.mark.slow
def test_the_tiny_grid_smaller(tmp_path, monkeypatch):
    """As ``dat reproduce length --scale tiny`` does it, one after another."""
    fork_workers(monkeypatch)
    monkeypatch.chdir(tmp_path)
    small = ["--data.n_val=8", "--data.n_test=8", "--data.lengths=[3,6]", "--longest=[4]", "--seeds=2", "--workers=1"]
    loop = ["--loop.steps=2", "--loop.batch_size=4", "--models=[T,DAT-clipped]"]
    assert main(["reproduce", "length", "--scale=tiny", "--out=grid", "--quiet", *small, *loop]) == 0
    with open("grid/results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and all(0 <= float(row["at_6"]) <= 100 and row["training_steps"] == "2" for row in rows)
    assert "Accuracy beyond the lengths trained on" in Path("grid/comparison.md").read_text()
    assert main(["plot", "length", "grid", "--out=again", "--against=T"]) == 0


def test_no_test_length_beyond_those_trained_on(tmp_path, monkeypatch):
    """There is no number of such lengths then; the others are drawn."""
    fork_workers(monkeypatch)
    monkeypatch.chdir(tmp_path)
    small = ["--data.n_val=8", "--data.n_test=8", "--data.lengths=[3]", "--longest=[4]", "--seeds=1", "--workers=1"]
    loop = ["--loop.steps=1", "--loop.batch_size=4", "--models=[T]", "--tasks=[argsort]"]
    assert main(["reproduce", "length", "--scale=tiny", "--out=grid", "--quiet", *small, *loop]) == 0
    assert main(["plot", "length", "grid", "--out=again"]) == 0
    assert not any("beyond" in path.name for path in Path("again").iterdir())


def test_models_of_a_study():
    mine = LengthGrid.with_presets({"mine": PRESETS["T"]})
    assert mine(models=("mine",)).config(cells(LENGTH, mine(models=("mine",)))[0]).model == PRESETS["T"]
