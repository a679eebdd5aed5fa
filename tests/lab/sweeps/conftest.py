"""Grids whose cells are run in this process."""

import pytest

from dat.sweeps import reproduce
from dat.sweeps.workers import CellsFailed, entries_beside, run_cell
from dat.training.loop import Diverged


@pytest.fixture
def in_process(monkeypatch) -> list[str]:
    """Cells are run here, one after another; returns their names as they are run."""
    names = []

    def run_cells(waiting, grid, folder, workers, stop, *, quiet):
        failed = {}
        for cell in waiting:
            names.append(cell.name)
            config, path = grid.config(cell), folder.path_of(cell)
            beside = entries_beside(folder.experiment, grid, cell, config)
            try:
                seconds = run_cell(folder.experiment, config, path, cache=folder.path, beside=beside)
            except Diverged as error:
                failed[cell] = error
                continue
            folder.record(cell)
            yield cell, seconds
        if failed:
            raise CellsFailed("cells failed", failed)

    monkeypatch.setattr(reproduce, "run_cells", run_cells)
    return names
