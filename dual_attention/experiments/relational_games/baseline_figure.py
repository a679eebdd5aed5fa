"""DATs and Transformers beside the relational architectures before them: Figure 7 of arXiv 2405.16727, drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..._extras import require
from ...sweeps.curves import colours_of, curve_points, draw_chance, published_points
from ...training.experiment import AnyExperiment
from ...training.metrics import Row
from ...training.plots import house_style, matplotlib_figure, save_figure
from .presets import BASELINES, LABELS

MARKERS = "osD^vP*Xp<>h"
"""Of the curves, in the order of the models, which tell them apart without colour."""


def draw_baselines(experiment: AnyExperiment, rows: Sequence[Row], path: Path, *, object_set: str = "test") -> None:
    """Draw accuracy against training-set size, one column for each task: measured above, published below.

    Error bars are 95 % bootstrap intervals over seeds. Tasks on which no baseline was run are left out; nothing is
    drawn if there are none.
    """
    tasks = experiment.axes[0].ordered([row for row in rows if row["model"] in BASELINES])
    if not tasks:
        return
    rows = [row for row in rows if row["task"] in tasks]
    looks = {
        model: {"color": colour, "marker": MARKERS[number % len(MARKERS)]}
        for number, (model, colour) in enumerate(colours_of(experiment, rows).items())
    }
    with house_style():
        figure, axes = matplotlib_figure(
            2, len(tasks), figsize=(max(6.5, 3.5 * len(tasks)), 7.4), squeeze=False, sharex="col", sharey=True
        )
        for column, task in enumerate(tasks):
            above, below = axes[0][column], axes[1][column]
            largest = max(int(row["n_train"]) for row in rows if row["task"] == task)
            for model, look in looks.items():
                points = curve_points(experiment, rows, object_set, task, model)
                draw_measured(above, points, model in BASELINES, look)
                known = published_points(experiment, object_set, task, model, largest)
                if known:
                    width = 1.4 if model in BASELINES else 2.4
                    below.plot(*zip(*known, strict=True), linewidth=width, markersize=4, **look)
            for axis in (above, below):
                draw_chance(axis, experiment)
            above.set_title(task, loc="left", fontweight="bold")
            below.set_xlabel("training-set size")
        axes[0][0].set_ylabel("accuracy (%)\nmeasured here")
        axes[1][0].set_ylabel("accuracy (%)\npublished")
        figure.suptitle("Relational Games: relational architectures before the DAT", fontsize=13, x=0.01, ha="left")
        figure.tight_layout()
        draw_models(figure, looks)
        save_figure(figure, path)


def draw_measured(
    axis: Any, points: Sequence[tuple[int, float, float, float]], baseline: bool, look: dict[str, str]
) -> None:
    """Draw one curve with its error bars, thinner for a baseline."""
    if not points:
        return
    n, mean, low, high = zip(*points, strict=True)
    errors = [[m - a for m, a in zip(mean, low, strict=True)], [b - m for m, b in zip(mean, high, strict=True)]]
    width = 1.4 if baseline else 2.4
    axis.errorbar(n, mean, errors, linewidth=width, markersize=4.5, elinewidth=0.9, capsize=2, capthick=0.9, **look)


def draw_models(figure: Any, looks: dict[str, dict[str, str]]) -> None:
    """Draw the legend, below all panels."""
    line = require("matplotlib.lines", extra="train").Line2D
    handles = [line([], [], markersize=5, label=LABELS.get(model, model), **look) for model, look in looks.items()]
    figure.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=4,
        title="Means over seeds; bars are 95 % bootstrap intervals. Published are means only.",
    )
