"""Folders of grids: one writer, damaged cells named, a killed worker named with its cell."""

from __future__ import annotations

import json
import os

import pytest

from dual_attention.sweeps.experiment import AnySwept
from dual_attention.sweeps.grid import GridFolder, cells
from dual_attention.sweeps.reproduce import list_cells, reproduce
from dual_attention.sweeps.results import load_results
from dual_attention.sweeps.workers import WorkerDied, run_cell
from dual_attention.training.lock import LOCK, InUse

from .doomed import Doomed
from .toy import Toy, ToyGrid

TOY = Toy()


@pytest.fixture
def grid(tmp_path) -> ToyGrid:
    """A grid of which one cell is done."""
    grid = ToyGrid(out=str(tmp_path / "grid"), workers=1)
    folder = GridFolder(TOY, grid.out)
    with folder.locked():
        folder.open(grid)
        cell = cells(TOY, grid)[0]
        run_cell(TOY, grid.config(cell), folder.path_of(cell), cache=folder.path)
    return grid


def test_two_writers_of_one_grid(grid):
    with GridFolder(TOY, grid.out).locked(), pytest.raises(InUse, match=f"grid: in use by process {os.getpid()} "):
        reproduce(TOY, grid, quiet=True)


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="there already and no folder of a grid"):
        reproduce(TOY, ToyGrid(out=str(tmp_path)), quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / LOCK).touch()  # of one that was killed before it wrote anything
    with GridFolder(TOY, tmp_path / "empty").locked():
        GridFolder(TOY, tmp_path / "empty").open(ToyGrid(out=str(tmp_path / "empty")))


@pytest.mark.parametrize("contents", [b"", b"\xff", b"[]", b"{}", b'{"kind": 3}', b"null", b"[" * 100_000])
def test_a_damaged_cell_is_named(grid, contents):
    folder = GridFolder(TOY, grid.out)
    (file,) = folder.cells.iterdir()
    file.write_bytes(contents)
    for use in (lambda: load_results(TOY, grid.out), lambda: list_cells(cells(TOY, grid), grid, folder)):
        with pytest.raises(ValueError, match=rf"{file.name}: "):
            use()


@pytest.mark.slow
def test_a_killed_worker_is_named_with_its_cell(grid):
    doomed: AnySwept = Doomed()
    words = r"grid: the process of a cell was killed.*: deep__\w+__seed0 \(signal 9\); the same"
    with pytest.raises(WorkerDied, match=words):
        reproduce(doomed, grid, quiet=True)
    (done,) = [json.loads(path.read_text()) for path in GridFolder(TOY, grid.out).cells.iterdir()]
    assert done["seconds_in_all"] > 0
