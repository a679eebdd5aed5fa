"""Durations of the cells of a grid: from cells already run, or from a few timed steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from .._files import read_json_object
from ..training.loop import Trainer
from .experiment import AnySwept
from .grid import Cell, GridConfig, GridFolder
from .results import cell_files, named_cell

EVALUATION_SHARE = 1 / 3
"""Cost of an evaluated example as a share of a trained one's: the forward pass only."""


def timed_rate(experiment: AnySwept, config: Any, steps: int = 3) -> float:
    """Seconds for each example of training, from a few steps with the present number of threads."""
    problem = experiment.timing_problem(config)
    trainer = Trainer(problem, config)
    batch = torch.arange(min(config.loop.batch_size, len(problem.train)))
    durations = []
    for _ in range(steps):
        started = time.perf_counter()
        trainer.train_step(batch)
        durations.append(time.perf_counter() - started)
    return min(durations) / len(batch)


def rates(folder: GridFolder, grid: GridConfig, waiting: Sequence[Cell]) -> dict[str, float]:
    """Seconds for each example of work, by curve: the median of finished cells, else timed on one thread."""
    experiment = folder.experiment
    axis = experiment.curve_axis.name
    measured: dict[str, list[float]] = {}
    for path in cell_files(folder.path):
        with named_cell(path):
            result = read_json_object(path)
            cell = Cell.of(experiment.axes, result, result["seed"])
            measured.setdefault(cell[axis], []).append(result["seconds_in_all"] / experiment.work(grid.config(cell)))
    found = {curve: median(values) for curve, values in measured.items()}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for cell in waiting:
            if cell[axis] not in found:
                found[cell[axis]] = timed_rate(experiment, grid.config(cell))
    finally:
        torch.set_num_threads(threads)
    return found


def duration_text(seconds: float) -> str:
    """Seconds in words: 42 s, 3 min, 2 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
