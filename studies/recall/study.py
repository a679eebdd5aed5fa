"""The study of recall, copying and state: its grids, the figure and the tables."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from dat.experiments.sequences.config import RecallGrid
from dat.experiments.sequences.experiment import Recall
from dat.experiments.sequences.presets import RECALL_ARMS
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
from studies._lib.inference import holm, mcnemar_p
from studies._lib.paired import paired_differences, table

EXPERIMENT = "recall"
STUDY = RecallGrid(
    out="runs/recall-study",
    seeds=5,
    tasks=("in-context-copying-16", "mqar-2", "mqar-4", "selective-copying-4", "parity-12", "s3-8", "s5-6"),
    steps=(1200, 1200, 1200, 600, 1200, 1200, 1200),
    evaluations=30,
)
GRIDS: dict[str, GridConfig] = {
    "study": STUDY,
    # A control that was announced after the study, to be read beside it.
    "positions": replace(
        STUDY, out="runs/recall-positions", tasks=("parity-12", "s3-8"), models=("T-positions",), steps=(1200, 1200)
    ),
}
PRESETS: dict[str, Any] = {}

CURVES = {"accuracy": "validation accuracy", "matching": "attention of the best head\nto the place of the answer"}
"""Numbers that are drawn, one a row of panels."""
COLUMNS = 4
"""Panels beside each other."""


def draw_learning(rows: Sequence[Row], path: Path) -> None:
    """Draw both numbers over the steps: one below the other for each task and size, a line for each model.

    Thick lines are means over seeds, thin ones single seeds.
    """
    experiment = Recall()
    settings = sorted(
        {(row["task"], int(row["size"])) for row in rows},
        key=lambda setting: (experiment.table.panels(rows).index(setting[0]), setting[1]),
    )
    lines = [
        (name, some)
        for some in (settings[start : start + COLUMNS] for start in range(0, len(settings), COLUMNS))
        for name in CURVES
        if any(_of(rows, setting, name) for setting in some)
    ]
    colours = colours_of(experiment.table, rows)
    columns = min(COLUMNS, len(settings))
    with house_style():
        size = 0.6 + 2.15 * columns, 0.5 + 2.3 * len(lines)
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
                        handles.setdefault(model, drawn).set_label(experiment.table.curve_axis.label(model))
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


FIGURES: dict[str, Callable[[Sequence[Row], Path], None]] = {"recall.png": draw_learning}


def read(*tasks: str) -> Any:
    """The rows of the study on some tasks."""
    rows = pd.read_csv(Path(__file__).parent / "results" / "study" / "results.csv")
    return rows[rows["task"].isin(tasks)]


def reading(difference: float, half: float, holm: float, least: float) -> str:
    """What the announced rule says of a difference in steps or points, of which more is better."""
    if holm < 0.05 and abs(difference) >= least:
        return "better" if difference > 0 else "worse"
    return "alike" if abs(difference) + half <= least else "undecided"


def table_of_recall() -> str:
    """Steps until 90 % are right, less the Transformer's."""
    trials: Any = read("in-context-copying", "mqar").groupby(["model", "seed"])["learned_step"].mean()
    lines = [["arm", "steps", "p (Holm)", "by the rule"]]
    for arm, found in paired_differences(trials, "T", RECALL_ARMS[1:]).items():
        rule = reading(-found.mean, found.half, found.holm, 50.0)
        lines.append([f"`{arm}`", found.words(0), f"{found.holm:.2f}", rule])
    return table(lines)


def table_of_learning() -> str:
    """Runs that learn ``mqar-4``, by McNemar's exact test against the Transformer's."""
    rows = read("mqar")
    learned: Any = rows[rows["size"] == 4].pivot(index="seed", columns="model", values="learned") == 1
    p = [mcnemar_p(learned[arm].tolist(), learned["T"].tolist()) for arm in RECALL_ARMS[1:]]
    adjusted = ["", *(f"{x:.2f}" for x in holm(p))]
    lines = [
        [f"`{arm}`", f"{learned[arm].sum()} of {len(learned)}", text]
        for arm, text in zip(RECALL_ARMS, adjusted, strict=True)
    ]
    return table([["arm", "runs that learn `mqar-4`", "p (McNemar, Holm)"], *lines])


def table_of_state() -> str:
    """Accuracy after the last step, and its mean less the Transformer's."""
    rows = read("parity", "s3", "s5")
    trials: Any = rows.groupby(["model", "seed"])["accuracy"].mean()
    means: Any = rows.groupby(["model", "task"])["accuracy"].mean()
    found = paired_differences(trials, "T", RECALL_ARMS[1:])
    lines = [["arm", "points", "p (Holm)", "by the rule", "`parity`", "`s3`", "`s5`"]]
    for arm in RECALL_ARMS:
        beside = ["", "", ""]
        if arm in found:
            p = found[arm].holm
            text = f"{p:.4f}" if p < 5e-4 else f"{p:.3f}" if p < 0.05 else f"{p:.2f}"
            beside = [found[arm].words(), text, reading(*found[arm], least=1.0)]
        lines.append([f"`{arm}`", *beside, *(f"{means[arm, task]:.1f}" for task in ("parity", "s3", "s5"))])
    return table(lines)


TABLES: dict[str, Callable[[], str]] = {
    "recall": table_of_recall,
    "learning": table_of_learning,
    "state": table_of_state,
}
