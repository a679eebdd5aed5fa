"""Relational Games with handwritten digits through the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dat.cli.main import main
from dat.experiments.digit_games.config import DigitDataConfig, DigitGamesConfig, DigitGamesGrid, DigitSets
from dat.experiments.digit_games.experiment import DigitGames
from dat.sweeps.grid import Cell, cells

DIGITS = DigitGames()
SMALL = ["--data.n_val=4", "--data.n_test=6", "--data.n_unseen=6", "--loop.epochs=1"]
QUIET = ["--output.progress=false", "--output.tensorboard=false", "--machine.threads=1"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_model_is_trained_and_evaluated(capsys):
    words = ["--task=same", "--preset=corelnet-softmax", "--data.n_train=8", *SMALL, *QUIET]
    assert main(["train", "digit-games", *words]) == 0
    folder = "runs/digits-same-corelnet-softmax-n8-seed0"
    result = json.loads(Path(folder, "result.json").read_text())
    assert set(result["accuracy"]) == {"val", "test", "unseen"} and result["task"] == "same"
    capsys.readouterr()
    assert main(["evaluate", folder, "--json", "--machine.threads=1"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["unseen"]["accuracy"] == result["accuracy"]["unseen"] and numbers["unseen"]["images"] == 6


@pytest.mark.slow
def test_a_grid_leaves_a_table_and_a_figure():
    grid = ["--tasks=[same]", "--sizes=[8,12]", "--models=[corelnet,dat-0+2-sym]", "--seeds=1", "--workers=2"]
    assert main(["reproduce", "digit-games", "--out=grid", "--quiet", *grid, *SMALL]) == 0
    with open("grid/results.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    for row in rows:
        assert float(row["fall"]) == pytest.approx(float(row["test"]) - float(row["unseen"]), abs=1e-3)
    text = Path("grid/comparison.md").read_text()
    assert "Classes never trained on" in text and "Fall from the former classes" in text
    assert Path("grid/figures/digits.png").stat().st_size > 10_000


def test_a_sheet_is_drawn():
    assert main(["data", "digit-games", "--out=sheet.png", "--tasks=[occurs]", "--per_class=2"]) == 0
    assert Path("sheet.png").stat().st_size > 5_000


def test_a_cell_is_a_run_with_the_settings_of_the_grid():
    grid = DigitGamesGrid(data=DigitSets(n_test=9, unseen=(0, 1, 2)), seeds=2)
    config = grid.config(Cell.of(DIGITS.axes, {"task": "between", "model": "cosine", "n_train": 30}, 3))
    assert config.data == DigitDataConfig(n_train=30, n_test=9, unseen=(0, 1, 2))
    assert (config.task, config.seed, config.data_seed, config.model.name) == ("between", 3, 3, "cosine")
    assert [cell.seed for cell in cells(DIGITS, grid)] == sorted(cell.seed for cell in cells(DIGITS, grid))


def test_classes_that_are_not_digits():
    with pytest.raises(ValueError, match=r"data\.unseen: expected three to seven different classes"):
        DigitSets(unseen=(1, 2))


def test_weights_differ_between_tasks():
    def weights(task):
        data = DigitDataConfig(n_train=2, n_val=1, n_test=1, n_unseen=1)
        prepared = DIGITS.prepare(DigitGamesConfig(task=task, data=data), cache=Path())
        return prepared.problem.model.final_out.weight

    assert not weights("same").equal(weights("occurs"))


def test_images_that_do_not_fit_are_refused_before_any_is_made(capsys, monkeypatch):
    monkeypatch.setattr("dat.training.device.memory_of", lambda device: 2**20)
    assert main(["train", "digit-games", "--data.n_train=4000", *SMALL, *QUIET]) == 2
    assert "data: its images take" in capsys.readouterr().err and not Path("runs").exists()
