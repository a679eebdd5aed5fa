"""Running the grid of learning curves: skip what is done, train the rest in parallel, write the tables and figures."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ..._extras import require
from ..._files import write_atomically
from ...training.interrupt import Interrupted, StopOnSignal
from .comparison import comparison_text
from .estimate import duration, seconds_per_image, work
from .grid import Cell, GridConfig, GridFolder, cells, sizes_of
from .plot import draw_all
from .workers import run_cells


def reproduce(grid: GridConfig, *, dry_run: bool = False, quiet: bool = False) -> GridFolder:
    """Run all cells of ``grid`` that are not done and draw the figures; with ``dry_run`` only list them.

    Raises:
        ValueError, FileExistsError: if the folder holds something else.
        Interrupted: on Ctrl-C, after the table and figures of the finished cells have been written.
    """
    folder = GridFolder(grid.out)
    every = cells(grid)
    if dry_run:
        list_cells(every, grid, folder)
        return folder
    folder.open(grid)
    todo = [cell for cell in every if not folder.done(cell)]
    workers = min(worker_count(grid), max(1, len(todo)))
    if not quiet:
        done = len(every) - len(todo)
        print(f"{folder.path}: {len(every)} cells, {done} done, {len(todo)} to run on {workers} processes", flush=True)
    with StopOnSignal() as stop:
        try:
            with GridProgress(every, todo, grid, quiet=quiet) as progress:
                for cell, seconds in run_cells(todo, grid, folder, workers, stop):
                    folder.write_results()
                    progress.done(cell, seconds)
        finally:
            rows = folder.write_results()
            draw_all(rows, folder.figures)
            if rows:
                write_atomically(folder.comparison, comparison_text(rows))
        if stop() and not all(folder.done(cell) for cell in every):
            raise Interrupted
    return folder


def worker_count(grid: GridConfig) -> int:
    """Processes that train at the same time."""
    return grid.workers or os.cpu_count() or 1


def list_cells(every: Sequence[Cell], grid: GridConfig, folder: GridFolder) -> None:
    """Print the cells, what is done of them, and the time that the rest will take."""
    rich_table = require("rich.table", extra="train")
    console = require("rich.console", extra="train").Console()
    todo = [cell for cell in every if not folder.done(cell)]
    rates = seconds_per_image(folder, grid, sorted({cell.model for cell in todo}))
    seconds = {cell: rates[cell.model] * work(cell, grid) for cell in todo}
    table = rich_table.Table()
    for column in ("task", "model"):
        table.add_column(column, no_wrap=True)
    for column in ("cells", "done", "core time left"):
        table.add_column(column, justify="right", no_wrap=True)
    for task in grid.tasks:
        for model in grid.models:
            group = [cell for cell in every if (cell.task, cell.model) == (task, model)]
            left = [cell for cell in group if cell in seconds]
            table.add_row(
                task if model == grid.models[0] else "",
                model,
                str(len(group)),
                str(len(group) - len(left)),
                duration(sum(seconds[cell] for cell in left)),
                end_section=model == grid.models[-1],
            )
    print(f"{folder.path}: {grid.seeds} trials of each point; training images:")
    for task in grid.tasks:
        print(f"  {task:{max(map(len, grid.tasks))}}  {', '.join(f'{size:,}' for size in sizes_of(grid, task))}")
    console.print(table)
    total = sum(seconds.values())
    workers = worker_count(grid)
    print(
        f"{len(every)} cells, {len(every) - len(todo)} done, {len(todo)} to run: about {duration(total)} of one core, "
        f"{duration(total / workers)} with {workers} processes.\nNothing was run (--dry_run)."
    )


class GridProgress:
    """Cells done and time left: a bar on a terminal, one line a cell elsewhere."""

    def __init__(self, every: Sequence[Cell], todo: Sequence[Cell], grid: GridConfig, *, quiet: bool = False) -> None:
        self._grid, self._quiet = grid, quiet
        self._task: Any = None
        self._cells, self._finished = len(every), len(every) - len(todo)
        self._total = sum(work(cell, grid) for cell in todo)
        self._bar: Any = None
        if not quiet and sys.stdout.isatty():
            rich = require("rich.progress", extra="train")
            self._bar = rich.Progress(
                rich.TextColumn("[bold]cells[/] {task.fields[cells]}"),
                rich.BarColumn(),
                rich.TimeElapsedColumn(),
                rich.TextColumn("left"),
                rich.TimeRemainingColumn(),
                rich.TextColumn("{task.fields[last]}"),
                speed_estimate_period=3600,
            )
            self._task = self._bar.add_task("", total=self._total, cells=self._count(), last="")

    def _count(self) -> str:
        return f"{self._finished}/{self._cells}"

    def __enter__(self) -> GridProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def extend(self, more: Sequence[Cell]) -> None:
        """Further cells are going to be run."""
        self._cells += len(more)
        self._total += sum(work(cell, self._grid) for cell in more)
        if self._bar is not None:
            self._bar.update(self._task, total=self._total, cells=self._count())

    def done(self, cell: Cell, seconds: float, line: str = "") -> None:
        """One more cell is done; a ``line`` about it stays on the screen."""
        self._finished += 1
        text = f"{cell.task} {cell.model} n={cell.n_train} seed {cell.seed} ({seconds:.0f} s)"
        if self._bar is not None:
            if line:
                self._bar.console.print(line, highlight=False)
            last = "" if line else text
            self._bar.update(self._task, advance=work(cell, self._grid), cells=self._count(), last=last)
        elif not self._quiet:
            print(line or f"{self._count()}  {text}", flush=True)
