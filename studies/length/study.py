"""The study of length: its grids, the figure and the table."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from dat.experiments.sequences.config import SHORTEST, LengthGrid, in_batches
from dat.experiments.sequences.experiment import Length
from dat.experiments.sequences.presets import LENGTH_ARMS
from dat.sweeps.curves import colours_of
from dat.sweeps.grid import GridConfig
from dat.training.metrics import Row
from dual_attention._base.plots import (
    count_along,
    house_style,
    legend_below,
    matplotlib_figure,
    save_figure,
)
from studies._lib.courses import draw_course
from studies._lib.paired import paired_differences, table

EXPERIMENT = "length"
STUDY = LengthGrid(out="runs/length-study", seeds=5, loop=in_batches(1500, 250, eval_every=0, checkpoint_every=0))
GRIDS: dict[str, GridConfig] = {
    "study": STUDY,
    # A control that was announced after the study, to be read beside it.
    "clip": replace(STUDY, out="runs/length-clip", models=("DAT-clipped-8",)),
}
PRESETS: dict[str, Any] = {}


def draw_lengths_figure(rows: Sequence[Row], path: Path) -> None:
    """Draw accuracy by length, a panel for each task and longest length trained on, a line for each model.

    Thick lines are means over seeds, thin ones single seeds; lengths that were trained on are shaded.
    """
    experiment = Length()
    panels = sorted(
        {(row["task"], int(row["longest"])) for row in rows},
        key=lambda panel: (experiment.table.panels(rows).index(panel[0]), panel[1]),
    )
    with house_style():
        size = (1.2 + 4.2 * len(panels), 3.9)
        figure, axes = matplotlib_figure(1, len(panels), figsize=size, squeeze=False, sharey=True)
        handles: dict[str, Any] = {}
        for axis, (task, longest) in zip(axes[0], panels, strict=True):
            for model, colour in colours_of(experiment.table, rows).items():
                found = [row for row in rows if (row["task"], row["longest"], row["model"]) == (task, longest, model)]
                line = draw_course(axis, found, "at_", colour, marker="o", markersize=3.5)
                if line is not None:
                    handles.setdefault(model, line).set_label(experiment.table.curve_axis.label(model))
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


FIGURES: dict[str, Callable[[Sequence[Row], Path], None]] = {"length.png": draw_lengths_figure}


def table_of_beyond() -> str:
    """Accuracy beyond the lengths trained on, and its mean over the tasks less the Transformer's."""
    rows = pd.read_csv(Path(__file__).parent / "results" / "study" / "results.csv")
    trials: Any = rows.groupby(["model", "seed"])["beyond"].mean()
    means: Any = rows.groupby(["model", "task"])["beyond"].mean()
    found = paired_differences(trials, "T", LENGTH_ARMS[1:])
    lines = [["arm", "`argsort`", "`equation`", "less `T`", "p (Holm)", "by the rule"]]
    for arm in LENGTH_ARMS:
        beside = ["", "", ""]
        if arm in found:
            p, decided = found[arm].holm, found[arm].holm < 0.05 and abs(found[arm].mean) >= 2
            text = f"{p:.4f}" if p < 5e-4 else f"{p:.3f}" if p < 0.05 else f"{p:.2f}"
            rule = ("further" if found[arm].mean > 0 else "less far") if decided else "undecided"
            beside = [found[arm].words(), text, rule]
        lines.append([f"`{arm}`", *(f"{means[arm, task]:.1f}" for task in ("argsort", "equation")), *beside])
    return table(lines)


TABLES: dict[str, Callable[[], str]] = {"beyond": table_of_beyond}
