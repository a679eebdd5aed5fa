"""Folders of grids: one writer, damaged cells named, a killed worker named with its cell."""

import json
import os
import re
from dataclasses import replace

import pytest

from dat.cli.main import main
from dat.experiments import EXPERIMENTS, Entry
from dat.sweeps.experiment import AnySwept
from dat.sweeps.grid import GridFolder, cells
from dat.sweeps.reproduce import list_cells, remove_plan, reproduce
from dat.sweeps.results import load_results, to_csv
from dat.sweeps.workers import CellsFailed, NotPrepared, WorkerDied, run_cell
from dat.training.configs import LoopConfig, OptimConfig
from dat.training.lock import LOCK, InUse
from dat.training.loop import Diverged
from examples.my_experiment import Sums, SumsGrid
from tests.support.processes import fork_workers
from tests.support.refusals import refusals

from .doomed import Alike, Delayed, Doomed, Failing, Lacking

TOY = Sums()


@pytest.fixture
def grid(tmp_path) -> SumsGrid:
    """A grid of which one cell is done."""
    grid = SumsGrid(out=str(tmp_path / "grid"), workers=1)
    folder = GridFolder(TOY, grid.out)
    with folder.locked():
        folder.open(grid)
        cell = cells(TOY, grid)[0]
        run_cell(TOY, grid.config(cell), folder.path_of(cell), cache=folder.path)
    return grid


def test_two_writers_of_one_grid(grid):
    with GridFolder(TOY, grid.out).locked(), pytest.raises(InUse, match=f"grid: in use by process {os.getpid()} "):
        reproduce(TOY, grid, quiet=True)


def test_results_are_read_once_after_each_cell(grid, in_process, monkeypatch):
    """And once where no cell is left to run."""
    write, read = GridFolder.write_results, []
    monkeypatch.setattr(GridFolder, "write_results", lambda self: read.append(rows := write(self)) or rows)
    for expected in ([2, 3, 4], [4]):
        read.clear()
        reproduce(TOY, grid, quiet=True)
        assert [*map(len, read)] == expected


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="there already and no folder of a grid"):
        reproduce(TOY, SumsGrid(out=str(tmp_path)), quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / LOCK).touch()  # of one that was killed before it wrote anything
    with GridFolder(TOY, tmp_path / "empty").locked():
        GridFolder(TOY, tmp_path / "empty").open(SumsGrid(out=str(tmp_path / "empty")))


def test_a_grid_that_ran_nothing_is_given_anew(tmp_path):
    grid = SumsGrid(out=str(tmp_path / "grid"), workers=1)
    wrong = replace(grid, device="cuda")
    folder = GridFolder(TOY, grid.out)
    folder.open(wrong)
    folder.open(grid)
    assert "device: cpu\n" in folder.config.read_text()
    (folder.cells / "one.json").write_text("{}")
    with pytest.raises(ValueError, match=r"grid holds cells run with cpu, got cuda"):
        folder.open(wrong)


@pytest.mark.parametrize("contents", [b"", b"\xff", b"[]", b"{}", b'{"kind": 3}', b"null", b"[" * 100_000])
def test_a_damaged_cell_is_named(grid, contents):
    folder = GridFolder(TOY, grid.out)
    (file,) = folder.cells.iterdir()
    file.write_bytes(contents)
    for use in (lambda: load_results(TOY, grid.out), lambda: list_cells(cells(TOY, grid), grid, folder)):
        with pytest.raises(ValueError, match=rf"{file.name}: "):
            use()


TABLE = "kind,n_train,seed,parameters,val,steps,seconds\n"


@refusals(
    (b"\x89PNG\r\n", "damaged, or no table of results .*utf-8"),
    (b"to be or\nnot to be\n", "line 2, to be or: expected a number, got not to be"),
    (TABLE + "linear,8,1,10,5", r"line 2: expected 7 entries, got 5"),
    (TABLE + "linear,8,1,10,5,6,7,8", r"line 2: expected 7 entries, got 8"),
    (TABLE + "linear,8,1,10,5,6,7\nlinear,16,x,10,5,6,7", "line 3, seed: expected a number, got x"),
    (TABLE + "linear,8,nan,10,5,6,7", "line 2, seed: expected a number, got nan"),
    (TABLE + "linear,8,1,10,inf,6,7", "line 2, val: expected a number, got inf"),
    # NUL is what Python 3.10 says
    (TABLE + "lin\0ear,8,1,10,5,6,7", r"(?:line 2, kind: expected a text to print, got lin\\x00ear|NUL)"),
    (TABLE + "linear,8,1.5,10,5,6,7", "seed: expected an integer, got 1.5"),
    (TABLE + "linear,8,1,10,5,6,7\nlinear,16,,10,5,6,7", "expected kind, n_train, seed in every line"),
    (TABLE + "linear,8,1,10,5,6," + "7" * 200_000, "field larger than field limit"),
    ("kind," + TABLE, "a column is there twice"),
    (TABLE, FileNotFoundError, "expected results, found none"),
    ("", FileNotFoundError, "expected results, found none"),
    of="contents",
)
def test_a_damaged_table_is_named(contents, error, message, tmp_path):
    path = tmp_path / "results.csv"
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    with pytest.raises(error, match=rf"results\.csv: .*{message}"):
        load_results(TOY, path)


def test_a_table_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text(TABLE + "linear,8,1,10,5.5,6,7\n\n", encoding="utf-8-sig")
    (row,) = load_results(TOY, path)
    assert row == {"kind": "linear", "n_train": 8, "seed": 1, "parameters": 10, "val": 5.5, "steps": 6, "seconds": 7}


def test_a_table_holds_no_text_that_a_spreadsheet_would_compute(tmp_path):
    """Whoever wrote the results that it was merged from; read again, all is as it was."""
    kinds = ["=1+2", "'=1+2", "@SUM(A1)", "-x", "-1", "'", "linear"]
    rows = [{"kind": kind, "n_train": -8, "seed": 1, "val": -5.5, "steps": 6, "=1": 7} for kind in kinds]
    path = tmp_path / "results.csv"
    path.write_text(to_csv(rows))
    heading, *lines = path.read_text().splitlines()
    assert heading == "kind,n_train,seed,val,steps,'=1"
    assert [line.split(",")[0] for line in lines] == ["'=1+2", "''=1+2", "'@SUM(A1)", "'-x", "-1", "'", "linear"]
    assert load_results(TOY, path) == rows


def change(path) -> None:
    """Another digit in a result."""
    text = path.read_text()
    digit = next(character for character in text if character.isdigit())
    path.write_text(text.replace(digit, str((int(digit) + 1) % 10)))


@pytest.mark.parametrize("damage", [change, lambda path: path.unlink(), lambda path: path.write_bytes(b"null")])
def test_a_recorded_cell_that_was_changed_or_lost(grid, in_process, damage, monkeypatch, capsys):
    """It is refused by name where it is read, and computed again by the command that runs the grid."""
    grid = replace(grid, seeds=2)
    monkeypatch.setattr("dat.sweeps.reproduce.draw_figures", lambda *_: None)
    folder, untimed = reproduce(TOY, grid, quiet=True), {"seconds": 0, "parameters": 0}
    rows = load_results(TOY, grid.out)
    assert len(rows) == 8 and not folder.left(cells(TOY, grid)) and not capsys.readouterr().err
    cell = cells(TOY, grid)[-1]
    damage(folder.path_of(cell))
    with pytest.raises((ValueError, FileNotFoundError), match=rf"{cell.name}.json: (damaged or changed|missing)"):
        load_results(TOY, grid.out)
    assert folder.left(cells(TOY, grid)) == [cell]
    with pytest.raises((ValueError, FileNotFoundError), match=f"{cell.name}.json"):  # it is in no smaller grid
        reproduce(TOY, replace(grid, seeds=1), quiet=True)
    reproduce(TOY, grid, quiet=True)
    assert f"{cell.name}.json: damaged or lost; computed again" in capsys.readouterr().err
    found = [[{**row, **untimed} for row in run] for run in (rows, load_results(TOY, grid.out))]
    assert found[0] == found[1]


def test_weights_of_a_cell_are_recorded(grid):
    folder, cell = GridFolder(TOY, grid.out), cells(TOY, grid)[0]
    folder.weights_of(cell).write_bytes(b"weights")
    folder.record(cell)
    assert len(json.loads((folder.path / "checksums.json").read_text())) == 2
    folder.weights_of(cell).write_bytes(b"other")
    assert cell in folder.left([cell])
    assert folder.forget([cell]) == [folder.path_of(cell), folder.weights_of(cell)]
    assert not list(folder.cells.iterdir()) and json.loads((folder.path / "checksums.json").read_text()) == {}


def test_cells_whose_weights_were_not_kept_are_named(grid, in_process, monkeypatch, capsys):
    monkeypatch.setattr("dat.sweeps.reproduce.draw_figures", lambda *_: None)
    first, *others = (cell.name for cell in cells(TOY, grid))
    reproduce(TOY, replace(grid, keep_weights=True))
    said = f"1 cell done earlier without keep_weights, so there are no weights of {first}; a cell whose .json is"
    assert said in capsys.readouterr().err
    assert in_process == others
    reproduce(TOY, grid)
    assert "keep_weights" not in capsys.readouterr().err


@pytest.mark.parametrize("contents", ["", "{}", "# nothing"])
def test_a_plan_that_was_emptied_is_not_the_default_one(grid, contents):
    folder = GridFolder(TOY, grid.out)
    folder.open(grid)
    folder.config.write_text(contents)
    with pytest.raises(ValueError, match=r"grid\.yaml: expected keys and values, got none"):
        folder.not_run()


def test_cells_that_were_not_run_are_named(grid, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(EXPERIMENTS, "sums", Entry("sums", "examples.my_experiment:Sums", {"reproduce": "sums"}))
    monkeypatch.setattr("dat.sweeps.report.draw_figures", lambda *_: None)
    assert main(["plot", "sums", grid.out, "--out", str(tmp_path / "figures")]) == 0
    named = "deep__8__seed0, linear__16__seed0, deep__16__seed0"
    assert f"dat: {grid.out}: cells not run: {named}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_worker_is_named_with_its_cell(grid, monkeypatch):
    fork_workers(monkeypatch)
    doomed: AnySwept = Doomed()
    words = r"grid: the process of a cell was killed.*: deep__\w+__seed0 \(signal 9\); the same"
    with pytest.raises(WorkerDied, match=words):
        reproduce(doomed, grid, quiet=True)
    (done,) = [json.loads(path.read_text()) for path in GridFolder(TOY, grid.out).cells.iterdir()]
    assert done["seconds_in_all"] > 0


EACH = "no network of 8 examples (RuntimeError; DAT_DEBUG=1 shows where)"
LACKS = r"\(all: data.folder: expected numbers.txt, found nothing\)"


@pytest.mark.slow
@refusals(
    (Failing, 2, EACH, rf"2 cells failed: linear__8__seed0, linear__16__seed0 \(first: {re.escape(EACH)}\); the"),
    (Alike, 0, "no network", r"4 cells failed: linear__8__seed0, .* \(all: no network \(RuntimeError"),
    (Delayed, 0, None, "4 cells failed: linear__8__seed0, "),
    (Lacking, 2, None, f"2 cells failed: deep__8__seed0, deep__16__seed0 {LACKS}"),
    of="kind, done, said",
    error=CellsFailed,
)
def test_cells_that_fail_do_not_stop_the_others(tmp_path, monkeypatch, capsys, kind, done, said, error, message):
    """They are named in the order of the grid; a reason that all share is said once."""
    fork_workers(monkeypatch)
    monkeypatch.setenv("LACKING", "deep")
    experiment: AnySwept = kind()
    grid = SumsGrid(out=str(tmp_path / "grid"), workers=2 if kind is Delayed else 1)
    with pytest.raises(error, match=f"grid: {message}"):
        reproduce(experiment, grid, quiet=True)
    folder, lines = GridFolder(experiment, grid.out), capsys.readouterr().err.splitlines()
    assert len([*folder.cells.iterdir()]) == done and (not done or len(load_results(experiment, folder.path)) == done)
    assert said is None or any(f"dat: linear__8__seed0 failed: {said}" in line for line in lines)
    assert kind is not Alike or len(lines) == 1
    assert folder.comparison.is_file() or not done


@pytest.mark.slow
def test_a_grid_without_its_data_begins_no_cell(tmp_path, monkeypatch, capsys):
    """The command says so once and leaves no folder of its own; another folder, and what is in one, it leaves alone."""
    fork_workers(monkeypatch)
    monkeypatch.setenv("LACKING", "linear")
    lacking: AnySwept = Lacking()
    grid, folder = SumsGrid(out=str(tmp_path / "grid"), workers=1), tmp_path / "grid"
    with pytest.raises(NotPrepared, match=r"^data.folder: expected numbers.txt, found nothing$"):
        reproduce(lacking, grid, quiet=True)
    assert not folder.exists() and not capsys.readouterr().err
    folder.mkdir()
    with pytest.raises(NotPrepared):
        reproduce(lacking, grid, quiet=True)
    assert (folder / "grid.yaml").is_file()


@pytest.mark.parametrize(("kept", "there"), [("tokens/text.npy", True), ("cells/one.json", True), ("tokens", False)])
def test_a_plan_is_removed_and_nothing_that_was_computed(tmp_path, kept, there):
    folder = GridFolder(TOY, tmp_path / "grid")
    with folder.locked():
        folder.open(SumsGrid(out=str(folder.path)))
        (folder.path / kept).parent.mkdir(exist_ok=True)
        (folder.path / kept).touch() if there else (folder.path / kept).mkdir()
        remove_plan(folder)
    assert folder.config.exists() is there is (folder.path / kept).exists()


@pytest.mark.parametrize("lr", [1e30, float("inf")])
def test_nothing_of_a_cell_that_diverged_is_written(grid, lr):
    """Neither one whose last update spoilt the weights, nor one whose weights are too large for a finite loss."""
    folder, cell = GridFolder(TOY, grid.out), cells(TOY, grid)[1]
    config = replace(grid.config(cell), loop=LoopConfig(epochs=1, batch_size=8), optim=optimizer(lr))
    with pytest.raises(Diverged, match=r"(weights became|the loss on val became) .* in epoch 1 \(step 1\): try"):
        run_cell(TOY, config, folder.path_of(cell), cache=folder.path)
    assert not folder.done(cell)


def optimizer(lr: float) -> OptimConfig:
    """One with any rate."""
    config = OptimConfig(schedule="constant")
    object.__setattr__(config, "lr", lr)
    return config


def test_what_is_listed_twice_is_one_cell(monkeypatch):
    once = cells(TOY, SumsGrid(seeds=2))
    points = SumsGrid.points
    monkeypatch.setattr(SumsGrid, "points", lambda grid: 2 * points(grid))
    assert cells(TOY, SumsGrid(seeds=2)) == once
