"""Recall as an experiment: its runs, accuracy, and the step at which a task is learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ...data.sequences import Sequences
from ...sweeps.experiment import Axis
from ...training.experiment import Prepared
from ...training.loop import Trainer
from ...training.metrics import Row
from ..sequence_experiment import SequenceExperiment
from ..sequence_problem import HEAD_SCORES, best_heads, first_step
from .config import RecallConfig, RecallGrid
from .figure import draw_learning
from .presets import COLOURS, LABELS, PRESETS
from .shipped import SHIPPED
from .tasks import TASK_NAMES, TASKS, draw_task

LEARNED = {"accuracy": 0.9, "matching": 0.5}
"""What an evaluation on the validation set must reach for a task to be learned, and for a head to match."""


class Recall(SequenceExperiment[RecallConfig]):
    """Zoology's MQAR (arXiv 2312.04927), copying (2209.11895, 2312.00752) and state tracking (2404.08819)."""

    name = "recall"
    title = "recall"
    about_train = (
        "Train a small causal model to copy, to recall or to track a state, in a new run folder. Without options: a "
        "DAT on sequences that repeat, a minute."
    )
    about_reproduce = (
        "Accuracy of a Transformer and of Dual Attention Transformers in recall, copying and state tracking, and the "
        "step at which each learns it. The defaults are 20 short runs, a few minutes (--dry_run says how long here). "
        "Cells that are done are skipped, so the same command continues after Ctrl-C. Writes results.csv, "
        "comparison.md and figures/ into the folder."
    )
    about_plot = "Table and figure from the results of one or several grids, finished or not."
    Config = RecallConfig
    Grid = RecallGrid
    presets = PRESETS
    shipped = SHIPPED

    axes = (
        Axis("task", "task", "task", "tasks", order=TASK_NAMES),
        Axis("model", "model.name", "model", "models", order=tuple(PRESETS), labels=LABELS),
        Axis("size", "data.size", "size", "sizes", number=True, prefix="size"),
    )
    provenance: ClassVar[Mapping[str, int | None]] = {"vocab_size": None}
    measures: ClassVar[Mapping[str, str]] = {
        "accuracy": "accuracy on scored positions (%)",
        "learned_step": "step at which validation accuracy first reaches 90 %; the last step, if it never does",
    }
    tabled: ClassVar[Mapping[str, str]] = {
        "whole": "sequences with all scored positions right (%)",
        "learned": "runs that reach 90 % (share)",
        "matching": "attention of the best head to the place of the answer",
        "matching_step": "step at which that first reaches 0.5; the last step, if it never does",
        "previous": "attention of the best head to the previous token",
    }
    y_title = "value"
    caption = "New sequences after the last step"
    colours = COLOURS

    def draw(self, config: RecallConfig, name: str, n: int, seed: int) -> Sequences:
        return draw_task(config.task, n, config.data.size, config.vocab_size, seed)

    def headline(self, result: Mapping[str, Any]) -> str:
        task, model = TASKS[result["task"]], self.curve_axis.label(result["model"])
        return f"{result['task']}, {result['size']:,} {task.size}: {model}"

    def identity(self, config: RecallConfig) -> dict[str, Any]:
        return {**super().identity(config), "vocab_size": config.vocab_size}

    def summary(
        self, config: RecallConfig, prepared: Prepared, trainer: Trainer, final: Mapping[str, float]
    ) -> dict[str, Any]:
        numbers = super().summary(config, prepared, trainer, final)
        rows = [{**row, **best_heads(row)} for row in trainer.watched]
        steps = {f"{name}_step": first_step(rows, f"val_{name}", least) for name, least in LEARNED.items()}
        course = {
            str(row["step"]): {name: row[f"val_{name}"] for name in LEARNED if f"val_{name}" in row} for row in rows
        }
        heads = {name.removeprefix("test_"): value for name, value in final.items() if "test_" in name and "/" in name}
        return {**numbers, **steps, "course": course, "heads": heads}

    def row(self, result: Mapping[str, Any]) -> Row:
        row: Row = {key: result[key] for key in ("task", "model", "size", "seed", "parameters", "vocab_size")}
        row["trained_parameters"] = result["trained_parameters"]
        row.update({name: round(100 * result[name]["test"], 3) for name in self.shares})
        row.update({name: round(result[name]["test"], 5) for name in ("loss", *HEAD_SCORES) if name in result})
        row["learned"] = int(result["accuracy_step"] is not None)
        row["learned_step"] = result["accuracy_step"] or result["steps"]
        if "matching" in result:
            row["matching_step"] = result["matching_step"] or result["steps"]
        for step, found in result["course"].items():
            row.update({f"{name}_at_{step}": round(value, 4) for name, value in found.items()})
        return {**row, "steps": result["steps"], "seconds": result["seconds"]}

    def describe_run(self, row: Row) -> str:
        return f"{row['model']} on {row['task']} of size {row['size']}, seed {row['seed']}"

    def extra_figures(self) -> Mapping[str, Callable[[Sequence[Row], Path], None]]:
        return {"recall.png": lambda rows, path: draw_learning(self, rows, path)}
