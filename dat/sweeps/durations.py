"""Durations of the cells of a grid: from cells already run, or from a few timed steps."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

from .._terminal import tell
from ..training.loop import Trainer
from ..training.problem import Problem
from .experiment import AnySwept
from .grid import Cell, GridConfig, GridFolder
from .results import each_cell, sound_cells

EVALUATION_SHARE = 1 / 3
"""Cost of an evaluated example as a share of a trained one's: the forward pass only."""


LONGEST_STEP = 2.0
"""Seconds of a step, about, from which on more examples in it would tell no more about their time."""


SILENCE = 5.0
"""Seconds, about, after which timing says how far it is."""


def timing_problem(experiment: AnySwept, config: Any) -> Problem:
    """A problem on which the steps of a run are timed."""
    if (make := experiment.cost(config).problem) is not None:
        return make()
    with tempfile.TemporaryDirectory() as folder:
        return experiment.prepare(config, cache=Path(folder)).problem


def timed_rate(experiment: AnySwept, config: Any, steps: int = 3) -> float:
    """Seconds for each example of training, from a few steps with the present number of threads.

    They are of a whole batch, or of as much of it as takes about :data:`LONGEST_STEP`.
    """
    trainer = Trainer(timing_problem(experiment, config), config)
    most = min(config.loop.batch_size, len(trainer.problem.train))
    size = max(1, most // 64)
    while (seconds := _timed_step(trainer, size)) < LONGEST_STEP / 2 and size < most:
        size = min(most, 2 * size)
    return min(seconds, *(_timed_step(trainer, size) for _ in range(steps))) / size


def _timed_step(trainer: Trainer, size: int) -> float:
    """Seconds of a step on the first ``size`` examples."""
    started = time.perf_counter()
    trainer.train_step(torch.arange(size))
    return time.perf_counter() - started


@contextmanager
def one_thread() -> Iterator[None]:
    """Context in which PyTorch has one thread, as a cell has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def rates(folder: GridFolder, grid: GridConfig, waiting: Sequence[Cell]) -> dict[str, float]:
    """Seconds for each unit of work, by curve: the median of the grid's finished cells, else timed on one thread.

    Curves of which no cell is finished are left out where cells do not run on the CPU.
    """
    experiment = folder.experiment
    axis = experiment.table.curve_axis.name
    measured: dict[str, list[float]] = {}
    points = grid.points()  # a narrower grid may share its folder with cells that are none of its own

    def timed(result: dict[str, Any]) -> tuple[Cell, float]:
        return Cell.of(experiment.table.axes, result, result["seed"]), result["seconds_in_all"]

    for cell, seconds in each_cell(sound_cells(folder.path), timed):
        if dict(cell.values) in points:
            measured.setdefault(cell[axis], []).append(seconds / experiment.cost(grid.config(cell)).work)
    found = {curve: median(values) for curve, values in measured.items()}
    if grid.device != "cpu":
        return found
    unknown = {cell[axis]: cell for cell in reversed(waiting) if cell[axis] not in found}  # the first of each
    said = time.monotonic()
    with one_thread():
        for number, (curve, cell) in enumerate(reversed(unknown.items()), 1):
            config = grid.config(cell)
            found[curve] = timed_rate(experiment, config) / experiment.cost(config).example_work
            if time.monotonic() - said > SILENCE and number < len(unknown):
                said = time.monotonic()
                tell(f"timed {number} of {len(unknown)}")
    return found


def duration_text(seconds: float) -> str:
    """Seconds in words: 42 s, 3 min, 2 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
