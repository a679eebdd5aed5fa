"""DATs and Transformers beside the relational architectures before them: Figure 7 of arXiv 2405.16727, drawn again."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from dat.experiments.relational_games.presets import BASELINES, LABELS
from dat.sweeps.curves import colours_of, draw_chance, draw_published, fix_range
from dat.sweeps.results import values_by_point
from dat.sweeps.table import ResultTable
from dat.training.metrics import Row
from dual_attention._base.extras import require
from dual_attention._base.plots import (
    count_along,
    house_style,
    legend_below,
    matplotlib_figure,
    save_figure,
)

MARKERS = "osD^vP*Xp<>h"
"""Of the curves, in the order of the models, which tell them apart without colour."""


def draw_baselines(table: ResultTable, rows: Sequence[Row], path: Path, *, object_set: str = "test") -> None:
    """Draw accuracy against training-set size, one column for each task: measured above, published below.

    Measured lines are means over seeds, with a dot for each trial, since models rarely have as many. Tasks on which no
    baseline was run are left out; nothing is drawn if there are none. Lines of baselines are the thinner ones.
    """
    tasks = table.axes[0].ordered([row for row in rows if row["model"] in BASELINES])
    if not tasks:
        return
    rows = [row for row in rows if row["task"] in tasks]
    looks = {
        model: {"color": colour, "marker": MARKERS[number % len(MARKERS)]}
        for number, (model, colour) in enumerate(colours_of(table, rows).items())
    }
    with house_style():
        figure, axes = matplotlib_figure(
            2, len(tasks), figsize=(max(6.5, 3.5 * len(tasks)), 7.4), squeeze=False, sharex="col", sharey=True
        )
        for column, task in enumerate(tasks):
            above, below = axes[0][column], axes[1][column]
            for model, look in looks.items():
                width = 1.4 if model in BASELINES else 2.4
                if trials := values_by_point(table, rows, object_set, task, model):
                    above.plot(list(trials), list(map(fmean, trials.values())), linewidth=width, markersize=4.5, **look)
                    dots = [(n, value) for n, values in trials.items() for value in values]
                    above.scatter(*zip(*dots, strict=True), color=look["color"], s=9, alpha=0.55, linewidths=0)
                known = table.published_points(rows, object_set, task, model)
                draw_published(below, known, linewidth=width, markersize=4, **look)
            for axis in (above, below):
                draw_chance(axis, table, task)
                count_along(axis)
            above.set_title(task, loc="left", fontweight="bold")
            below.set_xlabel("training-set size")
        fix_range(axes.flat, table)
        axes[0][0].set_ylabel("accuracy (%)\nmeasured here")
        axes[1][0].set_ylabel("accuracy (%)\npublished")
        figure.suptitle("Relational Games: relational architectures before the DAT", fontsize=13, x=0.01, ha="left")
        figure.tight_layout()
        draw_models(figure, looks)
        save_figure(figure, path)


def draw_models(figure: Any, looks: dict[str, dict[str, str]]) -> None:
    """Draw the legend, below all panels."""
    line = require("matplotlib.lines", extra="train").Line2D
    handles = [line([], [], markersize=5, label=LABELS.get(model, model), **look) for model, look in looks.items()]
    title = "Means, and a small dot for each trial. Published bands are the range of trials."
    legend_below(figure, handles, title=title)
