"""The figure of length: accuracy by length."""

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
from .config import SHORTEST

AT = "at_"
"""Before the length in names of columns."""


def draw_lengths_figure(experiment: AnySwept, rows: Sequence[Row], path: Path) -> None:
    """Draw accuracy by length, a panel for each task and longest length trained on, a line for each model.

    Thick lines are means over seeds, thin ones single seeds; lengths that were trained on are shaded.
    """
    panels = sorted(
        {(row["task"], int(row["longest"])) for row in rows},
        key=lambda panel: (experiment.panels(rows).index(panel[0]), panel[1]),
    )
    with house_style():
        size = (1.2 + 4.2 * len(panels), 3.9)
        figure, axes = matplotlib_figure(1, len(panels), figsize=size, squeeze=False, sharey=True)
        handles: dict[str, Any] = {}
        for axis, (task, longest) in zip(axes[0], panels, strict=True):
            for model, colour in colours_of(experiment, rows).items():
                found = [row for row in rows if (row["task"], row["longest"], row["model"]) == (task, longest, model)]
                line = draw_course(axis, found, AT, colour, marker="o", markersize=3.5)
                if line is not None:
                    handles.setdefault(model, line).set_label(experiment.curve_axis.label(model))
            axis.set_xlim(left=0)
            axis.axvspan(SHORTEST, longest, color="#f2f2f2", zorder=0)
            axis.set_ylim(0, 102)
            axis.set_xlabel("length")
            axis.set_title(f"{task}, trained to {longest}", loc="left", fontweight="bold")
            count_along(axis)
        axes[0][0].set_ylabel("accuracy on scored positions (%)")
        figure.suptitle("Lengths trained on (shaded) and beyond", fontsize=13, x=0.01, ha="left")
        figure.tight_layout()
        legend_below(figure, list(handles.values()))
        save_figure(figure, path)
