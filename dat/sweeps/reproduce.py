"""Running a grid: skip what is done, train the rest in parallel, write the tables and figures."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dual_attention._base.extras import require
from dual_attention._base.files import write_atomically
from dual_attention._base.words import counted, listed, printable

from .._terminal import tell
from ..training.interrupt import Interrupted, StopOnSignal
from ..training.lock import LOCK
from ..training.tables import show
from .durations import duration_text, rates
from .experiment import AnySwept
from .grid import Cell, GridConfig, GridFolder, cells
from .report import comparison_text, draw_figures
from .workers import NotPrepared, run_cells


def reproduce(experiment: AnySwept, grid: GridConfig, *, dry_run: bool = False, quiet: bool = False) -> GridFolder:
    """Run all cells of ``grid`` that are not done and draw the figures; with ``dry_run`` only check and list them.

    Raises:
        ValueError, FileExistsError: if the folder holds something else.
        InUse: if another process runs cells in it.
        Interrupted: on Ctrl-C, after the table and figures of the finished cells have been written.
        NotPrepared: if the first cell cannot be prepared; a folder that was made for the grid is removed again.
        WorkerDied: if the process of a cell was killed.
    """
    folder, every = GridFolder(experiment, grid.out), cells(experiment, grid)
    if dry_run:
        folder.check(grid)
        list_cells(every, grid, folder)
        return folder
    new = not folder.path.exists()
    with folder.locked():
        folder.open(grid)
        try:
            run_waiting(folder, grid, every, quiet=quiet)
        except NotPrepared:
            if new:
                remove_plan(folder)
            raise
    return folder


def remove_plan(folder: GridFolder) -> None:
    """Remove the folder of a grid that holds its plan and nothing that was computed."""
    plan = {folder.path / name for name in (folder.config.name, LOCK)}
    if plan.issuperset(path for path in folder.path.rglob("*") if not path.is_dir()):
        shutil.rmtree(folder.path)


def run_waiting(folder: GridFolder, grid: GridConfig, every: Sequence[Cell], *, quiet: bool) -> None:
    """Run the cells of an open folder that are not done, and write the table and figures."""
    experiment = folder.experiment
    waiting = folder.left(every)
    for path in folder.forget(waiting):
        tell(f"{path}: damaged or lost; computed again")
    workers = min(worker_count(grid), max(1, len(waiting)))
    if not quiet:
        done = len(every) - len(waiting)
        print(
            f"{folder.path}: {counted(len(every), 'cell')}, {done} done, {len(waiting)} to run on "
            f"{counted(workers, 'process', 'processes')}",
            flush=True,
        )
    if grid.keep_weights and not quiet and (bare := folder.without_weights(every)):
        print(
            printable(
                f"dat: {folder.path}: {counted(len(bare), 'cell')} done earlier without keep_weights, so there are no "
                f"weights of {listed([cell.name for cell in bare])}; a cell whose .json is removed is run again"
            ),
            file=sys.stderr,
        )
    rows = None
    with StopOnSignal() as stop:
        try:
            with GridProgress(experiment, every, waiting, grid, quiet=quiet) as progress:
                for cell, seconds in run_cells(waiting, grid, folder, workers, stop, quiet=quiet):
                    rows = None  # until those with the cell are written
                    rows = folder.write_results()
                    progress.done(cell, seconds)
        finally:
            rows = folder.write_results() if rows is None else rows
            if rows:
                write_atomically(folder.comparison, comparison_text(experiment.table, rows))
                draw_figures(experiment.table, rows, folder.figures)
        if stop() and not all(folder.done(cell) for cell in every):
            raise Interrupted(f"the same command continues in {folder.path}")


def worker_count(grid: GridConfig) -> int:
    """Processes that train at the same time."""
    return grid.workers or os.cpu_count() or 1


def list_cells(every: Sequence[Cell], grid: GridConfig, folder: GridFolder) -> None:
    """Print the cells, what is done of them, and the time that the rest will take, where that is known."""
    experiment = folder.experiment
    waiting = folder.left(every)
    rate_of, curve = rates(folder, grid, waiting), experiment.table.curve_axis.name
    seconds = {
        cell: rate_of[cell[curve]] * experiment.cost(grid.config(cell)).work if cell[curve] in rate_of else None
        for cell in waiting
    }
    *groups, point = (axis.name for axis in experiment.table.axes)
    sizes: dict[str, list[Any]] = {}
    for cell in every:
        sizes.setdefault(" ".join(str(cell[name]) for name in groups[:-1]), []).append(cell[point])
    print(f"{folder.path}: {counted(grid.seeds, 'trial')} of each point; {experiment.table.point_axis.plural}:")
    for panel, values in sizes.items():
        print(f"  {panel:{max(map(len, sizes))}}  {', '.join(f'{value:,}' for value in dict.fromkeys(values))}")
    show(table_of_cells(every, seconds, groups))
    print(
        f"{counted(len(every), 'cell')}, {len(every) - len(waiting)} done, {len(waiting)} to run: "
        f"{time_left(list(seconds.values()), grid, curve)}.\nNothing was run (--dry_run)."
    )


def time_left(seconds: Sequence[float | None], grid: GridConfig, curve: str) -> str:
    """Time that cells take, in words; None is that of a cell of which it is not known."""
    known = [one for one in seconds if one is not None]
    if len(known) < len(seconds):
        return f"their time on {grid.device} is not estimated until a cell of each {curve} is done"
    workers = min(worker_count(grid), max(1, len(known)))
    together = max([sum(known) / workers, *known])
    return (
        f"about {duration_text(sum(known))} of one {'core' if grid.device == 'cpu' else 'process'}, "
        f"{duration_text(together)} with {counted(workers, 'process', 'processes')}"
    )


def table_of_cells(every: Sequence[Cell], seconds: Mapping[Cell, float | None], groups: Sequence[str]) -> Any:
    """A rich table with a line for each combination of the axes ``groups``.

    Args:
        seconds: of the cells to run, None where they are not known.
    """
    table = require("rich.table", extra="train").Table()
    for column in groups:
        table.add_column(column, no_wrap=True)
    for column in ("cells", "done", "process time left"):
        table.add_column(column, justify="right", no_wrap=True)
    found: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in every:
        found.setdefault(tuple(cell[name] for name in groups), []).append(cell)
    for key, group in found.items():
        left = [seconds[cell] for cell in group if cell in seconds]
        known = [one for one in left if one is not None]
        time = duration_text(sum(known)) if len(known) == len(left) else "–"
        table.add_row(*map(str, key), str(len(group)), str(len(group) - len(left)), time)
    return table


class GridProgress:
    """Cells done and time left: a bar on a terminal, one line a cell elsewhere."""

    def __init__(
        self,
        experiment: AnySwept,
        every: Sequence[Cell],
        waiting: Sequence[Cell],
        grid: GridConfig,
        *,
        quiet: bool = False,
    ) -> None:
        rich = require("rich.progress", extra="train")
        self._experiment, self._quiet = experiment, quiet
        self._live = not quiet and sys.stdout.isatty()
        self._cells, self._finished = len(every), len(every) - len(waiting)
        self._work: dict[Cell, float] = {cell: experiment.cost(grid.config(cell)).work for cell in waiting}
        self._bar: Any = rich.Progress(
            rich.TextColumn("[bold]cells[/] {task.fields[cells]}"),
            rich.BarColumn(),
            rich.TimeElapsedColumn(),
            rich.TextColumn("left"),
            rich.TimeRemainingColumn(),
            rich.TextColumn("{task.fields[last]}"),
            speed_estimate_period=3600,
            disable=not self._live,
        )
        self._task: Any = self._bar.add_task("", total=sum(self._work.values()), cells=self._count(), last="")

    def _count(self) -> str:
        return f"{self._finished}/{self._cells}"

    def __enter__(self) -> GridProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def done(self, cell: Cell, seconds: float) -> None:
        """Count one more cell."""
        self._finished += 1
        axes = zip(self._experiment.table.axes, cell.values, strict=True)
        words = [f"{axis.prefix}={value}" if axis.prefix else str(value) for axis, (_, value) in axes]
        text = f"{' '.join(words)} seed {cell.seed} ({seconds:.0f} s)"
        if self._live:
            self._bar.update(self._task, advance=self._work[cell], cells=self._count(), last=text)
        elif not self._quiet:
            print(f"{self._count()}  {text}", flush=True)
