"""Differences paired by seed, and grids whose arms have learning rates of their own."""

from dataclasses import replace
from pathlib import Path

import pytest

from dat.experiments.relational_games.experiment import RelationalGames
from dat.sweeps.grid import GridFolder, cells
from dat.sweeps.report import comparison_text, contrasts_text, differences, digits_for, draw_contrasts
from dat.sweeps.reproduce import reproduce
from dat.sweeps.results import load_results, to_csv
from dat.sweeps.table import Axis, ResultTable
from dat.training.config_io import read_config
from examples.my_experiment import Sums, SumsGrid
from studies.theorem_1.experiment import Theorem1
from tests.lab.cli.commands import dat, printed, refusal
from tests.support.refusals import refused

GAMES, THEOREM, SUMS = RelationalGames(), Theorem1(), Sums()
TRIALS = {
    "dat-0+2-sym": {0: 60.0, 1: 70.0, 2: 65.0},
    "corelnet": {0: 64.0, 1: 71.0, 2: 70.0},
    "dat-1+1-sym": {1: 69.0, 2: 66.0, 3: 80.0},
    "identities": {0: 50.0},
}
ROWS = [
    {"task": "same", "model": model, "n_train": 500, "seed": seed, "parameters": 1, "test": value}
    for model, trials in TRIALS.items()
    for seed, value in trials.items()
]


def test_pairs_are_of_the_same_seed():
    found = list(differences(GAMES.table, ROWS, "test", "dat-0+2-sym"))
    assert [(curve, by_seed) for *_, curve, by_seed in found] == [
        ("dat-1+1-sym", {1: -1.0, 2: 1.0}),
        ("corelnet", {0: 4.0, 1: 1.0, 2: 5.0}),
    ]


def test_means_over_cells_take_the_seeds_that_all_have():
    more = [{**row, "n_train": 1000, "test": row["test"] + row["seed"] * (row["model"] == "corelnet")} for row in ROWS]
    more = [row for row in more if row["seed"] != 0 or row["model"] != "corelnet"]
    found = list(differences(GAMES.table, [*ROWS, *more], "test", "dat-0+2-sym"))
    assert [point for _, point, *_ in found] == ["500", "1,000", "all"] * 2
    assert found[-1][-1] == {1: (1 + 2) / 2, 2: (5 + 7) / 2}


def test_there_is_no_mean_over_cells_where_one_has_no_pairs():
    """At width 16 the reference has other seeds; at 8 alone a third curve was run."""
    runs = [("standard", 8, range(3)), ("standard", 16, range(5, 8)), ("symmetric", 8, range(3))]
    runs += [("relational", width, range(3)) for width in (8, 16)]
    rows = [
        {"model": model, "width": width, "seed": seed, "parameters": 1, "error": float(seed)}
        for model, width, seeds in runs
        for seed in seeds
    ]
    found = list(differences(THEOREM.table, rows, "error", "standard"))
    assert {(point, curve) for _, point, curve, _ in found} == {("8", "relational"), ("8", "symmetric")}


def test_the_table():
    text = contrasts_text(GAMES.table, ROWS, "dat-0+2-sym")
    assert "# Differences from DAT 0+2, symmetric" in text and "Hexominoes" not in text
    assert "| same | 500 | CoRelNet | 3 | +3.3 ± 5.2 |" in text


def test_nothing_is_drawn_without_pairs(tmp_path, capsys):
    rows = [{**row, "hexominoes": row["test"], "stripes": row["test"]} for row in ROWS if row["seed"] == 0]
    draw_contrasts(GAMES.table, rows, tmp_path / "contrasts.png", "dat-0+2-sym")
    assert not any(tmp_path.iterdir())
    (tmp_path / "results.csv").write_text(to_csv(rows))
    words = ["plot", "relational-games", str(tmp_path / "results.csv"), f"--out={tmp_path / 'out'}"]
    assert dat(*words, "--against=dat-0+2-sym") == 0
    for said in (capsys.readouterr().err, (tmp_path / "out" / "contrasts.md").read_text()):
        assert "No other curve has two seeds in common with it" in said


@pytest.mark.slow
def test_the_command_writes_it(tmp_path, capsys):
    table, out = tmp_path / "results.csv", tmp_path / "out"
    table.write_text(to_csv([{**row, "hexominoes": row["test"], "stripes": row["test"]} for row in ROWS]))
    written = printed(capsys, "plot", "relational-games", table, "--out", out, "--against", "dat-0+2-sym").split()
    assert str(out / "contrasts.md") in written and str(out / "contrasts.png") in written
    assert (out / "contrasts.png").read_bytes().startswith(b"\x89PNG")
    error = refusal(capsys, "plot", "relational-games", table, "--out", tmp_path / "b", "--against=x")
    assert "against: expected one of" in error and not (tmp_path / "b").exists()


# Learning rates of arms -----------------------------------------------------------------------------------------------


def test_arms_with_rates_of_their_own(tmp_path, in_process):
    grid = SumsGrid(out=str(tmp_path / "grid"), lr_of={"deep": 1e-2})
    folder = reproduce(SUMS, grid, quiet=True)
    assert in_process[0] == "linear__8__seed0"
    assert read_config(SumsGrid, folder.config).lr_of == {"deep": 1e-2}
    rates = {row["kind"]: row.get("lr") for row in load_results(SUMS, folder.path)}
    assert rates == {"linear": None, "deep": 1e-2}
    assert [grid.config(cell).optim.lr for cell in cells(SUMS, grid)[:2]] == [1e-3, 1e-2]
    before = folder.config.read_text()
    for other in ({"deep": 2e-2}, {"deep": 1e-2, "linear": 1e-2}, None):
        with pytest.raises(ValueError, match=r"lr_of: .*holds cells of (deep|linear) run with .*give another --out"):
            reproduce(SUMS, replace(grid, lr_of=other), quiet=True)
    assert folder.config.read_text() == before
    reproduce(SUMS, grid, quiet=True)
    assert len(in_process) == 4  # nothing was run again


test_arms_that_there_are_not = refused(
    (lambda: contrasts_text(GAMES.table, ROWS, "nobody"), "against: expected one of .*corelnet, .*got 'nobody'"),
    (lambda: cells(SUMS, SumsGrid(lr_of={"deep": -1.0})), "lr_of: expected positive numbers"),
    (lambda: cells(SUMS, SumsGrid(lr_of={"odd": 1.0})), "lr_of: expected names among linear, deep, got 'odd'"),
)


def test_a_folder_without_rates_has_none(tmp_path, in_process):
    folder: GridFolder = reproduce(SUMS, SumsGrid(out=str(tmp_path / "grid")), quiet=True)
    assert "lr" not in Path(folder.results).read_text().partition("\n")[0].split(",")


SHARES = ResultTable(
    axes=(Axis("kind", "kind", "kind", "kinds"), Axis("n_train", "n_train", "examples", "examples", number=True)),
    measures={"val": "right"},
)
"""Table of an own experiment, which sets neither decimals nor a caption."""


@pytest.mark.parametrize(("scale", "shown"), [(1, "0.510 ± 0.025"), (100, "51.0 ± 2.5"), (1e4, "5100 ± 248")])
def test_decimals_follow_from_the_interval(scale: float, shown: str):
    rows = [
        {"kind": kind, "n_train": 8, "seed": seed, "val": scale * (low + step)}
        for kind, low in (("deep", 0.5), ("linear", 0.4))
        for seed, step in enumerate((0.0, 0.01, 0.02))
    ]
    lines = comparison_text(replace(SHARES, unit=" %"), rows).splitlines()
    assert lines[2].startswith("Mean ± half of its 95 % t-interval, of 3 trials") and "## Right (%)" in lines
    assert f"| deep | {shown} |" in lines
    assert "\nMean difference of trials" in contrasts_text(SHARES, rows, "linear")


def test_single_trials_have_three_significant_digits():
    assert [digits_for([[value]]) for value in (0.5123, 51.23, 5123.0, 0.0)] == [3, 1, 0, 1]
