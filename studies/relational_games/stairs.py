"""Batches of 512 or of 128, told by the stair at 750 images: ``python -m studies.relational_games.stairs``.

By batches of 512 a training set of 250 or 500 images has one step in an epoch, of 750 or 1,000 two; by batches of 128
steps grow evenly. The stair is the rise from 500 to 750 images less the mean of those from 250 to 500 and from 750 to
1,000, of the accuracy (points) and of the logarithm of the loss, for each of twelve curves; see
studies/relational_games/PROTOCOL.md.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from math import log, sqrt
from statistics import fmean, stdev

from dat.experiments.relational_games.published import published_rows

from .protocol import read_runs
from .protocol_cells import Candidate, CellFit, fit_cells
from .share_runs import MAIN, MODELS, RESULTS, parse_no_arguments

TABLES = (
    MAIN,
    RESULTS / "protocol" / "controls.csv",
    RESULTS / "protocol" / "batches_128.csv",
    RESULTS / "protocol" / "stairs.csv",
)
CANDIDATES: tuple[Candidate, ...] = ((512, 100), (128, 50))
SEEDS = (0, 1, 2)
SIZES = (250, 500, 750, 1000)
TASKS = ("same", "occurs", "xoccurs", "between")
MEASURES: dict[str, tuple[Callable[[CellFit], float], Callable[[CellFit], float]]] = {
    "accuracy": (lambda cell: fmean(cell.accuracies), lambda cell: cell.published["accuracy"]),
    "logarithm of the loss": (lambda cell: log(fmean(cell.losses)), lambda cell: log(cell.published["loss"])),
}
"""Of a cell: of our runs, and of the published ones."""
CURVES = tuple(product(TASKS, MODELS))


def stair(values: Sequence[float]) -> float:
    """The second of three rises less the mean of the other two."""
    first, second, third = (after - before for before, after in pairwise(values))
    return second - (first + third) / 2


def error(numbers: Sequence[float]) -> float:
    """Standard error of their mean."""
    return stdev(numbers) / sqrt(len(numbers))


def main() -> None:
    parse_no_arguments(__doc__)
    rows = [row for table in TABLES for row in read_runs(table) if row["seed"] in SEEDS]
    cells: dict[tuple[Candidate, str, str, int], CellFit] = {
        (cell.candidate, cell.task, cell.model, cell.n_train): cell for cell in fit_cells(rows)
    }
    known = {(r["task"], r["model"], r["n_train"]): r for r in published_rows() if r["object_set"] == "test"}
    august = sorted({model for _, model, _ in known if model.endswith("-small-wr")})
    stairs = [stair([known[task, model, size]["accuracy"] for size in SIZES]) for task, model in product(TASKS, august)]
    print(
        f"published runs of August ({len(stairs)} curves of {len(august)} models): stair of the accuracy "
        f"{fmean(stairs):+.2f} ± {error(stairs):.2f}"
    )
    for candidate in CANDIDATES:
        print(f"batches of {candidate[0]}, {candidate[1]} epochs")
        curves = [[cells[candidate, task, model, size] for size in SIZES] for task, model in CURVES]
        for name, measures in MEASURES.items():
            ours, theirs = ([stair([measure(cell) for cell in curve]) for curve in curves] for measure in measures)
            differences = [a - b for a, b in zip(ours, theirs, strict=True)]
            print(
                f"  stair of the {name}: {fmean(ours):+.2f} ± {error(ours):.2f}, published {fmean(theirs):+.2f} ± "
                f"{error(theirs):.2f}; difference {fmean(differences):+.2f} ± {error(differences):.2f}, "
                f"{fmean(differences) / error(differences):+.1f} standard errors"
            )


if __name__ == "__main__":
    main()
