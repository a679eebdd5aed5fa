"""An experiment of fewer than 60 lines is trained, resumed, evaluated, swept and plotted through the command line."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dat.checkpoints import open_checkpoint
from dat.cli.main import main
from dat.experiments import EXPERIMENTS, Entry, experiment_of
from dat.sweeps.experiment import swept
from dat.training.interrupt import StopOnSignal
from dat.training.problem import TensorExamples

SUMMARIES = dict.fromkeys(("train", "reproduce", "plot"), "a toy")
QUICK = ("--machine.threads=1", "--output.tensorboard=false", "--seed=1")


@pytest.fixture(autouse=True)
def registered(tmp_path, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "toy", Entry("tests.lab.sweeps.toy:Toy", "of sums on new numbers", SUMMARIES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def dat(*words: str) -> int:
    return main(list(words))


def result(run: str) -> dict:
    return json.loads(Path(run, "result.json").read_text())


def test_the_experiment_is_small():
    lines = Path(__file__).with_name("toy.py").read_text().splitlines()
    assert sum(bool(line) for line in lines) < 60


def test_it_is_trained_resumed_and_evaluated(capsys, monkeypatch):
    assert dat("train", "toy", *QUICK, "--output.folder=whole") == 0
    assert "linear, 16 examples" in capsys.readouterr().out
    looks = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(StopOnSignal, "__call__", lambda self: next(looks) >= 3)
        assert dat("train", "toy", *QUICK, "--output.folder=parts") == 130
    assert "dat: interrupted; continue with: dat train toy --resume parts/toy" in capsys.readouterr().err
    assert Path("parts/toy/config.yaml").read_text().splitlines()[1] == "experiment: toy"
    torch.manual_seed(99)
    assert dat("train", "toy", "--resume", "parts/toy") == 0
    assert Path("parts/toy/model.safetensors").read_bytes() == Path("whole/toy/model.safetensors").read_bytes()
    assert result("parts/toy")["loss"] == result("whole/toy")["loss"]
    capsys.readouterr()
    assert dat("evaluate", "parts/toy", "--json", "--machine.threads=1") == 0
    numbers = json.loads(capsys.readouterr().out)["val"]
    assert numbers == {"loss": result("parts/toy")["loss"]["val"], **numbers} and numbers["examples"] == 32
    assert open_checkpoint("parts/toy").kind == "toy run"


@pytest.mark.slow
def test_it_is_swept_and_plotted(capsys):
    assert dat("reproduce", "toy", "--dry_run", "--out=grid", "--workers=1") == 0
    assert "4 cells, 0 done, 4 to run" in capsys.readouterr().out and not Path("grid").exists()
    assert dat("reproduce", "toy", "--out=grid", "--workers=2", "--seeds=2") == 0
    assert "8 to run on 2 processes" in (out := capsys.readouterr().out) and "8/8" in out
    assert {path.name for path in Path("grid").iterdir()} == {
        ".lock",
        "cells",
        "checksums.json",
        "comparison.md",
        "figures",
        "grid.yaml",
        "results.csv",
    }
    table = Path("grid/comparison.md").read_text()
    assert table.startswith("# Measured\n") and "| kind | 8 | 16 |" in table and "of 2 trials." in table
    assert dat("plot", "toy", "grid", "--out=plots", "--kinds=[deep]") == 0
    assert capsys.readouterr().out.split() == ["plots/results.csv", "plots/comparison.md", "plots/curves.png"]
    assert "linear" not in Path("plots/results.csv").read_text()


def test_a_scale_is_a_grid_that_comes_with_it(capsys):
    """What precedes it is overridden, what follows it counts."""
    assert dat("reproduce", "toy", "--dry_run", "--seeds=5", "--scale", "tiny", "--workers=1") == 0
    assert "tiny: 2 trials of each point" in capsys.readouterr().out
    assert dat("reproduce", "toy", "--scale=tiny", "--dry_run", "--seeds=3", "--workers=1") == 0
    assert "tiny: 3 trials of each point" in capsys.readouterr().out


def test_an_experiment_without_a_grid_is_not_swept():
    with pytest.raises(ValueError, match="single: expected an experiment with a grid"):
        swept(SimpleNamespace(name="single"))


def test_it_is_listed(capsys):
    assert dat("--help") == 0
    assert "reproduce toy [--KEY VALUE ...]" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        dat("evaluate", "--help")
    assert "of sums on new numbers" in " ".join(capsys.readouterr().out.split())


def test_a_run_says_which_experiment_it_is_of(capsys):
    assert dat("train", "toy", *QUICK) == 0
    capsys.readouterr()
    assert dat("train", "language", "--resume", "runs/toy") == 2
    assert "runs/toy: a run of toy, not of language" in capsys.readouterr().err
    assert dat("train", "relational-games", "--config", "runs/toy/config.yaml") == 2
    assert "experiment: expected one of 'relational-games', got toy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"experiment": "toy", "task": "same"}, "toy"),
        ({"task": "same", "data": {}, "model": {}, "loop": {}}, "relational-games"),
        ({"data": {}, "model": {}, "loop": {}}, "language"),
    ],
)
def test_older_runs_are_known_by_their_keys(values, name):
    assert experiment_of(values, "run").name == name


@pytest.mark.parametrize(
    ("values", "message"),
    [({"x": 1}, "run: not the configuration of a run"), ({"experiment": "chess"}, "run: experiment: expected one of")],
)
def test_other_files_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        experiment_of(values, "run")


def test_examples_of_tensors():
    examples = TensorExamples(torch.arange(6).view(6, 1), torch.arange(6))
    assert len(examples[:4]) == 4 and examples[4:].batch(torch.tensor([1]))[1].tolist() == [5]
    with pytest.raises(ValueError, match="tensors: expected as many examples in each, got 6 and 5"):
        TensorExamples(torch.zeros(6), torch.zeros(5))
