"""The figure of recall: accuracy, and the attention to the place of the answer, in the course of training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dual_attention.model_analysis.views.plots import (
    count_along,
    house_style,
    legend_below,
    matplotlib_figure,
    save_figure,
)

from ...sweeps.curves import colours_of
from ...sweeps.experiment import AnySwept
from ...training.metrics import Row
from ..courses import draw_course

CURVES = {"accuracy": "validation accuracy", "matching": "attention of the best head\nto the place of the answer"}
"""Numbers that are drawn, one a row of panels."""


COLUMNS = 4
"""Panels beside each other."""


def draw_learning(experiment: AnySwept, rows: Sequence[Row], path: Path) -> None:
    """Draw both numbers over the steps: one below the other for each task and size, a line for each model.

    Thick lines are means over seeds, thin ones single seeds.
    """
    settings = sorted(
        {(row["task"], int(row["size"])) for row in rows},
        key=lambda setting: (experiment.panels(rows).index(setting[0]), setting[1]),
    )
    lines = [
        (name, some)
        for some in (settings[start : start + COLUMNS] for start in range(0, len(settings), COLUMNS))
        for name in CURVES
        if any(_of(rows, setting, name) for setting in some)
    ]
    colours = colours_of(experiment, rows)
    columns = min(COLUMNS, len(settings))
    with house_style():
        size = 0.8 + 2.9 * columns, 0.5 + 2.55 * len(lines)
        figure, axes = matplotlib_figure(len(lines), columns, figsize=size, squeeze=False)
        handles: dict[str, Any] = {}
        for line, (name, some) in zip(axes, lines, strict=True):
            for axis in line:
                axis.set_visible(False)
            for axis, setting in zip(line, some, strict=False):
                found = _of(rows, setting, name)
                if not found:
                    continue
                axis.set_visible(True)
                for model, colour in colours.items():
                    drawn = draw_course(axis, [row for row in found if row["model"] == model], f"{name}_at_", colour)
                    if drawn is not None:
                        handles.setdefault(model, drawn).set_label(experiment.curve_axis.label(model))
                axis.set_ylim(0, 1.02)
                axis.set_xlabel("steps")
                count_along(axis)
                axis.set_title("{}, {}".format(*setting), loc="left", fontweight="bold", fontsize=10)
            line[0].set_ylabel(CURVES[name])
        figure.suptitle("Recall, copying and state: what is learned at which step", fontsize=13, x=0.01, ha="left")
        figure.tight_layout()
        legend_below(figure, list(handles.values()))
        save_figure(figure, path)


def _of(rows: Sequence[Row], setting: tuple[Any, int], name: str) -> list[Row]:
    """Rows of a task and size that have a number's course."""
    return [
        row
        for row in rows
        if (row["task"], int(row["size"])) == setting and any(key.startswith(f"{name}_at_") for key in row)
    ]
