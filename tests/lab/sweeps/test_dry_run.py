"""What ``--dry_run`` says of the time that a grid will take, and that it refuses what the grid would refuse."""

from dataclasses import replace

import pytest

from dat.sweeps import durations
from dat.sweeps.durations import timed_rate
from dat.sweeps.grid import GridFolder, cells
from dat.sweeps.reproduce import reproduce, time_left
from dat.sweeps.workers import run_cell
from examples.my_experiment import Sums, SumsConfig, SumsGrid

TOY = Sums()


@pytest.fixture
def grid(tmp_path) -> SumsGrid:
    """A grid of which all cells but the last are done."""
    grid = SumsGrid(out=str(tmp_path / "grid"), workers=16)
    folder = GridFolder(TOY, grid.out)
    folder.open(grid)
    for cell in cells(TOY, grid)[:-1]:
        run_cell(TOY, grid.config(cell), folder.path_of(cell), cache=folder.path)
    return grid


def test_no_more_processes_than_cells_are_left(grid, capsys):
    reproduce(TOY, grid, dry_run=True)
    assert "4 cells, 3 done, 1 to run: about 0 s of one core, 0 s with 1 process." in capsys.readouterr().out
    assert time_left([60.0] * 4, grid, "kind") == "about 4 min of one core, 60 s with 4 processes"
    assert time_left([60.0] * 17, grid, "kind") == "about 17 min of one core, 64 s with 16 processes"
    assert time_left([10.0, 60.0], grid, "kind").endswith("60 s with 2 processes")  # the longest
    assert time_left([], grid, "kind") == "about 0 s of one core, 0 s with 1 process"


def test_timing_says_how_far_it_is(tmp_path, capsys, monkeypatch):
    """Once in a while, and each curve once."""
    monkeypatch.setattr(durations, "SILENCE", -1.0)
    reproduce(TOY, SumsGrid(out=str(tmp_path / "grid")), dry_run=True)
    assert capsys.readouterr().err == "dat: timed 1 of 2\n"


def test_a_gpu_is_not_timed_on_the_cpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(durations, "timed_rate", None)
    grid = SumsGrid(out=str(tmp_path / "grid"), device="cuda")
    reproduce(TOY, grid, dry_run=True)
    words = "4 cells, 0 done, 4 to run: their time on cuda is not estimated until a cell of each kind is done."
    assert words in capsys.readouterr().out
    left = time_left([80.0, 40.0], replace(grid, workers=2), "kind")
    assert left == "about 2 min of one process, 80 s with 2 processes"


@pytest.mark.parametrize(
    ("speed", "sizes"), [(0.5, [1, 2, 2, 2, 2]), (30.0, [1, 1, 1, 1]), (0.01, [1, 2, 4, 8, 8, 8, 8])]
)
def test_long_steps_are_timed_on_fewer_examples(speed, sizes, monkeypatch):
    seen = []
    monkeypatch.setattr(durations, "_timed_step", lambda trainer, size: seen.append(size) or speed * size)
    assert timed_rate(TOY, SumsConfig()) == pytest.approx(speed)
    assert seen == sizes


def test_other_settings_are_refused_and_nothing_is_written(grid):
    folder = GridFolder(TOY, grid.out)
    before = {path: path.stat().st_mtime_ns for path in sorted(folder.path.rglob("*"))}
    with pytest.raises(ValueError, match=r"device: .*holds cells run with cpu, got cuda"):
        reproduce(TOY, replace(grid, device="cuda"), dry_run=True)
    reproduce(TOY, grid, dry_run=True)
    assert {path: path.stat().st_mtime_ns for path in sorted(folder.path.rglob("*"))} == before
