"""Draw and read the runs of `xoccurs` with and without near misses: ``python docs/near_misses.py``.

Twelve means (a Transformer and two DATs, 1,000 and 2,000 images, pentominoes and stripes) beside the published ones,
for each share of independent draws among the objects that do not match; and the number by which
experiments/relational_games/ANNOUNCED.md decides, the root mean square of the differences.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import mean

from dual_attention.experiments.relational_games.published import published_rows
from dual_attention.sweeps.intervals import half_width, paired_p
from dual_attention.training.plots import house_style, matplotlib_figure, save_figure

FOLDER = Path(__file__).parents[1] / "experiments" / "relational_games" / "results"
RUNS = {
    0.0: FOLDER / "xoccurs-near-misses" / "share-0.csv",
    0.5: FOLDER / "main" / "results.csv",
    1.0: FOLDER / "xoccurs-near-misses" / "share-1.csv",
}
LABELS = {
    0.0: ("near misses only", "#7a5195"),
    0.5: ("half near misses, as in main", "#1f6fb4"),
    1.0: ("no near misses", "#d1495b"),
}
TASK = "xoccurs"
SETS = {"test": "pentominoes", "stripes": "stripes"}
MODELS = {"transformer-128-h2": "Transformer", "dat-0+2-sym": "DAT 0+2", "dat-1+1-sym": "DAT 1+1"}
SIZES = (1000, 2000)

Cell = tuple[str, str, int]
"""Object set, model, training-set size."""

CELLS: list[Cell] = list(product(SETS, MODELS, SIZES))


def accuracies(path: Path) -> dict[Cell, dict[int, float]]:
    """Accuracy in percent by cell and seed."""
    found: defaultdict[Cell, dict[int, float]] = defaultdict(dict)
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["task"] == TASK and row["model"] in MODELS and int(row["n_train"]) in SIZES:
                for of in SETS:
                    found[of, row["model"], int(row["n_train"])][int(row["seed"])] = float(row[of])
    return dict(found)


def published() -> dict[Cell, Mapping[str, float]]:
    """Mean, lowest and highest published accuracy by cell."""
    rows = {(row["object_set"], row["task"], row["model"], row["n_train"]): row for row in published_rows()}
    return {(of, model, size): rows[of, TASK, model, size] for of, model, size in CELLS}


def root_mean_square(numbers: Sequence[float]) -> float:
    return sqrt(mean(x * x for x in numbers))


def common_seeds(runs: Mapping[Cell, Mapping[int, float]]) -> list[int]:
    """Seeds of which every cell is there."""
    return sorted(set.intersection(*(set(runs[cell]) for cell in CELLS)))


def on_lines(
    means: Mapping[float, Mapping[Cell, float]], theirs: Mapping[Cell, Mapping[str, float]], share: float
) -> list[float]:
    """Differences from the published means at any share, if means changed linearly between the shares that were run."""
    below, above = (0.0, 0.5) if share <= 0.5 else (0.5, 1.0)
    part = (share - below) / (above - below)
    return [(1 - part) * means[below][cell] + part * means[above][cell] - theirs[cell]["accuracy"] for cell in CELLS]


def main() -> None:
    theirs = published()
    ours = {share: accuracies(path) for share, path in RUNS.items()}
    seeds = {share: common_seeds(runs) for share, runs in ours.items()}
    means = {
        share: {cell: mean(runs[cell][seed] for seed in seeds[share]) for cell in CELLS} for share, runs in ours.items()
    }
    for share, of_cell in means.items():
        differences = [of_cell[cell] - theirs[cell]["accuracy"] for cell in CELLS]
        print(
            f"share {share:g} ({len(seeds[share])} seeds): root mean square {root_mean_square(differences):.2f}, "
            f"mean {mean(differences):+.2f} points from the published means"
        )
        for of in SETS:
            some = [of_cell[cell] - theirs[cell]["accuracy"] for cell in CELLS if cell[0] == of]
            print(f"  {SETS[of]}: root mean square {root_mean_square(some):.2f}, mean {mean(some):+.2f}")
            runs = [(x, theirs[cell]) for cell in CELLS if cell[0] == of for x in ours[share][cell].values()]
            below, above = sum(x < cell["lowest"] for x, cell in runs), sum(x > cell["highest"] for x, cell in runs)
            print(f"  of {len(runs)} runs {below} below and {above} above all published ones of their cell")
    smallest, at = min((root_mean_square(on_lines(means, theirs, n / 100)), n / 100) for n in range(101))
    print(f"on lines through the three: root mean square {smallest:.2f} at its smallest, share {at:g}")
    for share in ours:
        if share == 0.5:
            continue
        both = sorted(set(seeds[share]) & set(seeds[0.5]))
        for of, model, size in CELLS:
            cell = of, model, size
            change = [ours[share][cell][seed] - ours[0.5][cell][seed] for seed in both]
            print(
                f"share {share:g} less 0.5, {SETS[of]}, {MODELS[model]}, {size}: {mean(change):+.1f} ± "
                f"{half_width(change):.1f} (p = {paired_p(change):.2g}); mean {means[share][cell]:.1f}, "
                f"published {theirs[cell]['accuracy']:.1f}"
            )
    draw(ours, seeds, theirs)


def draw(
    ours: Mapping[float, Mapping[Cell, Mapping[int, float]]],
    seeds: Mapping[float, Sequence[int]],
    theirs: Mapping[Cell, Mapping[str, float]],
) -> None:
    """Means with 95 % t-intervals over grey bars, the ranges of the published runs, whose means are dashes."""
    with house_style():
        figure, panels = matplotlib_figure(1, len(SETS), figsize=(10.5, 3.4), sharey=True)
        for axes, (of, name) in zip(panels, SETS.items(), strict=True):
            groups = list(product(MODELS, SIZES))
            for place, (model, size) in enumerate(groups):
                cell = theirs[of, model, size]
                axes.bar(place, cell["highest"] - cell["lowest"], 0.8, cell["lowest"], color="#e3e3e3")
                axes.plot([place - 0.4, place + 0.4], [cell["accuracy"]] * 2, color="#555555", linestyle="--")
            for number, (share, runs) in enumerate(ours.items()):
                label, colour = LABELS[share]
                values = [[runs[(of, *group)][seed] for seed in seeds[share]] for group in groups]
                places = [place + 0.2 * (number - (len(ours) - 1) / 2) for place in range(len(groups))]
                heights, widths = [mean(x) for x in values], [half_width(x) for x in values]
                axes.errorbar(
                    places,
                    heights,
                    widths,
                    label=label,
                    color=colour,
                    marker="o",
                    linestyle="",
                    markersize=4,
                    capsize=2,
                )
            axes.set_xticks(range(len(groups)), [f"{MODELS[model]}\n{size:,}" for model, size in groups], fontsize=6)
            axes.set_title(f"{TASK}, {name}", fontsize=9)
        panels[0].set_ylabel("accuracy (%)")
        panels[-1].legend(frameon=False, loc="upper left", fontsize=8)
        save_figure(figure, FOLDER / "xoccurs-near-misses" / "near_misses.png")


if __name__ == "__main__":
    main()
