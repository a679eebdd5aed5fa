"""Sequence tasks as experiments: their runs, and what is told of them at one size (recall) and by length."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from ...data.sequences import UNSCORED
from ...sweeps.durations import EVALUATION_SHARE
from ...sweeps.experiment import Cost, SweptExperiment
from ...sweeps.table import Axis, ResultTable
from ...training.device import check_memory, prepare_device
from ...training.experiment import Prepared, count_parameters
from ...training.loop import Trainer
from ...training.metrics import Row
from ...training.problem import Problem, TensorExamples
from ...training.seeding import derive_seed
from ..stream import Stream
from .config import LengthConfig, LengthGrid, RecallConfig, RecallGrid, SequencesConfig, in_batches
from .presets import COLOURS, LABELS, PRESETS
from .problem import HEAD_SCORES, best_heads, first_step, sequence_loss
from .tasks import LENGTH_TASKS, RECALL_TASKS, TASKS

LOOKS = ("T", "DAT-symbolic")
"""Models of the grids that take minutes, beside one with relative symbols."""
TOKENS_OF_WORK = 32
"""Tokens of a sequence that is one unit of work; a longer one takes time in proportion, about."""


Config = TypeVar("Config", bound=SequencesConfig)


class SequenceExperiment(SweptExperiment[Config, Prepared]):
    """An experiment that trains a causal model on a stream of sequences."""

    presets = PRESETS
    loss: ClassVar[Any] = staticmethod(sequence_loss)

    def prepare(self, config: Config, *, cache: Path, run: Path | None = None) -> Prepared:
        device = prepare_device(config.machine)
        check_memory("model", "its weights", 4 * count_parameters(self.empty_model(config)), device)
        check_memory("data", "its sequences", 3 * 8 * config.length * sum(config.sizes.values()))
        train = Stream(partial(config.draw, "train"), derive_seed(config.seed, "train"), device)
        sets = {
            name: TensorExamples(*config.draw(name, n, derive_seed(config.seed, name)), device=device)
            for name, n in config.sizes.items()
        }
        model = config.model.build(config.vocab_size, seed=config.seed).to(device)
        problem = Problem(
            model=model,
            train=train,
            loss=self.loss,
            evaluation=sets,
            derive=best_heads,
            weigh=lambda batch: (batch[1] != UNSCORED).sum(),  # positions that are scored, and whose answer is seen
            metric_weights={"matching": lambda batch: (batch[2] != UNSCORED).sum()},
        )
        return Prepared(problem, device)

    def empty_model(self, config: Config) -> nn.Module:
        return config.model.empty(config.vocab_size)

    def export(self, config: Config, model: nn.Module, folder: Path, **saving: Any) -> None:
        from dual_attention.hf import to_transformers

        owned: Any = model
        to_transformers(owned, config.model.language_config(config.vocab_size)).save_pretrained(folder, **saving)

    def summary(
        self, config: Config, prepared: Prepared, trainer: Trainer, final: Mapping[str, float]
    ) -> dict[str, Any]:
        trained = sum(p.numel() for p in prepared.problem.model.parameters() if p.requires_grad)
        return {**super().summary(config, prepared, trainer, final), "trained_parameters": trained}

    def cost(self, config: Config) -> Cost:
        loop, sizes = config.loop, config.sizes
        looks = loop.steps // loop.eval_every if loop.eval_every else 0
        # A sequence that is evaluated is passed twice, the second time to see where heads look.
        evaluated = 2 * EVALUATION_SHARE * (looks * sizes["val"] + sum(sizes.values()))
        example = config.trained_length / TOKENS_OF_WORK
        work = loop.steps * loop.batch_size * example + evaluated * config.length / TOKENS_OF_WORK
        return Cost(work, lambda: timed_sequences(config), example)


def timed_sequences(config: SequencesConfig) -> Problem:
    """A batch of the longest sequences that are trained on."""
    tokens = torch.zeros(config.loop.batch_size, config.trained_length, dtype=torch.int64)
    model = config.model.build(config.vocab_size, seed=0)
    return Problem(model, TensorExamples(tokens, tokens, tokens), sequence_loss)


sequence_table = partial(
    ResultTable,
    metrics=("accuracy", "whole", "loss", *HEAD_SCORES),
    shares=("accuracy", "whole"),
    set_title="evaluated on",
    set_names={"val": "validation"},
    counted="sequences",
    caption="New sequences after the last step",
    colours=COLOURS,
)
"""A table of such an experiment."""


def sequence_axes(tasks: Sequence[str], size: Axis) -> tuple[Axis, ...]:
    """The axes of such an experiment, with the tasks in this order."""
    return (
        Axis("task", "task", "task", "tasks", order=tuple(tasks)),
        Axis("model", "model.name", "model", "models", order=tuple(PRESETS), labels=LABELS),
        size,
    )


LEARNED = {"accuracy": 0.9, "matching": 0.5}
"""Thresholds on the validation set for a task to be learned, and for a head to match."""


class Recall(SequenceExperiment[RecallConfig]):
    """Zoology's MQAR (arXiv 2312.04927), copying (2209.11895, 2312.00752) and state tracking (2404.08819)."""

    name = "recall"
    title = "recall"
    about: ClassVar = {
        "train": "Train a small causal model to copy, to recall or to track a state, in a new run folder. Without "
        "options: a DAT on sequences that repeat, a minute.",
        "reproduce": "Accuracy of a Transformer and of Dual Attention Transformers in recall, copying and state "
        "tracking, and the step at which each learns it. The defaults are 20 short runs, a few minutes (--dry_run "
        "says how long here).",
    }
    Config = RecallConfig
    Grid = RecallGrid
    scales: ClassVar = {"tiny": RecallGrid(out="runs/recall-tiny", seeds=1, models=(*LOOKS, "DAT-relative"))}
    table = sequence_table(
        axes=sequence_axes(RECALL_TASKS, Axis("size", "data.size", "size", "sizes", number=True, prefix="size")),
        measures={
            "accuracy": "accuracy on scored positions (%)",
            "learned_step": "step at which validation accuracy first reaches 90 %; the last step, if it never does",
        },
        tabled={
            "whole": "sequences with all scored positions right (%)",
            "learned": "runs that reach 90 % (share)",
            "matching": "attention of the best head to the place of the answer",
            "matching_step": "step at which that first reaches 0.5; the last step, if it never does",
            "previous": "attention of the best head to the previous token",
        },
        provenance={"vocab_size": None},
        y_title="value",
    )

    def headline(self, result: Mapping[str, Any]) -> str:
        task, model = TASKS[result["task"]], self.table.curve_axis.label(result["model"])
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
        row.update({name: round(100 * result[name]["test"], 3) for name in self.table.shares})
        row.update({name: round(result[name]["test"], 5) for name in ("loss", *HEAD_SCORES) if name in result})
        row["learned"] = int(result["accuracy_step"] is not None)
        row["learned_step"] = result["accuracy_step"] or result["steps"]
        if "matching" in result:
            row["matching_step"] = result["matching_step"] or result["steps"]
        for step, found in result["course"].items():
            row.update({f"{name}_at_{step}": round(value, 4) for name, value in found.items()})
        return {**row, "steps": result["steps"], "seconds": result["seconds"]}


class Length(SequenceExperiment[LengthConfig]):
    """Sorting after the Abstractor (arXiv 2304.00195), and linear equations."""

    name = "length"
    title = "length"
    about: ClassVar = {
        "train": "Train a small causal model to sort or to solve equations, and measure it on longer ones, in a new "
        "run folder. Two minutes.",
        "reproduce": "Accuracy by length of a Transformer and of Dual Attention Transformers in sorting and in linear "
        "equations, trained on short ones: 20 runs by default (--dry_run says how long here).",
    }
    Config = LengthConfig
    Grid = LengthGrid
    scales: ClassVar = {
        "tiny": LengthGrid(
            out="runs/length-tiny",
            seeds=1,
            models=(*LOOKS, "DAT-clipped"),
            loop=in_batches(300, 250, eval_every=0, checkpoint_every=0),
        )
    }
    table = sequence_table(
        axes=sequence_axes(
            LENGTH_TASKS,
            Axis("longest", "data.longest", "longest length trained on", "longest", number=True, prefix="to"),
        ),
        measures={
            "beyond": "accuracy beyond the lengths trained on (%), mean over lengths",
            "within": "accuracy within the lengths trained on (%), mean over lengths",
        },
        tabled={
            "whole_beyond": "sequences with all scored positions right, beyond the lengths trained on (%)",
            "whole_within": "sequences with all scored positions right, within the lengths trained on (%)",
        },
        provenance={"training_steps": None},
        y_title="accuracy (%)",
    )

    def headline(self, result: Mapping[str, Any]) -> str:
        model = self.table.curve_axis.label(result["model"])
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
            row.update({f"{prefix}at_{length}": round(share, 2) for length, share in by_length.items()})
        return {**row, "steps": result["steps"], "seconds": result["seconds"]}
