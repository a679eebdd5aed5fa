"""Sweeps of learning rates: the best of each arm and how sure it is, and grids whose arms have rates of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dat.sweeps.grid import GridFolder, cells
from dat.sweeps.learning_rates import TABLE, draw_rates, optimum, rates_text, sweeps_rates
from dat.sweeps.report import plot_results
from dat.sweeps.reproduce import reproduce
from dat.sweeps.results import load_results, merge_results
from dat.training.config_io import read_config
from examples.my_experiment import Sums, SumsGrid
from studies.theorem_1.experiment import Theorem1

TOY = Sums()
VALUES = {
    "deep": {1e-3: (0.5, 0.52, 0.51), 2e-3: (0.8, 0.82, 0.81), 4e-3: (0.81, 0.8, 0.825)},
    "linear": {1e-3: (0.4, 0.41, 0.4), 2e-3: (0.7, 0.71, 0.7), 4e-3: (0.6, 0.61, 0.6)},
}
ROWS = [
    {"kind": kind, "n_train": n, "seed": seed, "parameters": 1, "val": value + n / 1000, "lr": lr}
    for kind, rates in VALUES.items()
    for lr, values in rates.items()
    for seed, value in enumerate(values)
    for n in (8, 16)
]


def test_the_best_is_named_with_its_neighbours():
    text = rates_text(TOY, ROWS, "val")
    assert "| kind | seeds | 0.001 | 0.002 | 0.004 |" in text
    assert "- **linear**: best at 0.002. It is distinguishable from 0.001 (" in text
    assert "- **deep**: best at 0.004. This is the largest of the range, so the optimum may lie beyond it" in text
    assert "It is not distinguishable from 0.002 (" in text and ", 3 pairs)" in text
    options = text.partition("--lr_of '")[2].partition("'")[0]
    assert json.loads(options) == {"deep": 4e-3, "linear": 2e-3}


def test_only_seeds_that_all_rates_have_are_compared():
    """A seed with only the best rates must not move their means."""
    more = [{**row, "seed": 9, "val": 1.0} for row in ROWS if row["lr"] == 1e-3 and row["seed"] == 0]
    assert rates_text(TOY, [*ROWS, *more], "val") == rates_text(TOY, ROWS, "val")
    one = [row for row in ROWS if row["seed"] == 0]
    assert "With one seed it cannot be told from" in rates_text(TOY, one, "val")
    apart = [row for row in ROWS if (row["lr"] == 1e-3) == (row["seed"] == 0)]
    assert "no seed has been run with every learning rate" in rates_text(TOY, apart, "val")


def test_an_error_is_best_where_it_is_least():
    rows = [
        {"model": "standard", "width": 8, "seed": 0, "parameters": 1, "lr": lr, "error": error, "selected": 1 - error}
        for lr, error in ((1e-3, 0.3), (2e-3, 0.1), (4e-3, 0.2))
    ]
    assert optimum(Theorem1(), rows, "error", "standard").best == 2e-3
    assert optimum(Theorem1(), rows, "selected", "standard").best == 2e-3
    assert Theorem1().lower_is_better("error_99") and not Theorem1().lower_is_better("selected")
    assert TOY.lower_is_better("val_loss") and not TOY.lower_is_better("val")


def test_the_figure(tmp_path):
    draw_rates(TOY, ROWS, "val", tmp_path / "rates.png")
    assert (tmp_path / "rates.png").stat().st_size > 5000


def test_a_grid_is_swept(tmp_path, in_process):
    grid = SumsGrid(out=str(tmp_path / "grid"), seeds=2, lrs=(1e-3, 1e-2))
    folder = reproduce(TOY, grid, quiet=True)
    assert len(in_process) == 16 and in_process[:2] == ["linear__8__lr0.001__seed0", "linear__8__lr0.01__seed0"]
    rows = load_results(TOY, folder.path)
    assert sweeps_rates(TOY, rows) and {row["lr"] for row in rows} == {1e-3, 1e-2}
    assert (folder.path / "learning_rates.md").is_file() and (folder.figures / "learning_rates.png").is_file()
    assert not folder.comparison.exists()  # means over learning rates would say nothing
    files = plot_results(TOY, [folder.path], tmp_path / "out")
    assert [path.name for path in files] == ["results.csv", "learning_rates.md", "learning_rates.png"]
    assert len(merge_results(TOY, [tmp_path / "out" / "results.csv", folder.path])) == 16

    reproduce(TOY, replace(grid, lrs=(1e-3, 1e-2, 1e-1)), quiet=True)  # a longer list extends it
    assert len(in_process) == 24
    with pytest.raises(ValueError, match=r"lrs: .*grid holds cells run with \(0.001, 0.01, 0.1\), got None"):
        reproduce(TOY, replace(grid, lrs=None), quiet=True)


def test_a_rate_with_which_training_diverges_is_a_result(tmp_path, in_process):
    """The edge that a sweep is to find: seen, never the best, and not run again."""
    grid = SumsGrid(out=str(tmp_path / "grid"), seeds=2, lrs=(1e-3, 1e39, 1e-2))
    folder = reproduce(TOY, grid, quiet=True)
    assert len(in_process) == 24 and not folder.left(cells(TOY, grid))
    cell = json.loads((folder.cells / "deep__8__lr1e+39__seed0.json").read_text())
    assert "became" in cell["diverged"] and "val" not in cell
    text = (folder.path / TABLE).read_text()
    assert "| kind | seeds | 0.001 | 0.01 | 1e+39 |" in text and text.count("| diverged (4) |") == 2
    assert "best at 1e+39" not in text and "so the optimum may lie beyond" not in text.partition("- **deep")[2]
    reproduce(TOY, grid, quiet=True)
    assert len(in_process) == 24
    files = plot_results(TOY, [folder.path], tmp_path / "out")  # and its table once more
    plot_results(TOY, [files[0]], tmp_path / "again")
    assert (tmp_path / "again" / TABLE).read_text() == (tmp_path / "out" / TABLE).read_text() == text
    (only,) = {row["diverged"] for row in merge_results(TOY, [files[0], folder.path]) if "diverged" in row}
    assert only == 1


def test_an_arm_that_diverges_with_every_rate():
    rows = [{key: value for key, value in row.items() if key != "val"} | {"diverged": 1} for row in ROWS]
    text = rates_text(TOY, rows, "val")
    assert "- **deep**: training diverged with every learning rate, so none is named" in text and "--lr_of" not in text


def test_the_best_beside_a_rate_that_diverges():
    """One run that diverges is enough, and the best is not at the border then."""
    spoilt = {**next(row for row in ROWS if row["kind"] == "linear"), "lr": 8e-3, "diverged": 1}
    spoilt.pop("val")
    more = [{**row, "lr": 8e-3, "val": 1.0} for row in ROWS if row["lr"] == 4e-3 and row["seed"] > 0]
    text = rates_text(TOY, [*ROWS, *more, spoilt, {**spoilt, "kind": "deep"}], "val")
    assert text.count("diverged (1)") == 2 and "beyond it" not in text
    assert "- **deep**: best at 0.004. It is not distinguishable from 0.002" in text
    assert "pairs). At 0.008 training diverged." in text


def test_arms_with_rates_of_their_own(tmp_path, in_process):
    grid = SumsGrid(out=str(tmp_path / "grid"), lr_of={"deep": 1e-2})
    folder = reproduce(TOY, grid, quiet=True)
    assert in_process[0] == "linear__8__seed0"
    assert read_config(SumsGrid, folder.config).lr_of == {"deep": 1e-2}
    rates = {row["kind"]: row.get("lr") for row in load_results(TOY, folder.path)}
    assert rates == {"linear": None, "deep": 1e-2}
    assert [grid.config(cell).optim.lr for cell in cells(TOY, grid)[:2]] == [1e-3, 1e-2]
    assert "| deep | 0.01 |" in folder.comparison.read_text()
    before = folder.config.read_text()
    for other in ({"deep": 2e-2}, {"deep": 1e-2, "linear": 1e-2}, None):
        with pytest.raises(ValueError, match=r"lr_of: .*holds cells of (deep|linear) run with .*give another --out"):
            reproduce(TOY, replace(grid, lr_of=other), quiet=True)
    assert folder.config.read_text() == before
    reproduce(TOY, grid, quiet=True)
    assert len(in_process) == 4  # nothing was run again


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lrs": (1e-3, 1e-3)}, "lrs: expected different numbers"),
        ({"lrs": (0.0,)}, "lrs: expected positive numbers"),
        ({"lrs": ()}, "lrs: expected a list that is not empty"),
        ({"lrs": (1e-3,), "lr_of": {"deep": 1e-3}}, "lr_of: expected null with lrs"),
        ({"lr_of": {"deep": -1.0}}, "lr_of: expected positive numbers"),
        ({"lr_of": {"shallow": 1.0}}, "lr_of: expected names among linear, deep, got 'shallow'"),
        ({"match_to": "deep"}, "match_to: expected null without match"),
    ],
)
def test_wrong_rates(options, message):
    with pytest.raises(ValueError, match=message):
        cells(TOY, SumsGrid(**options))


def test_a_folder_without_rates_has_none(tmp_path, in_process):
    folder: GridFolder = reproduce(TOY, SumsGrid(out=str(tmp_path / "grid")), quiet=True)
    assert "lr" not in Path(folder.results).read_text().partition("\n")[0].split(",")
