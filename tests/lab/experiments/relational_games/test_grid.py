"""The grid of learning curves: its cells, its files, its processes and its figures."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dat.experiments.relational_games.config import GamesDataConfig, RelationalGamesConfig
from dat.experiments.relational_games.experiment import RelationalGames
from dat.experiments.relational_games.grid import MATCH_PATTERN_SIZES, SIZES, GamesGrid, GridData
from dat.experiments.relational_games.presets import BASELINES, COMPARISON, LABELS, PRESETS
from dat.experiments.relational_games.problem import load_splits
from dat.experiments.relational_games.published import overlap, published_curve, published_rows, without_overlap
from dat.sweeps import reproduce as reproduce_module
from dat.sweeps import workers
from dat.sweeps.curves import curve_points
from dat.sweeps.durations import duration_text, rates
from dat.sweeps.grid import Cell, GridFolder, cells
from dat.sweeps.published import Published
from dat.sweeps.report import draw_figures
from dat.sweeps.reproduce import reproduce
from dat.sweeps.results import cell_rows, read_results, whole_cells
from dat.sweeps.sources import merge_results
from dat.sweeps.workers import run_cell
from dat.training.configs import LoopConfig
from dat.training.interrupt import Interrupted
from dual_attention._base.files import read_json
from tests.support.refusals import refused
from tests.support.runs import interrupted

GAMES = RelationalGames()


def tiny_grid(folder: Path, **changes) -> GamesGrid:
    grid = GamesGrid(
        out=str(folder),
        tasks=("same",),
        sizes=(16,),
        models=("dat-0+2-sym", "transformer-128-h2"),
        seeds=1,
        workers=1,
        data=GridData(n_val=8, n_test=8, n_heldout=8),
        loop=LoopConfig(epochs=1, batch_size=8, eval_every=0, checkpoint_every=0),
    )
    return replace(grid, **changes)


@pytest.fixture
def in_process(monkeypatch):
    """Runs cells in this process, one after the other, and draws nothing; the list says which."""
    ran: list[Cell] = []

    def run_cells(waiting, grid, folder, count, stop, *, quiet):
        for cell in waiting:
            if stop():
                return
            ran.append(cell)
            yield cell, run_cell(GAMES, grid.config(cell), folder.path_of(cell), cache=folder.path)

    monkeypatch.setattr(reproduce_module, "run_cells", run_cells)
    monkeypatch.setattr(reproduce_module, "draw_figures", lambda *args: None)
    return ran


def fake_result(cell: Cell, accuracy: float) -> dict:
    return {
        "task": cell["task"],
        "model": cell["model"],
        "n_train": cell["n_train"],
        "seed": cell.seed,
        "parameters": 1,
        "accuracy": {name: accuracy for name in ("val", "test", "hexominoes", "stripes")},
        "steps": 1,
        "seconds": 2.0,
        "seconds_in_all": 3.0,
    }


def test_the_default_grid_is_the_published_one():
    grid = GamesGrid()
    assert (len(SIZES), len(MATCH_PATTERN_SIZES), len(COMPARISON)) == (10, 9, 10)
    every = cells(GAMES, grid)
    assert len(every) == len(set(every)) == 5 * 10 * (4 * 10 + 9)
    published = {(row["task"], row["n_train"]) for row in published_rows()}
    assert {(cell["task"], cell["n_train"]) for cell in every} == published


def test_trials_come_one_after_the_other():
    every = cells(GAMES, tiny_grid(Path("x"), seeds=2, first_seed=5, sizes=(16, 32)))
    assert [cell.seed for cell in every] == [5] * 4 + [6] * 4
    assert len({cell.name for cell in every}) == 8


def test_a_cell_is_a_run_with_the_settings_of_the_grid():
    grid = tiny_grid(Path("x"), device="cuda")
    config = grid.config(Cell.of(GAMES.table.axes, {"task": "between", "model": "rca-1+1", "n_train": 16}, 3))
    assert (config.task, config.seed, config.data.n_train, config.data.n_test) == ("between", 3, 16, 8)
    assert (config.model, config.loop, config.machine.threads) == (PRESETS["rca-1+1"], grid.loop, 1)
    assert config.machine.device == "cuda"


def test_a_grid_leaves_a_table_and_figures(tmp_path, in_process, monkeypatch, capsys):
    monkeypatch.setattr(reproduce_module, "draw_figures", draw_figures)
    grid = tiny_grid(tmp_path / "grid", workers=2)
    folder = reproduce(GAMES, grid)
    assert capsys.readouterr().out.count(" (") == 2
    rows = read_results(GAMES, folder.results)
    assert {row["model"] for row in rows} == set(grid.models)
    assert all(0 <= row[name] <= 100 for row in rows for name in ("test", "hexominoes", "stripes"))
    assert all((folder.figures / name).stat().st_size > 10_000 for name in ("learning_curves.png", "heldout.png"))


def test_a_folder_with_cells_of_another_generator_is_refused(tmp_path, in_process):
    grid = tiny_grid(tmp_path / "grid", tasks=("between",), models=("transformer-128-h2",))
    folder = reproduce(GAMES, grid, quiet=True)
    cell = folder.path_of(in_process[0])
    assert json.loads(cell.read_text())["generator"] == 2 == cell_rows(GAMES, whole_cells(folder.path))[0]["generator"]
    older = {key: value for key, value in json.loads(cell.read_text()).items() if key != "generator"}
    cell.write_text(json.dumps(older))
    message = r"seed 0: generator 1, but generator 2 in .*; they were not made alike, so they are not"
    with pytest.raises(ValueError, match=message):
        reproduce(GAMES, replace(grid, seeds=2), quiet=True)
    assert len(in_process) == 1


def test_results_of_another_seeding_or_length_are_not_merged(tmp_path, in_process):
    grid = tiny_grid(tmp_path / "grid", models=("transformer-128-h2",))
    folder = reproduce(GAMES, grid, quiet=True)
    [row] = merge_results(GAMES, [folder.results])
    assert (row["seeding"], row["epochs"], row["batch_size"]) == (2, 1, 8)
    longer = replace(grid, out=str(tmp_path / "longer"), seeds=2, loop=replace(grid.loop, epochs=2))
    longer = reproduce(GAMES, longer, quiet=True).results
    with pytest.raises(ValueError, match=r"epochs 2, but epochs 1 in .*; they were not made alike"):
        merge_results(GAMES, [folder.results, longer])
    older = tmp_path / "results.csv"  # of a version that told none of the three
    older.write_text("task,model,n_train,seed,test\nsame,transformer-128-h2,16,1,60\n")
    with pytest.raises(ValueError, match=r"seeding 1, but seeding 2 in"):
        merge_results(GAMES, [folder.results, older])


def test_a_grid_tells_what_shorter_runs_end_with(tmp_path, in_process):
    grid = tiny_grid(tmp_path / "grid", models=("transformer-128-h2",))
    long = replace(grid, out=str(tmp_path / "long"), loop=replace(grid.loop, epochs=3, measure_at=(1, 2)))
    short, long = reproduce(GAMES, grid, quiet=True), reproduce(GAMES, long, quiet=True)
    assert not short.on_the_way.exists()
    [ended], [first, second] = (read_results(GAMES, path) for path in (short.results, long.on_the_way))
    assert {**first, "seconds": 0} == {**ended, "seconds": 0}
    assert (second["epochs"], second["steps"], ended["epochs"]) == (2, 4, 1)
    assert ended["test_loss"] == pytest.approx(read_json(short.path_of(in_process[0]))["loss"]["test"], abs=1e-5)
    assert (
        GAMES.cost(grid.config(in_process[0])).work
        < GAMES.cost(replace(grid, loop=replace(grid.loop, measure_at=(1,))).config(in_process[0])).work
    )


def test_the_generator_of_a_result_is_that_of_its_task():
    def generator(task, folder=None):
        config = RelationalGamesConfig(task=task, data=GamesDataConfig(official_folder=folder))
        return GAMES.identity(config)["generator"]

    assert [generator("same"), generator("between"), generator("between", "official")] == [1, 2, 0]


def test_a_share_that_is_given_reaches_the_images_and_the_results(tmp_path, in_process):
    grid = tiny_grid(tmp_path / "grid", models=("transformer-128-h2",))
    shared = replace(grid, data=replace(grid.data, independent_share=1.0), out=str(tmp_path / "shared"))
    cell = cells(GAMES, grid)[0]
    own, given = (load_splits(one.config(cell))["test"] for one in (grid, shared))
    positive = own.labels == 1
    assert torch.equal(own.images[positive], given.images[positive])
    assert not torch.equal(own.images, given.images)
    folder = reproduce(GAMES, shared, quiet=True)
    [row] = merge_results(GAMES, [folder.path])
    assert (row["independent_share"], row["generator"]) == (1.0, 1)
    assert merge_results(GAMES, [folder.results]) == [row]
    with pytest.raises(ValueError, match=r"data\.independent_share: .* holds cells run with 1\.0, got "):
        reproduce(GAMES, replace(grid, out=shared.out), quiet=True)


test_shares_are_checked = pytest.mark.parametrize("kind", [GridData, GamesDataConfig])(refused(
    ({"independent_share": 1.5}, r"data\.independent_share: expected null or a number between 0 and 1, got 1\.5"),
    ({"independent_share": 0.5, "official_folder": "x"}, r"expected null with data\.official_folder, got 0\.5"),
    by=lambda values, *, kind: kind(**values),
))  # fmt: skip


def test_done_cells_are_skipped_and_lists_may_grow(tmp_path, in_process, capsys):
    grid = tiny_grid(tmp_path / "grid")
    folder = reproduce(GAMES, grid, quiet=True)
    assert len(in_process) == 2 and not capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in folder.cells.iterdir()}
    reproduce(GAMES, grid)
    assert "2 cells, 2 done, 0 to run" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.cells.iterdir()} == before
    folder = reproduce(GAMES, replace(grid, seeds=2), quiet=True)
    assert [cell.seed for cell in in_process] == [0, 0, 1, 1]
    (folder.path_of(in_process[1])).unlink()
    reproduce(GAMES, replace(grid, seeds=2), quiet=True)
    assert in_process[4:] == [in_process[1]]
    assert len(read_results(GAMES, folder.results)) == 4


def test_a_cell_gives_the_same_numbers_in_any_process_order(tmp_path):
    grid = tiny_grid(tmp_path)
    first, second = cells(GAMES, grid)
    for name, order in (("a", (first, second)), ("b", (second, first))):
        for cell in order:
            run_cell(GAMES, grid.config(cell), tmp_path / f"{name}-{cell['model']}.json", cache=tmp_path)
    for cell in (first, second):
        results = [json.loads((tmp_path / f"{name}-{cell['model']}.json").read_text()) for name in "ab"]
        assert results[0]["loss"] == results[1]["loss"]


@pytest.mark.slow
def test_baselines_run_in_a_grid_and_stand_beside_their_published_numbers(tmp_path, in_process):
    grid = tiny_grid(tmp_path / "grid", models=("dat-0+2-sym", *BASELINES), sizes=(250,))
    folder = reproduce(GAMES, replace(grid, loop=replace(grid.loop, batch_size=250)), quiet=True)
    assert [cell["model"] for cell in in_process] == list(grid.models)
    table = folder.comparison.read_text().split("## Hexominoes")[0]
    rows = {line.split("|")[2].strip(): line for line in table.splitlines() if line.startswith("| same")}
    assert list(rows) == [LABELS[name] for name in grid.models]
    for name, published in (("abstractor", 72.3), ("predinet", 72.6), ("corelnet", 77.4)):
        assert f"({published};" in rows[LABELS[name]]
    assert all("(–)" in rows[LABELS[name]] for name in ("corelnet-softmax", "abstractor-symbol-stream", "esbn"))


@pytest.mark.slow
def test_ctrl_c_keeps_finished_cells(tmp_path, in_process, monkeypatch):
    grid = tiny_grid(tmp_path / "grid", seeds=2)
    monkeypatch.setattr(reproduce_module, "draw_figures", draw_figures)
    with interrupted(1):
        reproduce(GAMES, grid, quiet=True)
    folder = GridFolder(GAMES, tmp_path / "grid")
    assert len(cell_rows(GAMES, whole_cells(folder.path))) == 1
    assert folder.results.exists() and (folder.figures / "heldout.png").exists()


def test_a_stopped_cell_leaves_nothing(tmp_path, monkeypatch):
    class Set:
        looks = itertools.count()

        def is_set(self):
            return next(self.looks) >= 2

    grid = tiny_grid(tmp_path)
    monkeypatch.setattr(workers, "_stop", Set())
    with pytest.raises(Interrupted):
        config = grid.config(cells(GAMES, grid)[0])
        run_cell(GAMES, config, tmp_path / "cell.json", tmp_path / "cell.safetensors", cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_dry_run_lists_cells_and_touches_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reproduce_module, "rates", lambda *_: dict.fromkeys(PRESETS, 0.5))
    grid = tiny_grid(tmp_path / "grid", workers=2)
    reproduce(GAMES, grid, dry_run=True)
    out = capsys.readouterr().out
    assert "2 cells, 0 done, 2 to run: about 27 s of one core, 13 s with 2 processes" in out
    assert "transformer-128-h2" in out
    assert not (tmp_path / "grid").exists()


def test_estimates_come_from_finished_cells_else_from_timing(tmp_path):
    grid = tiny_grid(tmp_path / "grid")
    folder = GridFolder(GAMES, grid.out)
    folder.open(grid)
    cell = cells(GAMES, grid)[0]
    assert GAMES.cost(grid.config(cell)).work == pytest.approx(16 + (8 + 8 + 16) / 3)
    folder.path_of(cell).write_text(json.dumps(fake_result(cell, 0.5)))
    found = rates(folder, grid, cells(GAMES, grid))
    assert found["dat-0+2-sym"] == pytest.approx(3.0 / GAMES.cost(grid.config(cell)).work)
    assert 1e-6 < found["transformer-128-h2"] < 1.0
    assert [duration_text(s) for s in (42.4, 200, 7500)] == ["42 s", "3 min", "2 h 05 min"]


def test_curves_average_trials(tmp_path):
    values = ((250, 60), (250, 70), (250, 80), (500, 90), (500, 80))
    rows = [{"task": "same", "model": "m", "n_train": n, "test": a} for n, a in values]
    points = curve_points(GAMES.table, rows, "test", "same", "m")
    assert [(n, mean) for n, mean, _, _ in points] == [(250, 70), (500, 85)]
    assert points[0][2:] == pytest.approx((70 - 24.841, 70 + 24.841), abs=0.01) and all(
        bound != bound for bound in points[1][2:]
    )  # NaN: two are too few


def test_published_curves():
    rows = published_rows()
    assert len(rows) == 2960
    assert {row["object_set"] for row in rows} == {"test", "hexominoes", "stripes"}
    assert all(40 <= row["accuracy"] <= 100 for row in rows)
    single = [row for row in rows if row["sd"] is not None]
    assert sum(row["trials"] for row in single if row["object_set"] == "test") == 2445 + 2501
    assert all(row["lowest"] <= row["accuracy"] <= row["highest"] and row["loss"] > 0 for row in single)
    assert len({(r["object_set"], r["task"], r["model"], r["n_train"]) for r in rows}) == len(rows)
    names = {row["model"] for row in rows}
    assert names <= set(PRESETS)
    assert names >= {*COMPARISON, "corelnet", "predinet", "abstractor"}

    def at(n, *curve):
        [found] = [point for point in published_curve(*curve) if point.point == n]
        return found

    assert at(1000, "test", "occurs", "dat-0+2-sym").mean == pytest.approx(88.6, abs=0.05)
    assert at(25000, "stripes", "match_pattern", "rca-0+2").mean == pytest.approx(89.5, abs=0.05)
    assert at(1000, "test", "occurs", "corelnet").mean == pytest.approx(86.4, abs=0.05)
    assert at(2500, "hexominoes", "same", "predinet").mean == pytest.approx(97.1, abs=0.05)
    assert at(25000, "stripes", "match_pattern", "abstractor").mean == pytest.approx(95.6, abs=0.05)
    assert at(500, "test", "same", "dat-0+2-sym") == Published(500, 74.369, 10, 1.534, 72.54, 77.64)
    assert at(500, "test", "same", "transformer-144-h8") == Published(500, 70.6)
    assert published_curve("test", "occurs", "nobody") == []


def test_published_scores_less_the_images_that_were_trained_on():
    assert overlap(1) == pytest.approx(1 / 250_000) and overlap(25_000) == pytest.approx(0.0952, abs=1e-4)
    assert without_overlap(50 + 50 * overlap(10_000), 10_000) == pytest.approx(50)
    assert without_overlap(100, 10_000) == pytest.approx(100)
    adjusted = {point.point: point.adjusted for point in published_curve("test", "match_pattern", "transformer-128-h2")}
    assert adjusted[10_000] == pytest.approx(50.4, abs=0.05)
    for curve in (("test", "same"), ("stripes", "match_pattern")):
        assert all(point.adjusted is None for point in published_curve(*curve, "transformer-128-h2"))
