"""What the scripts on runs of Relational Games share: tables, and cells beside the published ones.

Imported by agreement.py. Cells are of an object set, model and size.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from dat.experiments.relational_games.published import published_rows
from dat.training.metrics import Row

from .protocol_cells import CellFit

RESULTS = Path(__file__).parent / "results"
MAIN = RESULTS / "main" / "results.csv"
MODELS = ("transformer-128-h2", "dat-0+2-sym", "dat-1+1-sym")
EPOCHS, BATCH = 100, 512
NAMES = {
    "test": "pentominoes",
    "hexominoes": "hexominoes",
    "stripes": "stripes",
    "transformer-128-h2": "Transformer",
    "dat-0+2-sym": "DAT 0+2",
    "dat-1+1-sym": "DAT 1+1",
    "dat-0+2-asym": "DAT 0+2, asymmetric",
    "dat-1+1-asym": "DAT 1+1, asymmetric",
    "rca-0+2": "RCA 0+2",
    "rca-1+1": "RCA 1+1",
    "corelnet": "CoRelNet",
    "abstractor": "Abstractor",
    "predinet": "PrediNet",
}


class Cell(NamedTuple):
    """What one mean is of."""

    object_set: str
    model: str
    n_train: int


class Run(NamedTuple):
    """What one run ended with: accuracy in percent, loss in nats."""

    accuracy: float
    loss: float


Runs = Mapping[Cell, Mapping[int, Run]]
"""Runs by cell and seed."""


def cells_of(object_sets: Sequence[str], models: Sequence[str], sizes: Sequence[int]) -> list[Cell]:
    """All combinations."""
    return [Cell(*combination) for combination in product(object_sets, models, sizes)]


def runs_of(rows: Sequence[Row], task: str, cells: Sequence[Cell], epochs: int = EPOCHS) -> Runs:
    """The runs of a task by batches of ``BATCH`` that are of the cells; every cell has an entry.

    Raises:
        ValueError: if one of them has no accuracy or no positive loss.
    """
    found: dict[Cell, dict[int, Run]] = {cell: {} for cell in cells}
    for row in rows:
        if (row["task"], row["batch_size"], row["epochs"]) == (task, BATCH, epochs):
            for of in {cell.object_set for cell in cells}:
                cell = Cell(of, row["model"], row["n_train"])
                if cell in found:
                    if of not in row or not row.get(f"{of}_loss", 0) > 0:
                        raise ValueError(
                            f"expected accuracies and positive losses of {of}, found none in a line of {task}"
                        )
                    found[cell][row["seed"]] = Run(row[of], row[f"{of}_loss"])
    return found


def fits(task: str, runs: Runs, theirs: Mapping[Cell, Row], epochs: int) -> list[CellFit]:
    """The cells beside the published ones."""
    found = []
    for cell, of_seed in runs.items():
        accuracies, losses = (tuple(getattr(run, name) for run in of_seed.values()) for name in Run._fields)
        found.append(CellFit((BATCH, epochs), task, cell.model, cell.n_train, accuracies, losses, theirs[cell]))
    return found


def published(task: str, cells: Sequence[Cell]) -> dict[Cell, Row]:
    """The published runs of each cell: their mean, spread and range; ValueError naming a cell without."""
    rows = {
        Cell(row["object_set"], row["model"], row["n_train"]): row for row in published_rows() if row["task"] == task
    }
    if unknown := [cell for cell in cells if cell not in rows]:
        raise ValueError(f"{task}: expected published cells, got {unknown[0].model} with {unknown[0].n_train} images")
    return {cell: rows[cell] for cell in cells}


def outside(cells: Iterable[CellFit]) -> tuple[int, int]:
    """How many runs are below all published ones of their cell, and how many above."""
    runs = [(accuracy, cell.published) for cell in cells for accuracy in cell.accuracies]
    below = sum(accuracy < row["lowest"] for accuracy, row in runs)
    return below, sum(accuracy > row["highest"] for accuracy, row in runs)


def root_mean_square(numbers: Iterable[float]) -> float:
    """Root of the mean of their squares."""
    return sqrt(mean(x * x for x in numbers))
