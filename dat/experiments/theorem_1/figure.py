"""The figure of Theorem 1: error against width, against temperature after training, and of the construction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from dual_attention.model_analysis.views.plots import (
    house_style,
    matplotlib_figure,
    plain_number,
    save_figure,
    scale_log,
)

from ...sweeps.experiment import AnySwept
from ...sweeps.results import values_by_point
from ...training.metrics import Row
from .constructed import constructed_rows

LABELS = {
    "relational": "relational attention",
    "symmetric": "relational, symmetric relations",
    "standard": "standard attention",
}
COLOURS = {"relational": "#1f6fb4", "symmetric": "#63b0e8", "standard": "#8c8c8c"}
OTHER = "#444444"
"""Colour of an attention without one."""
SHADES = ("#b8d8ef", "#7fb5dc", "#4b93c9", "#1f5c96", "#0b2f52")
OF_MARGINS = ("#d1495b", "#e0a000", "#2e8b57")
PREFIX = "error_x"


def draw_theorem(experiment: AnySwept, rows: Sequence[Row], path: Path) -> None:
    """Draw error against width for each attention, against the sharpness of trained relational attention for each
    width, and against that of the construction for each margin."""
    with house_style():
        figure, axes = matplotlib_figure(1, 3, figsize=(12.5, 4.3))
        _draw_widths(axes[0], experiment, rows)
        _draw_sharpened(axes[1], [row for row in rows if row["model"] == "relational"])
        _draw_constructed(axes[2])
        for axis in axes:
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(plain_number)
            axis.xaxis.minorticks_off()
        widths = sorted({int(row["width"]) for row in rows})
        axes[0].set_xticks(widths)
        scale_log(axes[0])
        scale_log(axes[1])
        axes[2].set_yscale("log")
        axes[0].set_ylabel("largest error of three relations\n(mean over draws)")
        figure.suptitle(
            "Theorem 1: select by a preference of the receiver, relate to what is selected",
            fontsize=13,
            x=0.01,
            ha="left",
        )
        figure.tight_layout()
        save_figure(figure, path)


def _draw_widths(axis: Any, experiment: AnySwept, rows: Sequence[Row]) -> None:
    """Means over seeds as lines, seeds as dots."""
    for model in experiment.curve_axis.ordered(rows):
        values = values_by_point(experiment, rows, "error", "", model)
        colour, label = COLOURS.get(model, OTHER), experiment.curve_axis.label(model)
        axis.plot(list(values), [fmean(v) for v in values.values()], color=colour, label=label)
        dots = [(width, value) for width, found in values.items() for value in found]
        axis.scatter(*zip(*dots, strict=True), color=colour, s=16, alpha=0.6, linewidths=0, zorder=4)
    axis.set_title("trained", loc="left", fontweight="bold")
    axis.set_xlabel("width of hidden layers")
    axis.legend(fontsize=9)


def _draw_sharpened(axis: Any, rows: Sequence[Row]) -> None:
    """Means over seeds."""
    for colour, width in zip(SHADES * 4, sorted({int(row["width"]) for row in rows}), strict=False):
        of_width = [row for row in rows if row["width"] == width]
        factors = sorted(float(key.removeprefix(PREFIX)) for key in of_width[0] if key.startswith(PREFIX))
        means = [fmean(float(row[f"{PREFIX}{factor:g}"]) for row in of_width) for factor in factors]
        axis.plot(factors, means, color=colour, marker="o", markersize=4, label=f"width {width}")
    axis.axvline(1, color="#606060", linewidth=1, linestyle=":")
    axis.set_title("relational, then sharpened", loc="left", fontweight="bold")
    axis.set_xlabel("factor of the trained scores (1 / temperature)")
    if rows:
        axis.legend(fontsize=9, loc="lower left")


def _draw_constructed(axis: Any) -> None:
    """Means as lines, their bounds dashed."""
    rows = constructed_rows()
    for colour, margin in zip(OF_MARGINS, sorted({row["margin"] for row in rows}), strict=True):
        found = [row for row in rows if row["margin"] == margin]
        beta = [row["sharpness"] for row in found]
        axis.plot(
            beta, [row["mean"] for row in found], color=colour, marker="o", markersize=4, label=f"margin {margin}"
        )
        axis.plot(beta, [row["mean_bound"] for row in found], color=colour, linestyle=(0, (3, 2)), linewidth=1.2)
    axis.set_ylim(2e-8, 5)  # errors of rounding are below
    axis.set_title("constructed, without training", loc="left", fontweight="bold")
    axis.set_xlabel("factor of the utility (1 / temperature)")
    axis.legend(fontsize=9, title="dashed: mean bound", title_fontsize=9, loc="lower left")
