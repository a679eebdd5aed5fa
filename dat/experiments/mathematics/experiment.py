"""Mathematics as an experiment: its runs, and accuracy by length of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from ...data.mathematics import ANSWER_LENGTH, END, MODULES, QUESTION_LENGTH
from ...sweeps.durations import EVALUATION_SHARE
from ...sweeps.experiment import Axis, CurvesFigure, SweptExperiment
from ...sweeps.published import Published
from ...training.loop import Trainer
from ...training.metrics import Row
from ...training.problem import Problem
from ..base_width import scaled_from_base
from .answers import free_accuracies
from .config import MathematicsConfig
from .grid import MathematicsGrid
from .model_keys import PRESETS
from .problem import (
    QUESTIONS,
    Answered,
    PreparedQuestions,
    answer_loss,
    build_mathematics_model,
    by_character,
    empty_mathematics_model,
    prepare_questions,
)
from .published import published_interpolation
from .scales import SCALES

TASKS = {module: module.partition("__")[2].replace("_", " ") for module in MODULES}
"""Modules in words."""

COSTS = {
    "algebra__linear_1d": 1.0,
    "algebra__sequence_next_term": 2.3,
    "calculus__differentiate": 4.5,
    "polynomials__add": 5.0,
    "polynomials__expand": 4.5,
}
"""Time of a question whose padding is masked, about, as a multiple of that of a linear equation."""
TIMED = {"question": 50, "answer": 6}
"""Characters of the longest linear equation of a batch, and of its answer with its ends, about."""


class Mathematics(SweptExperiment[MathematicsConfig, PreparedQuestions]):
    """Section 4.2 of arXiv 2405.16727: Figure 3 and Table 2."""

    name = "mathematics"
    title = "mathematics"
    cached = (QUESTIONS,)
    about_train = (
        "Train an encoder-decoder model to answer questions of school mathematics, in a new run folder. Without "
        "options: a tiny model on linear equations, which are generated first, a minute or two."
    )
    about_reproduce = (
        "Accuracy of answers by length of training, a DAT beside a Transformer. The defaults are 16 runs of tiny "
        "models, a few minutes (--dry_run says how long here); questions are generated first. Cells that are done are "
        "skipped, so the same command continues after Ctrl-C. Writes results.csv, comparison.md (beside the published "
        "numbers) and figures/ into the folder."
    )
    about_plot = (
        "Accuracy from the results of one or several grids, finished or not: results.csv of all of them, comparison.md "
        "(beside the published numbers) and accuracy.png."
    )
    Config = MathematicsConfig
    Grid = MathematicsGrid
    presets = PRESETS
    scales = SCALES

    metrics = ("accuracy", "answers", "greedy", "beams", "loss")
    shares = ("accuracy", "answers", "greedy", "beams")
    set_title = "set"
    set_names: ClassVar[Mapping[str, str]] = {
        "val": "validation",
        "interpolate": "interpolation",
        "extrapolate": "extrapolation",
    }
    counted = "questions"

    axes = (
        Axis("module", "module", "module", "modules", order=MODULES),
        Axis("model", "model.name", "model", "models", order=tuple(PRESETS)),
        Axis("epochs", "loop.epochs", "epochs", "epochs", number=True, prefix="epochs"),
    )
    provenance: ClassVar[Mapping[str, int | None]] = {"n_train": 1_999_998, "batch_size": 512}
    measures: ClassVar[Mapping[str, str]] = {
        "interpolate": "interpolation, characters",
        "interpolate_answers": "interpolation, whole answers",
        "extrapolate": "extrapolation, characters",
        "extrapolate_answers": "extrapolation, whole answers",
    }
    tabled: ClassVar[Mapping[str, str]] = {
        f"{name}_{decoding}": f"{words}, whole answers {how}"
        for name, words in (("interpolate", "interpolation"), ("extrapolate", "extrapolation"))
        for decoding, how in (
            ("greedy", "decoded greedily, of the first questions"),
            ("beams", "decoded by beam search, of the same questions"),
        )
    }
    scale = 100.0
    unit = " %"
    y_title = "accuracy (%)"
    caption = "Accuracy in percent after the last epoch"
    colours: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("T-tiny", "T-871K"), "#8c8c8c"),
        **dict.fromkeys(("DAT-tiny", "DAT-832K"), "#1f6fb4"),
    }
    figures = (CurvesFigure("accuracy.png", "Mathematics: accuracy by length of training", tuple(measures)),)
    compares = True

    def prepare(self, config: MathematicsConfig, *, cache: Path, run: Path | None = None) -> PreparedQuestions:
        return prepare_questions(config, cache=cache, run=run)

    def empty_model(self, config: MathematicsConfig) -> nn.Module:
        return empty_mathematics_model(config.model)

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{TASKS[result['module']]}, {result['n_train']:,} questions: {result['model']}"

    def identity(self, config: MathematicsConfig) -> dict[str, Any]:
        made = {"n_train": config.data.n_train, "batch_size": config.loop.batch_size}
        return {**super().identity(config), **made}

    def by_metric(self, problem: Problem, means: Mapping[str, float]) -> dict[str, Any]:
        found = {**means, **by_character(means)}
        sets = problem.evaluation
        metrics = [metric for metric in self.metrics if all(f"{name}_{metric}" in found for name in sets)]
        return {metric: {name: found[f"{name}_{metric}"] for name in sets} for metric in metrics}

    def summary(
        self, config: MathematicsConfig, prepared: PreparedQuestions, trainer: Trainer, final: Mapping[str, float]
    ) -> dict[str, Any]:
        freely = {
            f"{name}_{metric}": value
            for name in prepared.problem.evaluation
            for metric, value in free_accuracies(prepared, name).items()
        }
        numbers = super().summary(config, prepared, trainer, {**final, **freely})
        sizes = {name: len(examples) for name, examples in prepared.problem.evaluation.items()}
        return {**numbers, "questions": sizes, "data": prepared.origin}

    def evaluation(self, prepared: PreparedQuestions, name: str, means: dict[str, float]) -> dict[str, Any]:
        numbers = {**means, **by_character(means), **free_accuracies(prepared, name)}
        found = {metric: numbers[metric] for metric in self.metrics}
        return {**found, self.counted: len(prepared.problem.evaluation[name])}

    def row(self, result: Mapping[str, Any]) -> Row:
        row = super().row(result)
        ends = tuple(f"_{name}" for name in self.shares)
        return {**row, **{key: round(self.scale * row[key], 3) for key in row if key.endswith(ends)}}

    def work(self, config: MathematicsConfig) -> float:
        data, loop = config.data, config.loop
        evaluated = data.n_evaluated * (1 + len(loop.measure_at)) + 3 * data.n_answered * (1 + data.beams)
        questions = loop.epochs * data.n_train + EVALUATION_SHARE * evaluated
        return questions * (COSTS[config.module] if data.padding == "masked" else 1)

    def timing_problem(self, config: MathematicsConfig) -> Problem:
        size, masked = config.loop.batch_size, config.data.padding == "masked"
        questions, answers = torch.zeros(size, QUESTION_LENGTH).byte(), torch.zeros(size, ANSWER_LENGTH + 1).byte()
        questions[:, : TIMED["question"]], answers[:, : TIMED["answer"]] = END, END
        examples = Answered(questions, answers, masked=masked)
        model = build_mathematics_model(config.model, seed=0)
        factors = scaled_from_base(config, model, empty_mathematics_model)
        return Problem(model, examples, answer_loss(masked=masked), factors=factors)

    def describe_run(self, row: Row) -> str:
        return f"{row['model']} on {TASKS[row['module']]}, {row['epochs']} epochs, seed {row['seed']}"

    def published(self, measure: str, panel: str, curve: str) -> Sequence[Published]:
        return published_interpolation(panel, curve) if measure == "interpolate" else []
