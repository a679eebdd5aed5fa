"""Draw and read the runs of `xoccurs` with and without near misses: ``python -m studies.relational_games.near_misses``.

Twelve means (a Transformer and two DATs, 1,000 and 2,000 images, pentominoes and stripes) beside the published ones,
for each share of independent draws among the objects that do not match; and the number by which
studies/relational_games/ANNOUNCED.md decides, the root mean square of the differences.
"""

from collections.abc import Mapping
from statistics import mean

from dat.training.metrics import Row
from dual_attention._base.intervals import half_width, paired_p

from .share_runs import (
    EPOCHS,
    MAIN,
    MODELS,
    NAMES,
    RESULTS,
    Cell,
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

FOLDER = RESULTS / "xoccurs-near-misses"
RUNS = {
    0.0: FOLDER / "share-0.csv",
    0.5: MAIN,
    1.0: FOLDER / "share-1.csv",
}
LABELS = {0.0: "near misses only", 0.5: "half near misses, as in main", 1.0: "no near misses"}
TASK = "xoccurs"
SETS = ("test", "stripes")
CELLS = cells_of(SETS, MODELS, (1000, 2000))


def on_lines(means: Mapping[float, Mapping[Cell, float]], theirs: Mapping[Cell, Row], share: float) -> list[float]:
    """Differences from the published means at any share, if means changed linearly between the shares that were run."""
    below, above = (0.0, 0.5) if share <= 0.5 else (0.5, 1.0)
    part = (share - below) / (above - below)
    return [(1 - part) * means[below][cell] + part * means[above][cell] - theirs[cell]["accuracy"] for cell in CELLS]


def main() -> None:
    parse_no_arguments(__doc__)
    theirs = published(TASK, CELLS)
    ours = {share: read_runs(path, TASK, CELLS) for share, path in RUNS.items()}
    seeds = {share: common_seeds(runs) for share, runs in ours.items()}
    means = {
        share: {cell: mean(runs[cell][seed].accuracy for seed in seeds[share]) for cell in CELLS}
        for share, runs in ours.items()
    }
    for share, of_cell in means.items():
        differences = [of_cell[cell] - theirs[cell]["accuracy"] for cell in CELLS]
        print(
            f"share {share:g} ({len(seeds[share])} seeds): root mean square {root_mean_square(differences):.2f}, "
            f"mean {mean(differences):+.2f} points from the published means"
        )
        for of in SETS:
            some = [of_cell[cell] - theirs[cell]["accuracy"] for cell in CELLS if cell.object_set == of]
            print(f"  {NAMES[of]}: root mean square {root_mean_square(some):.2f}, mean {mean(some):+.2f}")
            runs = {cell: of_seed for cell, of_seed in ours[share].items() if cell.object_set == of}
            below, above = outside(fits(TASK, runs, theirs, EPOCHS))
            count = sum(map(len, runs.values()))
            print(f"  of {count} runs {below} below and {above} above all published ones of their cell")
    smallest, at = min((root_mean_square(on_lines(means, theirs, n / 100)), n / 100) for n in range(101))
    print(f"on lines through the three: root mean square {smallest:.2f} at its smallest, share {at:g}")
    for share in (0.0, 1.0):
        both = common_seeds(ours[share], ours[0.5])
        for cell in CELLS:
            change = [ours[share][cell][seed].accuracy - ours[0.5][cell][seed].accuracy for seed in both]
            print(
                f"share {share:g} less 0.5, {NAMES[cell.object_set]}, {NAMES[cell.model]}, {cell.n_train}: "
                f"{mean(change):+.1f} ± {half_width(change):.1f} (p = {paired_p(change):.2g}); "
                f"mean {means[share][cell]:.1f}, published {theirs[cell]['accuracy']:.1f}"
            )
    draw_shares(FOLDER / "near_misses.png", TASK, ours, seeds, theirs, LABELS)


if __name__ == "__main__":
    main()
