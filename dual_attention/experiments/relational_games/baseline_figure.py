"""DATs and Transformers beside the relational architectures before them: Figure 7 of arXiv 2405.16727, drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..._extras import require
from ...training.plots import house_style, matplotlib_figure, save_figure
from .config import TASK_NAMES
from .figures import colours_of, curve, ordered
from .grid import Row
from .presets import BASELINES, LABELS, ORDER
from .published import published_curve

MARKERS = "osD^vP*Xp<>h"
"""Of the curves, in the order of the models, so that they can be told apart without colour."""


def draw_baselines(rows: Sequence[Row], path: Path, *, object_set: str = "test") -> None:
    """Accuracy against training-set size, one column for each task: measured above, published below.

    Error bars are 95 % bootstrap intervals over seeds. Tasks on which no baseline was run are left out; nothing is
    drawn if there are none.
    """
    tasks = ordered({row["task"] for row in rows if row["model"] in BASELINES}, TASK_NAMES)
    if not tasks:
        return
    rows = [row for row in rows if row["task"] in tasks]
    models = ordered({row["model"] for row in rows}, ORDER)
    looks = {
        model: {"color": colour, "marker": MARKERS[number % len(MARKERS)]}
        for number, (model, colour) in enumerate(colours_of(models).items())
    }
    with house_style():
        figure, axes = matplotlib_figure(
            2, len(tasks), figsize=(max(6.5, 3.5 * len(tasks)), 7.4), squeeze=False, sharex="col", sharey=True
        )
        for column, task in enumerate(tasks):
            above, below = axes[0][column], axes[1][column]
            largest = max(int(row["n_train"]) for row in rows if row["task"] == task)
            for model, look in looks.items():
                draw_measured(above, curve(rows, object_set, task, model), model in BASELINES, look)
                known = [(n, a) for n, a in published_curve(object_set, task, model) if n <= 1.02 * largest]
                if known:
                    width = 1.4 if model in BASELINES else 2.4
                    below.plot(*zip(*known, strict=True), linewidth=width, markersize=4, **look)
            for axis in (above, below):
                axis.axhline(50, color="#b0b0b0", linewidth=0.8, zorder=0)
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
    """One curve with its error bars, thinner for a baseline."""
    if not points:
        return
    n, mean, low, high = zip(*points, strict=True)
    errors = [[m - a for m, a in zip(mean, low, strict=True)], [b - m for m, b in zip(mean, high, strict=True)]]
    width = 1.4 if baseline else 2.4
    axis.errorbar(n, mean, errors, linewidth=width, markersize=4.5, elinewidth=0.9, capsize=2, capthick=0.9, **look)


def draw_models(figure: Any, looks: dict[str, dict[str, str]]) -> None:
    """The legend, below all panels."""
    line = require("matplotlib.lines", extra="train").Line2D
    handles = [line([], [], markersize=5, label=LABELS.get(model, model), **look) for model, look in looks.items()]
    figure.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=4,
        title="Means over seeds; bars are 95 % bootstrap intervals. Published are means alone.",
    )
