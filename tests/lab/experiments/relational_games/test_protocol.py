"""The length of training that fits the published runs: scores, halves, choice, tables and figure."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dat.experiments.relational_games.protocol import main, report, write_report
from dat.experiments.relational_games.protocol_cells import (
    CellFit,
    by_candidate,
    choose,
    error_of_difference,
    fit_cells,
    root_mean_square_sd,
    score,
)
from dat.sweeps.results import to_csv

MODELS = ("transformer-128-h2", "dat-0+2-sym", "dat-1+1-sym")
KNOWN = {"accuracy": 70.0, "sd": 2.0, "lowest": 67.0, "highest": 73.0, "loss": 2.0, "loss_sd": 0.2, "trials": 9}
CELL = CellFit((512, 50), "same", "dat-0+2-sym", 250, (72.0, 74.0), (1.0, 3.0), KNOWN)


def row(task, model, n_train, epochs, accuracy, loss, seed=0):
    made = {"generator": 1, "seeding": 2, "batch_size": 512, "epochs": epochs}
    return {**made, "task": task, "model": model, "n_train": n_train, "seed": seed, "test": accuracy, "test_loss": loss}


def test_a_cell_in_units_of_the_published_spread():
    assert (CELL.difference, CELL.log_ratio) == (3.0, 0.0)
    assert CELL.squares == (9 / 5, 0.0)
    low = replace(CELL, losses=(1.0, 1.0))
    assert low.squares[1] == pytest.approx(math.log(2) ** 2 / (0.1**2 + 0.1**2))
    assert (CELL.outside, CELL.expected_outside) == (1, 0.4)
    assert root_mean_square_sd([CELL]) == (pytest.approx(2**0.5), 2.0)


def test_the_halves_are_a_chessboard():
    chosen = {
        (task, n)
        for task in ("same", "between", "occurs", "xoccurs")
        for n in (250, 500, 1000, 2000)
        if replace(CELL, task=task, n_train=n).chosen_on
    }
    assert chosen == {
        ("same", 250),
        ("same", 1000),
        ("between", 250),
        ("between", 1000),
        ("occurs", 500),
        ("xoccurs", 500),
    }


def lengths(*offsets):
    """Cells of candidates of 50, 75 and 100 epochs, whose accuracies are off by so much, on three tasks."""
    return [
        replace(CELL, candidate=(512, epochs), task=task, accuracies=(70.0 + off + jitter,), losses=(2.0,))
        for epochs, off in zip((50, 75, 100), offsets, strict=True)
        for task, jitter in (("same", 0.5), ("between", -0.5), ("other", 0.2))
    ]


def test_the_best_length_is_taken_and_a_round_one_if_it_is_as_good():
    assert choose(lengths(6.0, 0.0, 6.0)) == (512, 75)
    assert choose(lengths(6.0, 0.0, 0.1)) == (512, 100)
    assert choose(lengths(0.0, 3.0, 6.0)) == (512, 50)
    partial = [cell for cell in lengths(0.0, 3.0, 6.0) if (cell.candidate, cell.task) != ((512, 50), "other")]
    assert choose(partial) == (512, 75)  # of 50 epochs one cell was not run
    groups = by_candidate(lengths(6.0, 0.0, 6.0))
    assert error_of_difference(groups[512, 75], groups[512, 75]) == 0
    assert score(groups[512, 75]) == pytest.approx((0.25 + 0.25 + 0.04) / 5 / 3)


def test_lines_of_results_become_cells_where_they_are_published():
    rows = [row("same", "dat-0+2-sym", 500, 50, accuracy, 0.8, seed) for seed, accuracy in enumerate((61.0, 65.0))]
    rows += [row("same", "transformer-144-h8", 500, 50, 70, 1), row("same", "dat-0+2-sym", 501, 50, 70, 1)]
    [cell] = fit_cells([row("same", "dat-0+2-sym", 500, 50, 50, 0.1), *rows])  # seed 0 again, whose last line counts
    assert (cell.accuracies, cell.candidate, cell.n_train) == ((61.0, 65.0), (512, 50), 500)
    assert cell.difference == pytest.approx(63 - 74.369) and cell.log_ratio == pytest.approx(math.log(0.8 / 1.88), 0.01)


def test_tables_and_a_figure_from_the_tables_of_grids(tmp_path):
    rows = [
        row(task, model, n, epochs, 60 + epochs / 10 + seed, epochs / 50, seed)
        for task in ("same", "occurs")
        for model in MODELS
        for n in (250, 500)
        for epochs in (50, 75, 100)
        for seed in (0, 1)
    ]
    (tmp_path / "epochs.csv").write_text(to_csv(rows))
    text = write_report(tmp_path / "out", [tmp_path / "epochs.csv"])
    assert text == (tmp_path / "out" / "protocol.md").read_text() == report(fit_cells(rows))
    choice, held_out = text.split("## Held out")
    assert "| 512 | 50 | 6 | 12 |" in choice and "| 512 | 100 | 6 | 12 |" in held_out
    assert held_out.count("| held out |") == held_out.count("| choice |") == 6
    assert (tmp_path / "out" / "protocol.png").stat().st_size > 20_000


def test_tables_without_published_cells_are_refused(tmp_path):
    (tmp_path / "results.csv").write_text(to_csv([row("same", "dat-0+2-sym", 501, 50, 70, 1)]))
    with pytest.raises(ValueError, match=r"results\.csv: expected runs of published cells, found none"):
        write_report(tmp_path / "out", [tmp_path / "results.csv"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_loss": 0.0}, "test_loss: expected positive numbers, got 0.0"),
        ({"test_loss": ""}, "expected runs with losses and lengths, found no test_loss"),
        ({"n_train": 500.5}, "n_train: expected an integer, got 500.5"),
    ],
)
def test_the_command_names_what_is_wrong_in_one_line(tmp_path, capsys, change, message):
    (tmp_path / "epochs.csv").write_text(to_csv([{**row("same", "dat-0+2-sym", 500, 50, 70, 1), **change}]))
    assert main([str(tmp_path / "out"), str(tmp_path / "epochs.csv")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"{tmp_path / 'epochs.csv'}: {message}" in error
    assert not (tmp_path / "out").exists()


def test_the_command_overwrites_nothing(tmp_path, capsys):
    (tmp_path / "epochs.csv").write_text(to_csv([row("same", "dat-0+2-sym", 500, 50, 70, 1)]))
    assert main([str(tmp_path), str(tmp_path / "epochs.csv")]) == 0
    (tmp_path / "protocol.md").write_text("mine")
    assert main([str(tmp_path), str(tmp_path / "epochs.csv")]) == 2
    assert "protocol.md, protocol.png, which are not overwritten" in capsys.readouterr().err
    assert (tmp_path / "protocol.md").read_text() == "mine"


def test_no_length_that_all_cells_have():
    other = replace(CELL, candidate=(512, 75), task="between")
    with pytest.raises(ValueError, match="every cell was run with, found none"):
        choose([CELL, other])
