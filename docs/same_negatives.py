"""Draw and read the runs of `same` with other negatives than near misses: ``python docs/same_negatives.py``.

For each size and share of independent draws among the second objects of negatives: the score by which
experiments/relational_games/ANNOUNCED.md decides, less that with near misses only, and its interval; the means beside
the published ones; and CoRelNet, the control, after 50 and 100 epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

import numpy
from share_runs import (
    NAMES,
    RESULTS,
    Cell,
    Runs,
    cells_of,
    common_seeds,
    draw_shares,
    outside,
    published,
    read_runs,
)

from dual_attention.experiments.relational_games.protocol_cells import DRAWS, CellFit, score
from dual_attention.sweeps.intervals import half_width, paired_p
from dual_attention.training.metrics import Row

FOLDER = RESULTS / "same-negatives"
SHARES = (0.0, 0.5, 1.0)
LABELS = {0.0: "near misses only, as in main", 0.5: "half independent", 1.0: "independent"}
TASK = "same"
SETS = ("test", "hexominoes", "stripes")
MODELS = ("transformer-128-h2", "dat-0+2-sym", "dat-1+1-sym")
SIZES = (500, 2000)
CONTROL = "corelnet"
EPOCHS = (50, 100)


def table(share: float, model: str) -> str:
    """Name of the table that has the runs; those of near misses only are main's but for the control's."""
    return "main/results.csv" if share == 0 and model != CONTROL else f"same-negatives/share-{share:g}.csv"


def fits(runs: Runs, theirs: Mapping[Cell, Row], seeds: Sequence[int]) -> list[CellFit]:
    """The cells beside the published ones, each with the runs of the seeds, which may repeat."""
    return [
        CellFit(
            (512, 100),
            TASK,
            cell.model,
            cell.n_train,
            tuple(runs[cell][seed].accuracy for seed in seeds),
            tuple(runs[cell][seed].loss for seed in seeds),
            theirs[cell],
        )
        for cell in theirs
    ]


def tell(size: int) -> None:
    """Print and draw all of one size."""
    cells = cells_of(SETS, MODELS, [size])
    theirs = published(TASK, cells)
    ours = {share: read_runs(RESULTS / table(share, MODELS[0]), TASK, cells) for share in SHARES}
    seeds = common_seeds(*ours.values())
    scores = {share: score(fits(runs, theirs, seeds)) for share, runs in ours.items()}
    draws = numpy.random.default_rng(0).choice(seeds, size=(DRAWS, len(seeds)))
    of_draws = {share: [score(fits(runs, theirs, [*draw])) for draw in draws] for share, runs in ours.items()}
    for share, runs in ours.items():
        own = fits(runs, theirs, seeds)
        below, above = outside(runs, theirs)
        print(
            f"{size} images, share {share:g} ({len(seeds)} seeds): score {scores[share]:.2f}; "
            f"of {sum(map(len, runs.values()))} runs {below} below and {above} above all published ones of their cell; "
            f"accuracy {mean(cell.difference for cell in own):+.2f}, "
            f"root mean square {mean(cell.difference**2 for cell in own) ** 0.5:.2f}"
        )
        if share != SHARES[0]:
            less = numpy.subtract(of_draws[share], of_draws[SHARES[0]])
            low, high = numpy.quantile(less, [0.025, 0.975])
            print(f"  score less that of share 0: {scores[share] - scores[SHARES[0]]:+.2f} [{low:+.2f}, {high:+.2f}]")
        for cell, fit in zip(cells, own, strict=True):
            accuracy, loss = fit.published["accuracy"], fit.published["loss"]
            print(
                f"  {NAMES[cell.object_set]}, {NAMES[cell.model]}: {mean(fit.accuracies):.1f} "
                f"± {half_width(fit.accuracies):.1f} (published {accuracy:.1f}), loss {mean(fit.losses):.2f} "
                f"({loss:.2f}); squares {fit.squares[0]:.1f}, {fit.squares[1]:.1f}"
            )
    for share in SHARES[1:]:
        changes = [
            mean(ours[share][cell][seed].accuracy - ours[0.0][cell][seed].accuracy for cell in cells[: len(MODELS)])
            for seed in seeds
        ]
        print(
            f"{size} images, share {share:g} less 0, mean of three models on pentominoes: {mean(changes):+.1f} "
            f"± {half_width(changes):.1f} (p = {paired_p(changes):.2g})"
        )
    draw_shares(FOLDER / f"images-{size}.png", TASK, ours, dict.fromkeys(SHARES, seeds), theirs, LABELS)


def tell_control(size: int) -> None:
    """Print CoRelNet's means."""
    cells = cells_of(SETS, [CONTROL], [size])
    theirs = published(TASK, cells)
    for epochs in EPOCHS:
        for share in SHARES:
            runs = read_runs(RESULTS / table(share, CONTROL), TASK, cells, epochs)
            accuracies = {cell: [run.accuracy for run in of_seed.values()] for cell, of_seed in runs.items()}
            told = "; ".join(
                f"{NAMES[cell.object_set]} {mean(values):.1f} ± {half_width(values):.1f} "
                f"(published {theirs[cell]['accuracy']:.1f})"
                for cell, values in accuracies.items()
            )
            losses = [run.loss for run in runs[cells[0]].values()]
            print(
                f"CoRelNet, {size} images, {epochs} epochs, share {share:g}, {len(losses)} runs: {told}; "
                f"loss {mean(losses):.2f} ({theirs[cells[0]]['loss']:.2f})"
            )


def main() -> None:
    for size in SIZES:
        tell(size)
        tell_control(size)


if __name__ == "__main__":
    main()
