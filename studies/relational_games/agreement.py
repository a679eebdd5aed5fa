"""How runs agree with the published ones: ``python -m studies.relational_games.agreement [TABLE ...]``.

Reads results (by default those of the grid main) and prints, for each task, each model and each object set,
differences from the published means, spread, runs outside the published ranges, losses, and on pentominoes the score of
studies/relational_games/PROTOCOL.md; then every mean that differs with a Welch t of 3 or more, and how far DATs are
ahead of the Transformer, here and in the published runs.
"""

import argparse
from collections.abc import Sequence
from math import exp, sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import NamedTuple

from dat.experiments.relational_games.published import published_rows
from dat.sweeps.published import Published, welch_t

from .protocol import read_runs
from .protocol_cells import CellFit, score
from .share_runs import (
    BATCH,
    EPOCHS,
    MAIN,
    MODELS,
    NAMES,
    Cell,
    cells_of,
    fits,
    outside,
    published,
    root_mean_square,
    runs_of,
)

SETS = ("test", "hexominoes", "stripes")
PLAIN, *DATS = MODELS
FAR = 3.0
"""Absolute t from which a mean is named."""


class Beside(NamedTuple):
    """The runs of one cell of a task beside the published ones."""

    cell: Cell
    fit: CellFit

    @property
    def t(self) -> float:
        """Welch's t of the difference of accuracies; ValueError where neither side has a spread."""
        theirs = self.fit.published
        point = Published(self.cell.n_train, theirs["accuracy"], int(theirs["trials"]), theirs["sd"])
        t = welch_t(self.fit.accuracies, point)
        if t is None:
            raise ValueError(f"expected runs that differ, got equal ones of {self.fit.task}, {self.cell}")
        return t


def read(table: Path, models: Sequence[str], epochs: int) -> list[Beside]:
    """All cells of a table of results that are of the models; ValueError if one has fewer than two runs."""
    length = BATCH, epochs
    rows = [r for r in read_runs(table) if (r["batch_size"], r["epochs"]) == length and r["model"] in models]
    wanted = f"{table}: expected runs of {', '.join(models)} after {epochs} epochs of batches of {BATCH}"
    if not rows:
        raise ValueError(f"{wanted}, found none")
    found = []
    for task in dict.fromkeys(row["task"] for row in rows):
        cells = cells_of(SETS, models, sorted({row["n_train"] for row in rows if row["task"] == task}))
        runs = runs_of(rows, task, cells, epochs)
        for cell, of_seed in runs.items():
            if len(of_seed) < 2:
                raise ValueError(f"{wanted}, two or more, found {len(of_seed)} of {task}, {cell.model}, {cell.n_train}")
        found += [Beside(*pair) for pair in zip(cells, fits(task, runs, published(task, cells), epochs), strict=True)]
    return found


def together(cells: Sequence[Beside]) -> str:
    """What cells say together."""
    fits = [cell.fit for cell in cells]
    below, above = outside(fits)
    count = sum(len(fit.accuracies) for fit in fits)
    return (
        f"{len(fits)} means: {fmean(fit.difference for fit in fits):+.1f} points, root mean square "
        f"{root_mean_square(fit.difference for fit in fits):.2f}; standard deviation "
        f"{sqrt(fmean(variance(fit.accuracies) for fit in fits)):.2f} "
        f"(published {root_mean_square(fit.published['sd'] for fit in fits):.2f}); of {count} runs {below} below "
        f"and {above} above the published ones, where {sum(fit.expected_outside for fit in fits):.0f} are expected; "
        f"losses {exp(fmean(fit.log_ratio for fit in fits)):.2f} of theirs"
        + (f"; score {score(fits):.2f}" if cells[0].cell.object_set == "test" else "")
    )


def tell(table: Path, cells: Sequence[Beside], models: Sequence[str], epochs: int) -> None:
    """Print all of one table."""
    tasks = list(dict.fromkeys(c.fit.task for c in cells))
    print(f"{table}, after {epochs} epochs")
    parts = {
        **{task: [c for c in cells if c.fit.task == task] for task in tasks},
        **{NAMES[model]: [c for c in cells if c.cell.model == model] for model in models},
        "all": cells,
    }
    for name, part in parts.items():
        for of in SETS:
            print(f"  {name}, {NAMES[of]}:", together([c for c in part if c.cell.object_set == of]))
    for c in cells:
        if abs(c.t) >= FAR:
            print(
                f"  far: {c.fit.task}, {NAMES[c.cell.model]}, {c.cell.n_train:,} images, {NAMES[c.cell.object_set]}: "
                f"{fmean(c.fit.accuracies):.1f} (published {c.fit.published['accuracy']:.1f}), t {c.t:+.1f}"
            )
    if PLAIN in models:
        tell_leads(cells, [model for model in models if model in DATS])


def tell_leads(cells: Sequence[Beside], dats: Sequence[str]) -> None:
    """Print how far DATs are ahead of the Transformer on pentominoes, over the sizes of each task."""
    for task in dict.fromkeys(c.fit.task for c in cells):
        of_model = {
            model: [c.fit for c in cells if (c.fit.task, c.cell.object_set, c.cell.model) == (task, "test", model)]
            for model in (PLAIN, *dats)
        }
        for model in dats:
            pairs = list(zip(of_model[model], of_model[PLAIN], strict=True))
            here = fmean(fmean(a.accuracies) - fmean(b.accuracies) for a, b in pairs)
            there = fmean(a.published["accuracy"] - b.published["accuracy"] for a, b in pairs)
            print(f"  {task}, pentominoes, {NAMES[model]} less {NAMES[PLAIN]}: {here:+.1f}, published {there:+.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", metavar="TABLE", nargs="*", type=Path, default=[MAIN], help="results.csv of a grid")
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="MODEL", help="the models, by default main's")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"length of training, by default {EPOCHS}")
    given = parser.parse_args()
    known = {row["model"] for row in published_rows()} & set(NAMES)
    if unknown := [model for model in given.models if model not in known]:
        parser.error(f"--models: expected some of {', '.join(sorted(known))}, got {', '.join(unknown)}")
    models = list(dict.fromkeys(given.models))
    for table in given.tables:
        try:
            cells = read(table, models, given.epochs)
        except (ValueError, OSError) as error:
            parser.error(str(error) if str(table) in str(error) else f"{table}: {error}")
        tell(table, cells, models, given.epochs)


if __name__ == "__main__":
    main()
