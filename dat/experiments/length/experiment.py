"""Length as an experiment: its runs, and accuracy by length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from ...data.sequences import Sequences
from ...sweeps.experiment import Axis
from ...training.metrics import Row
from ..sequence_experiment import SequenceExperiment
from .config import SHORTEST, TASK_NAMES, LengthConfig, LengthGrid, draw_lengths
from .figure import AT, draw_lengths_figure
from .presets import COLOURS, LABELS, PRESETS
from .shipped import SHIPPED


class Length(SequenceExperiment[LengthConfig]):
    """Sorting after the Abstractor (arXiv 2304.00195), and linear equations."""

    name = "length"
    title = "length"
    about_train = (
        "Train a small causal model to sort or to solve equations, and measure it on longer ones, in a new run folder. "
        "Two minutes."
    )
    about_reproduce = (
        "Accuracy by length of a Transformer and of Dual Attention Transformers in sorting and in linear equations, "
        "trained on short ones: 20 runs by default (--dry_run says how long here). Cells that are done are skipped, so "
        "the same command continues after Ctrl-C. Writes results.csv, comparison.md and figures/ into the folder."
    )
    about_plot = "Table and figure from the results of one or several grids, finished or not."
    Config = LengthConfig
    Grid = LengthGrid
    presets = PRESETS
    shipped = SHIPPED

    axes = (
        Axis("task", "task", "task", "tasks", order=TASK_NAMES),
        Axis("model", "model.name", "model", "models", order=tuple(PRESETS), labels=LABELS),
        Axis("longest", "data.longest", "longest length trained on", "longest", number=True, prefix="to"),
    )
    provenance: ClassVar[Mapping[str, int | None]] = {"training_steps": None}
    measures: ClassVar[Mapping[str, str]] = {
        "beyond": "accuracy beyond the lengths trained on (%), mean over lengths",
        "within": "accuracy within the lengths trained on (%), mean over lengths",
    }
    tabled: ClassVar[Mapping[str, str]] = {
        "whole_beyond": "sequences with all scored positions right, beyond the lengths trained on (%)",
        "whole_within": "sequences with all scored positions right, within the lengths trained on (%)",
    }
    y_title = "accuracy (%)"
    caption = "New sequences after the last step"
    colours = COLOURS

    def draw(self, config: LengthConfig, name: str, n: int, seed: int) -> Sequences:
        if name in ("train", "val"):
            return draw_lengths(config.task, n, SHORTEST, config.data.longest, seed)
        return draw_lengths(config.task, n, int(name), int(name), seed)

    def headline(self, result: Mapping[str, Any]) -> str:
        model = self.curve_axis.label(result["model"])
        return f"{result['task']}, trained on lengths to {result['longest']:,}: {model}"

    def identity(self, config: LengthConfig) -> dict[str, Any]:
        return {**super().identity(config), "training_steps": config.loop.steps}

    def row(self, result: Mapping[str, Any]) -> Row:
        row: Row = {key: result[key] for key in ("task", "model", "longest", "seed", "parameters")}
        row.update({key: result[key] for key in ("trained_parameters", "training_steps")})
        for metric, prefix in (("accuracy", ""), ("whole", "whole_")):
            by_length = {int(name): 100 * share for name, share in result[metric].items() if name != "val"}
            for where, beyond in (("beyond", True), ("within", False)):
                shares = [share for length, share in by_length.items() if (length > result["longest"]) == beyond]
                if shares:
                    row[prefix + where] = round(fmean(shares), 3)
            row.update({f"{prefix}{AT}{length}": round(share, 2) for length, share in by_length.items()})
        return {**row, "steps": result["steps"], "seconds": result["seconds"]}

    def describe_run(self, row: Row) -> str:
        return f"{row['model']} on {row['task']} to {row['longest']}, seed {row['seed']}"

    def extra_figures(self) -> Mapping[str, Callable[[Sequence[Row], Path], None]]:
        return {"length.png": lambda rows, path: draw_lengths_figure(self, rows, path)}
