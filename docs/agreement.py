"""How runs of Relational Games agree with the published ones: ``python docs/agreement.py [TABLE ...]``.

Reads results (by default those of the grid main) and prints, for each task, each model and each object set,
differences from the published means, spread, runs outside the published ranges, losses, and on pentominoes the score of
experiments/relational_games/PROTOCOL.md; then every mean that differs with a Welch t of 3 or more, and how far DATs are
ahead of the Transformer, here and in the published runs.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import NamedTuple

from share_runs import NAMES, RESULTS, Cell, Run, cells_of, published, read_runs, root_mean_square

from dual_attention.experiments.relational_games.protocol_cells import CellFit, score
from dual_attention.experiments.relational_games.published import published_rows
from dual_attention.training.metrics import Row

MAIN = RESULTS / "main" / "results.csv"
SETS = ("test", "hexominoes", "stripes")
PLAIN, *DATS = MODELS = ("transformer-128-h2", "dat-0+2-sym", "dat-1+1-sym")
BATCH = 512
FAR = 3.0
"""Absolute t from which a mean is named."""


class Beside(NamedTuple):
    """The runs of one cell of a task beside the published ones."""

    task: str
    cell: Cell
    epochs: int
    runs: Sequence[Run]
    theirs: Row

    @property
    def accuracies(self) -> list[float]:
        return [run.accuracy for run in self.runs]

    @property
    def difference(self) -> float:
        return fmean(self.accuracies) - self.theirs["accuracy"]

    @property
    def t(self) -> float:
        """Welch's t of that."""
        error = variance(self.accuracies) / len(self.runs) + self.theirs["sd"] ** 2 / self.theirs["trials"]
        return self.difference / sqrt(error)

    @property
    def fit(self) -> CellFit:
        """What the score is of."""
        losses = tuple(run.loss for run in self.runs)
        length = BATCH, self.epochs
        return CellFit(length, self.task, self.cell.model, self.cell.n_train, (*self.accuracies,), losses, self.theirs)


def read(table: Path, models: Sequence[str], epochs: int) -> list[Beside]:
    """All cells of a table of results that are of the models."""
    with open(table, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if int(row["epochs"]) == epochs and row["model"] in models]
    found = []
    for task in dict.fromkeys(row["task"] for row in rows):
        cells = cells_of(SETS, models, sorted({int(row["n_train"]) for row in rows if row["task"] == task}))
        theirs = published(task, cells)
        for cell, runs in read_runs(table, task, cells, epochs).items():
            if len(runs) < 2:
                expected = f"two or more runs of {', '.join(models)} after {epochs} epochs"
                raise SystemExit(
                    f"{table}: expected {expected}, found {len(runs)} of {task}, {cell.model}, {cell.n_train}"
                )
            found.append(Beside(task, cell, epochs, list(runs.values()), theirs[cell]))
    return found


def together(cells: Sequence[Beside]) -> str:
    """What cells say together."""
    runs = [(run.accuracy, cell.theirs) for cell in cells for run in cell.runs]
    below = sum(accuracy < row["lowest"] for accuracy, row in runs)
    above = sum(accuracy > row["highest"] for accuracy, row in runs)
    expected = sum(2 / (row["trials"] + 1) for _, row in runs)
    losses = [log(fmean(run.loss for run in cell.runs) / cell.theirs["loss"]) for cell in cells]
    return (
        f"{len(cells)} means: {fmean(cell.difference for cell in cells):+.1f} points, root mean square "
        f"{root_mean_square(cell.difference for cell in cells):.2f}; standard deviation "
        f"{sqrt(fmean(variance(cell.accuracies) for cell in cells)):.2f} "
        f"(published {root_mean_square(cell.theirs['sd'] for cell in cells):.2f}); of {len(runs)} runs {below} below "
        f"and {above} above the published ones, where {expected:.0f} are expected; "
        f"losses {exp(fmean(losses)):.2f} of theirs"
        + (f"; score {score([cell.fit for cell in cells]):.2f}" if cells[0].cell.object_set == "test" else "")
    )


def tell(table: Path, models: Sequence[str], epochs: int) -> None:
    """Print all of one table."""
    cells = read(table, models, epochs)
    if not cells:
        raise SystemExit(f"{table}: expected runs of {', '.join(models)} after {epochs} epochs, found none")
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    print(f"{table}, after {epochs} epochs")
    parts = {
        **{task: [c for c in cells if c.task == task] for task in tasks},
        **{NAMES[model]: [c for c in cells if c.cell.model == model] for model in models},
        "all": cells,
    }
    for name, part in parts.items():
        for of in SETS:
            print(f"  {name}, {NAMES[of]}:", together([c for c in part if c.cell.object_set == of]))
    for c in cells:
        if abs(c.t) >= FAR:
            print(
                f"  far: {c.task}, {NAMES[c.cell.model]}, {c.cell.n_train:,} images, {NAMES[c.cell.object_set]}: "
                f"{fmean(c.accuracies):.1f} (published {c.theirs['accuracy']:.1f}), t {c.t:+.1f}"
            )
    if PLAIN not in models:
        return
    for task in tasks:
        of_model = {
            model: [c for c in cells if (c.task, c.cell.object_set, c.cell.model) == (task, "test", model)]
            for model in models
        }
        for model in [model for model in DATS if model in models]:
            pairs = list(zip(of_model[model], of_model[PLAIN], strict=True))
            here = fmean(fmean(a.accuracies) - fmean(b.accuracies) for a, b in pairs)
            there = fmean(a.theirs["accuracy"] - b.theirs["accuracy"] for a, b in pairs)
            print(f"  {task}, pentominoes, {NAMES[model]} less {NAMES[PLAIN]}: {here:+.1f}, published {there:+.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", metavar="TABLE", nargs="*", type=Path, default=[MAIN], help="results.csv of a grid")
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="MODEL", help="the models, by default main's")
    parser.add_argument("--epochs", type=int, default=100, help="length of training, by default 100")
    given = parser.parse_args()
    known = {row["model"] for row in published_rows()} & set(NAMES)
    if unknown := [model for model in given.models if model not in known]:
        parser.error(f"--models: expected some of {', '.join(sorted(known))}, got {', '.join(unknown)}")
    for table in given.tables:
        if not table.is_file():
            parser.error(f"{table}: expected a table of results, found no such file")
        tell(table, given.models, given.epochs)


if __name__ == "__main__":
    main()
