"""Figures of a grid: curves with confidence bands, beside the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._extras import require
from ..training.experiment import AnyExperiment, CurvesFigure
from ..training.metrics import Row
from ..training.plots import house_style, matplotlib_figure, save_figure
from .comparison import panel_of, panels_of

SPARE = ("#9467bd", "#17becf", "#bcbd22", "#e377c2", "#ff7f0e", "#5254a3", "#637939", "#843c39")
"""Colours of curves that an experiment gives none, in the order of their names."""


def bootstrap_interval(values: Sequence[float], *, draws: int = 2000, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of ``values``; the same values always give the same interval."""
    numpy = require("numpy", extra="train")
    sample = numpy.asarray(values, dtype=float)
    generator = numpy.random.default_rng(0)
    means = generator.choice(sample, size=(draws, len(sample))).mean(axis=1)
    low, high = numpy.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def curve_points(
    experiment: AnyExperiment, rows: Sequence[Row], measure: str, panel: str, curve: str
) -> list[tuple[int, float, float, float]]:
    """(horizontal axis, mean, low, high) of one curve, sorted."""
    curve_axis, size_axis = experiment.axes[-2:]
    values: dict[int, list[float]] = {}
    for row in rows:
        if panel_of(experiment, row) == panel and row[curve_axis.name] == curve and measure in row:
            values.setdefault(int(row[size_axis.name]), []).append(float(row[measure]))
    return [(n, sum(v) / len(v), *bootstrap_interval(v)) for n, v in sorted(values.items())]


def colours_of(experiment: AnyExperiment, rows: Sequence[Row]) -> dict[str, str]:
    """A colour for each curve, in order."""
    spare = iter(SPARE * 10)
    return {curve: experiment.colours.get(curve) or next(spare) for curve in experiment.axes[-2].ordered(rows)}


def published_points(
    experiment: AnyExperiment, measure: str, panel: str, curve: str, largest: float
) -> list[tuple[float, float]]:
    """A published curve as far as the measured ones go."""
    return [(n, value) for n, value in experiment.published(measure, panel, curve) if n <= 1.02 * largest]


def draw_chance(axis: Any, experiment: AnyExperiment) -> None:
    """Draw the level that guessing reaches."""
    if experiment.chance is not None:
        axis.axhline(experiment.chance, color="#b0b0b0", linewidth=0.8, zorder=0)


def draw_panel(
    axis: Any,
    experiment: AnyExperiment,
    rows: Sequence[Row],
    measure: str,
    panel: str,
    colours: dict[str, str],
) -> None:
    """Draw one panel: a line with its band for each curve, the published curve dashed."""
    found = {curve: curve_points(experiment, rows, measure, panel, curve) for curve in colours}
    for curve, points in found.items():
        if points:
            n, mean, low, high = zip(*points, strict=True)
            axis.plot(n, mean, color=colours[curve], marker="o", markersize=3.5, zorder=3)
            axis.fill_between(n, low, high, color=colours[curve], alpha=0.18, linewidth=0)
    largest = max((n for points in found.values() for n, *_ in points), default=0)
    for curve, points in found.items():
        inside = published_points(experiment, measure, panel, curve, largest)
        if inside and points:
            dashes = {"linestyle": (0, (3, 2)), "linewidth": 1.2, "alpha": 0.85}
            axis.plot(*zip(*inside, strict=True), color=colours[curve], **dashes)
    draw_chance(axis, experiment)
    axis.set_title(panel, loc="left", fontweight="bold")
    if experiment.log_scale:
        axis.set_yscale("log")


def draw_legend(figure: Any, experiment: AnyExperiment, colours: dict[str, str], columns: int) -> None:
    """Draw curves and line styles, below all panels."""
    line = require("matplotlib.lines", extra="train").Line2D
    label = experiment.axes[-2].label
    handles = [line([], [], color=c, marker="o", markersize=4, label=label(curve)) for curve, c in colours.items()]
    handles.append(line([], [], color="#555555", label="measured here: mean, band = 95 % bootstrap interval"))
    if experiment.compares:
        dashes = {"linestyle": (0, (3, 2)), "linewidth": 1.2}
        handles.append(line([], [], color="#555555", label="published mean", **dashes))
    figure.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns)


def draw_curves(experiment: AnyExperiment, rows: Sequence[Row], path: Path, what: CurvesFigure) -> None:
    """Draw the measures of a figure (rows of panels) against the horizontal axis, one column of panels each."""
    panels = panels_of(experiment, rows)
    colours = colours_of(experiment, rows)
    with house_style():
        figure, axes = matplotlib_figure(
            len(what.measures),
            len(panels),
            figsize=(max(5.0, 3.1 * len(panels)), 0.5 + 3.1 * len(what.measures)),
            squeeze=False,
            sharey="row",
        )
        for line, measure in enumerate(what.measures):
            for column, panel in enumerate(panels):
                draw_panel(axes[line][column], experiment, rows, measure, panel, colours)
                axes[line][column].set_xlabel(experiment.axes[-1].title)
            axes[line][0].set_ylabel(f"{experiment.y_title}\n{experiment.measures[measure]}")
        figure.suptitle(what.title, fontsize=13, x=0.01, ha="left")
        figure.tight_layout()
        draw_legend(figure, experiment, colours, columns=2 if len(panels) < 3 else 4)
        save_figure(figure, path)
