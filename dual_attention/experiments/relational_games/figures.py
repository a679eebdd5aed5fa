"""The figures of a grid: learning curves with confidence bands, beside the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..._extras import require
from ...training.plots import house_style, matplotlib_figure, save_figure
from .config import TASK_NAMES
from .grid import Row
from .presets import LABELS, ORDER
from .published import published_curve

COLOURS: dict[str, str] = {
    "transformer-128-h2": "#8c8c8c",
    "transformer-128-h8": "#4d4d4d",
    "transformer-144-h2": "#c49c6b",
    "transformer-144-h8": "#7a5c34",
    "dat-0+2-sym": "#1f6fb4",
    "dat-1+1-sym": "#d1495b",
    "dat-0+2-asym": "#63b0e8",
    "dat-1+1-asym": "#eb9aa5",
    "rca-0+2": "#2e8b57",
    "rca-1+1": "#9acd7d",
    "abstractor": "#e0a000",
    "abstractor-symbol-stream": "#f2cc60",
    "predinet": "#8c564b",
    "corelnet": "#7b3fa0",
    "corelnet-softmax": "#c49be0",
    "esbn": "#149a9a",
}
"""One colour for each model of the comparison, the same in all figures."""

SPARE = ("#9467bd", "#17becf", "#bcbd22", "#e377c2", "#ff7f0e", "#5254a3", "#637939", "#843c39")
"""Colours of other models, in the order of their names."""

TITLES = {
    "test": "pentominoes, as in training",
    "hexominoes": "hexominoes, never trained on",
    "stripes": "stripes, never trained on",
}


def bootstrap_interval(values: Sequence[float], *, draws: int = 2000, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of ``values``; the same values always give the same interval."""
    numpy = require("numpy", extra="train")
    sample = numpy.asarray(values, dtype=float)
    generator = numpy.random.default_rng(0)
    means = generator.choice(sample, size=(draws, len(sample))).mean(axis=1)
    low, high = numpy.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def curve(rows: Sequence[Row], object_set: str, task: str, model: str) -> list[tuple[int, float, float, float]]:
    """(size, mean, low, high) in percent for one model on one task, by size."""
    values: dict[int, list[float]] = {}
    for row in rows:
        if row["task"] == task and row["model"] == model and object_set in row:
            values.setdefault(int(row["n_train"]), []).append(float(row[object_set]))
    return [(n, sum(v) / len(v), *bootstrap_interval(v)) for n, v in sorted(values.items())]


def ordered(names: set[str], order: Sequence[str]) -> list[str]:
    """``names`` in the given order, others after them by name."""
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def colours_of(models: Sequence[str]) -> dict[str, str]:
    """A colour for each model."""
    spare = iter(SPARE * 10)
    return {model: COLOURS.get(model) or next(spare) for model in models}


def draw_panel(axis: Any, rows: Sequence[Row], object_set: str, task: str, colours: dict[str, str]) -> None:
    """One task: a line with its band for each model, the published curve dashed."""
    sizes = []
    for model, colour in colours.items():
        points = curve(rows, object_set, task, model)
        if not points:
            continue
        n, mean, low, high = zip(*points, strict=True)
        sizes.extend(n)
        axis.plot(n, mean, color=colour, marker="o", markersize=3.5, zorder=3)
        axis.fill_between(n, low, high, color=colour, alpha=0.18, linewidth=0)
    for model, colour in colours.items():
        inside = [(n, a) for n, a in published_curve(object_set, task, model) if n <= 1.02 * max(sizes, default=0)]
        if inside and curve(rows, object_set, task, model):
            axis.plot(*zip(*inside, strict=True), color=colour, linestyle=(0, (3, 2)), linewidth=1.2, alpha=0.85)
    axis.axhline(50, color="#b0b0b0", linewidth=0.8, zorder=0)
    axis.set_title(task, loc="left", fontweight="bold")


def draw_legend(figure: Any, colours: dict[str, str], columns: int) -> None:
    """Models and line styles, below all panels."""
    line = require("matplotlib.lines", extra="train").Line2D
    handles = [line([], [], color=c, marker="o", markersize=4, label=LABELS.get(m, m)) for m, c in colours.items()]
    handles.append(line([], [], color="#555555", label="measured here: mean, band = 95 % bootstrap interval"))
    handles.append(line([], [], color="#555555", linestyle=(0, (3, 2)), linewidth=1.2, label="published mean"))
    figure.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns)


def draw_learning_curves(rows: Sequence[Row], path: Path, *, object_sets: Sequence[str], title: str) -> None:
    """Accuracy against training-set size, one panel for each task (columns) and object set (rows)."""
    tasks = ordered({row["task"] for row in rows}, TASK_NAMES)
    colours = colours_of(ordered({row["model"] for row in rows}, ORDER))
    with house_style():
        figure, axes = matplotlib_figure(
            len(object_sets),
            len(tasks),
            figsize=(max(5.0, 3.1 * len(tasks)), 0.5 + 3.1 * len(object_sets)),
            squeeze=False,
            sharey="row",
        )
        for line, object_set in enumerate(object_sets):
            for column, task in enumerate(tasks):
                draw_panel(axes[line][column], rows, object_set, task, colours)
                axes[line][column].set_xlabel("training-set size")
            axes[line][0].set_ylabel(f"accuracy (%)\n{TITLES[object_set]}")
        figure.suptitle(title, fontsize=13, x=0.01, ha="left")
        figure.tight_layout()
        draw_legend(figure, colours, columns=2 if len(tasks) < 3 else 4)
        save_figure(figure, path)


def draw_figures(rows: Sequence[Row], folder: Path) -> None:
    """The paper's Figure 2 and the same for the held-out object sets; nothing when there are no rows."""
    if not rows:
        return
    draw_learning_curves(
        rows, folder / "learning_curves.png", object_sets=("test",), title="Relational Games: sample efficiency"
    )
    draw_learning_curves(
        rows,
        folder / "heldout.png",
        object_sets=("hexominoes", "stripes"),
        title="Relational Games: objects never seen in training",
    )
