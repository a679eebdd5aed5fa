"""What the scripts on runs of Relational Games share: tables, cells beside the published ones, and a figure by shares.

Imported by agreement.py, near_misses.py, same_negatives.py and stairs.py. Cells are of an object set, model and size.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from dat.experiments.relational_games.published import published_rows
from dat.training.metrics import Row
from dual_attention._base.intervals import half_width
from dual_attention._base.plots import house_style, legend_below, matplotlib_figure, save_figure

from .protocol import read_runs as read_table
from .protocol_cells import CellFit

RESULTS = Path(__file__).parent / "results"
MAIN = RESULTS / "main" / "results.csv"
MODELS = ("transformer-128-h2", "dat-0+2-sym", "dat-1+1-sym")
EPOCHS, BATCH = 100, 512
COLOURS = {0.0: "#7a5195", 0.5: "#1f6fb4", 1.0: "#d1495b"}
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


def parse_no_arguments(about: str | None) -> None:
    """Answer ``--help`` with the text of a script, and refuse all other arguments."""
    argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()


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


def read_runs(path: Path, task: str, cells: Sequence[Cell], epochs: int = EPOCHS) -> Runs:
    """The same from a table of results."""
    return runs_of(read_table(path), task, cells, epochs)


def fits(
    task: str, runs: Runs, theirs: Mapping[Cell, Row], epochs: int, seeds: Sequence[int] | None = None
) -> list[CellFit]:
    """The cells beside the published ones, each with the runs of the seeds, which may repeat, or all."""
    found = []
    for cell, of_seed in runs.items():
        taken = [of_seed[seed] for seed in (of_seed if seeds is None else seeds)]
        accuracies, losses = tuple(run.accuracy for run in taken), tuple(run.loss for run in taken)
        found.append(CellFit((BATCH, epochs), task, cell.model, cell.n_train, accuracies, losses, theirs[cell]))
    return found


def common_seeds(*tables: Runs) -> list[int]:
    """Seeds of which every cell of all tables is there."""
    return sorted(set.intersection(*(set(of_seed) for runs in tables for of_seed in runs.values())))


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


def draw_shares(
    path: Path,
    task: str,
    ours: Mapping[float, Runs],
    seeds: Mapping[float, Sequence[int]],
    theirs: Mapping[Cell, Row],
    labels: Mapping[float, str],
) -> None:
    """Means with 95 % t-intervals over grey bars, the ranges of the published runs, whose means are dashes.

    ``ours``, ``seeds`` and ``labels`` are by the share; a panel an object set.
    """
    object_sets = list(dict.fromkeys(cell.object_set for cell in theirs))
    groups = list(dict.fromkeys((cell.model, cell.n_train) for cell in theirs))
    with house_style():
        figure, panels = matplotlib_figure(1, len(object_sets), figsize=(5.25 * len(object_sets), 3.4), sharey=True)
        for axes, of in zip(panels, object_sets, strict=True):
            for place, group in enumerate(groups):
                row = theirs[Cell(of, *group)]
                axes.bar(place, row["highest"] - row["lowest"], 0.8, row["lowest"], color="#e3e3e3")
                axes.plot([place - 0.4, place + 0.4], [row["accuracy"]] * 2, color="#555555", linestyle="--")
            for number, (share, runs) in enumerate(ours.items()):
                values = [[runs[Cell(of, *group)][seed].accuracy for seed in seeds[share]] for group in groups]
                axes.errorbar(
                    [place + 0.2 * (number - (len(ours) - 1) / 2) for place in range(len(groups))],
                    [mean(x) for x in values],
                    [half_width(x) for x in values],
                    label=labels[share],
                    color=COLOURS[share],
                    marker="o",
                    linestyle="",
                    markersize=4,
                    capsize=2,
                )
            axes.set_xticks(range(len(groups)), [f"{NAMES[model]}\n{size:,}" for model, size in groups], fontsize=6)
            axes.set_title(f"{task}, {NAMES[of]}", fontsize=9)
        panels[0].set_ylabel("accuracy (%)")
        legend_below(figure, panels[-1].get_legend_handles_labels()[0], fontsize=8)
        save_figure(figure, path)
