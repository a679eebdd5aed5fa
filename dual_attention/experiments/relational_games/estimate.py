"""How long the cells of a grid take: from cells already run, or from a few timed steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from ..._files import read_json
from ...training.configs import OptimConfig
from ...training.optim import build_optimizer
from ...training.problem import classification_loss
from .grid import Cell, GridConfig, GridFolder
from .model import IMAGE_SHAPE, build_model
from .presets import preset

EVALUATION_SHARE = 1 / 3
"""Cost of an evaluated image as a share of a trained one's: the forward pass alone."""


def work(cell: Cell, grid: GridConfig) -> float:
    """Images that a cell trains on, evaluated ones counted by their share."""
    evaluated = grid.data.n_val + grid.data.n_test + 2 * grid.data.n_heldout
    return grid.loop.epochs * cell.n_train + EVALUATION_SHARE * evaluated


def timed_seconds_per_image(model: str, batch_size: int, steps: int = 3) -> float:
    """Seconds of training per image, from ``steps`` steps on noise with the present number of threads."""
    net = build_model(preset(model), 2, seed=0)
    optimizer = build_optimizer(net, OptimConfig())
    batch = torch.rand(batch_size, *IMAGE_SHAPE), torch.randint(2, (batch_size,))
    durations = []
    for _ in range(steps):
        started = time.perf_counter()
        loss, _ = classification_loss(net, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        durations.append(time.perf_counter() - started)
    return min(durations) / batch_size


def seconds_per_image(folder: GridFolder, grid: GridConfig, models: Sequence[str]) -> dict[str, float]:
    """Seconds of work per image for each model: the median of its finished cells, else timed on one thread."""
    measured: dict[str, list[float]] = {}
    for path in folder.cells.glob("*.json"):
        result: dict[str, Any] = read_json(path)
        cell = Cell(result["task"], result["model"], result["n_train"], result["seed"])
        measured.setdefault(cell.model, []).append(result["seconds_in_all"] / work(cell, grid))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        size = grid.loop.batch_size
        return {m: median(measured[m]) if m in measured else timed_seconds_per_image(m, size) for m in models}
    finally:
        torch.set_num_threads(threads)


def duration(seconds: float) -> str:
    """Seconds in words: 42 s, 3 min, 2 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
