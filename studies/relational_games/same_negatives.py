"""Draw and read the runs of `same` with other negatives: ``python -m studies.relational_games.same_negatives``.

For each share of independent draws among the second objects of negatives: the score by which
studies/relational_games/ANNOUNCED.md decides, less that with near misses only, and its interval, for each size; the
means beside the published ones; the same after 50 epochs, where it was measured; and CoRelNet, the control, after both.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from math import exp
from statistics import mean

import numpy

from dat.training.metrics import Row
from dual_attention._base.intervals import half_width

from .protocol_cells import (
    DRAWS,
    LEAST_RELATIVE_SD,
    LEAST_SD,
    CellFit,
    score,
)
from .share_runs import (
    EPOCHS,
    MAIN,
    MODELS,
    NAMES,
    RESULTS,
    Cell,
    Runs,
    cells_of,
    common_seeds,
    draw_shares,
    fits,
    outside,
    parse_no_arguments,
    published,
    read_runs,
    root_mean_square,
)

FOLDER = RESULTS / "same-negatives"
LABELS = {0.0: "near misses only, as in main", 0.5: "half independent", 1.0: "independent"}
TASK = "same"
SETS = ("test", "hexominoes", "stripes")
SIZES = (500, 2000)
CONTROL = "corelnet"


def read(share: float, cells: Sequence[Cell], epochs: int) -> Runs:
    """The runs of cells of one model or several; those of near misses only are main's but for the control's."""
    of_main = share == 0 and cells[0].model != CONTROL
    path = MAIN if of_main else FOLDER / f"share-{share:g}.csv"
    return read_runs(path, TASK, cells, epochs)


def expected(cells: Sequence[CellFit]) -> float:
    """The score, were our runs drawn as the published ones were."""

    def of(sd: float, least: float, runs: int, theirs: float) -> float:
        return sd**2 * (1 / runs + 1 / theirs) / (sd**2 + least**2)

    return mean(
        of(row["sd"], LEAST_SD, len(cell.accuracies), row["trials"])
        + of(row["loss_sd"] / row["loss"], LEAST_RELATIVE_SD, len(cell.losses), row["trials"])
        for cell in cells
        for row in [cell.published]
    )


def tell(share: float, runs: Runs, theirs: Mapping[Cell, Row], seeds: Sequence[int], epochs: int) -> None:
    """Print the score, and the means beside the published ones."""
    own = fits(TASK, runs, theirs, epochs, seeds)
    below, above = outside(fits(TASK, runs, theirs, epochs))
    print(
        f"share {share:g}, {epochs} epochs, {len(seeds)} seeds: score {score(own):.2f}, "
        f"{expected(own):.2f} expected of runs drawn as the published ones; "
        f"of {sum(map(len, runs.values()))} runs {below} below and {above} above all published ones of their cell; "
        f"accuracy {mean(cell.difference for cell in own):+.2f}, "
        f"root mean square {root_mean_square(cell.difference for cell in own):.2f}; "
        f"losses {exp(mean(cell.log_ratio for cell in own)):.2f} of the published ones"
    )
    for cell, fit in zip(runs, own, strict=True):
        accuracy, loss = fit.published["accuracy"], fit.published["loss"]
        print(
            f"  {NAMES[cell.object_set]}, {NAMES[cell.model]}, {cell.n_train:,} images: {mean(fit.accuracies):.1f} "
            f"± {half_width(fit.accuracies):.1f} (published {accuracy:.1f}), loss {mean(fit.losses):.2f} "
            f"({loss:.2f}); squares {fit.squares[0]:.1f}, {fit.squares[1]:.1f}"
        )


def compare(size: int) -> None:
    """Print what decides about the shares on one size."""
    cells = cells_of(SETS, MODELS, [size])
    theirs = published(TASK, cells)
    ours = {share: read(share, cells, EPOCHS) for share in LABELS}
    seeds = common_seeds(*ours.values())
    draws = numpy.random.default_rng(0).choice(seeds, size=(DRAWS, len(seeds)))
    scores = {
        share: [score(fits(TASK, runs, theirs, EPOCHS, [*draw])) for draw in (seeds, *draws)]
        for share, runs in ours.items()
    }
    for share, runs in ours.items():
        tell(share, runs, theirs, seeds, EPOCHS)
        if share:
            less, *drawn = numpy.subtract(scores[share], scores[0.0])
            low, high = numpy.quantile(drawn, [0.025, 0.975])
            print(f"  score less that of near misses only: {less:+.2f} [{low:+.2f}, {high:+.2f}]")
    for share in (0.5, 1.0):
        tell(share, read(share, cells, EPOCHS // 2), theirs, seeds, EPOCHS // 2)


def main() -> None:
    parse_no_arguments(__doc__)
    for size in SIZES:
        print(f"{size:,} images")
        compare(size)
    for size, epochs, share in product(SIZES, (EPOCHS // 2, EPOCHS), LABELS):
        print(f"{NAMES[CONTROL]}, {size:,} images", end=", ")
        control = cells_of(SETS, [CONTROL], [size])
        runs = read(share, control, epochs)
        tell(share, runs, published(TASK, control), common_seeds(runs), epochs)
    cells = cells_of(SETS, MODELS, SIZES)
    ours = {share: read(share, cells, EPOCHS) for share in LABELS}
    seeds = dict.fromkeys(ours, common_seeds(*ours.values()))
    draw_shares(FOLDER / "same_negatives.png", TASK, ours, seeds, published(TASK, cells), LABELS)


if __name__ == "__main__":
    main()
