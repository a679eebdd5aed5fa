"""Mathematics as an experiment: its runs, and accuracy by length of training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from ...data.mathematics import ANSWER_LENGTH, END, MODULES, QUESTION_LENGTH
from ...sweeps.durations import EVALUATION_SHARE
from ...sweeps.experiment import Cost, SweptExperiment
from ...sweeps.table import PERCENT, Axis, CurvesFigure, ResultTable
from ...training.loop import Trainer
from ...training.problem import Problem
from ..base_width import scaled_from_base
from .answers import free_accuracies
from .config import MathematicsConfig
from .grid import SCALES, MathematicsGrid
from .model_keys import PRESETS
from .problem import (
    QUESTIONS,
    Answered,
    PreparedQuestions,
    answer_loss,
    build_mathematics_model,
    empty_mathematics_model,
    prepare_questions,
)
from .published import published_interpolation

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


MEASURES = {
    "interpolate": "interpolation, characters",
    "interpolate_answers": "interpolation, whole answers",
    "extrapolate": "extrapolation, characters",
    "extrapolate_answers": "extrapolation, whole answers",
}
"""Accuracies that are compared, in words."""


class Mathematics(SweptExperiment[MathematicsConfig, PreparedQuestions]):
    """Section 4.2 of arXiv 2405.16727: Figure 3 and Table 2."""

    name = "mathematics"
    title = "mathematics"
    about: ClassVar = {
        "train": "Train an encoder-decoder model to answer questions of school mathematics, in a new run folder. "
        "Without options: a tiny model on linear equations, which are generated first (the extra mathematics), a "
        "minute or two.",
        "reproduce": "Accuracy of answers by length of training, a DAT beside a Transformer. The defaults are 16 runs "
        "of tiny models, a few minutes (--dry_run says how long here); questions are generated first.",
    }
    Config = MathematicsConfig
    Grid = MathematicsGrid
    presets = PRESETS
    scales = SCALES
    table = ResultTable(
        metrics=("accuracy", "answers", "greedy", "beams", "loss"),
        shares=("accuracy", "answers", "greedy", "beams"),
        set_title="set",
        set_names={"val": "validation", "interpolate": "interpolation", "extrapolate": "extrapolation"},
        counted="questions",
        cached=(QUESTIONS,),
        axes=(
            Axis("module", "module", "module", "modules", order=MODULES),
            Axis("model", "model.name", "model", "models", order=tuple(PRESETS)),
            Axis("epochs", "loop.epochs", "epochs", "epochs", number=True, prefix="epochs"),
        ),
        measures=MEASURES,
        tabled={
            f"{name}_{decoding}": f"{words}, whole answers {how}"
            for name, words in (("interpolate", "interpolation"), ("extrapolate", "extrapolation"))
            for decoding, how in (
                ("greedy", "decoded greedily, of the first questions"),
                ("beams", "decoded by beam search, of the same questions"),
            )
        },
        provenance={"n_train": 1_999_998, "batch_size": 512},
        run_in_words=lambda row: (
            f"{row['model']} on {TASKS[row['module']]}, {row['epochs']} epochs, seed {row['seed']}"
        ),
        **PERCENT,
        caption="Accuracy in percent after the last epoch",
        colours={
            **dict.fromkeys(("T-tiny", "T-871K"), "#8c8c8c"),
            **dict.fromkeys(("DAT-tiny", "DAT-832K"), "#1f6fb4"),
        },
        figures={"accuracy.png": CurvesFigure("Mathematics: accuracy by length of training", tuple(MEASURES))},
        published=lambda measure, panel, curve: (
            published_interpolation(panel, curve) if measure == "interpolate" else []
        ),
    )

    def prepare(self, config: MathematicsConfig, *, cache: Path, run: Path | None = None) -> PreparedQuestions:
        return prepare_questions(config, cache=cache, run=run)

    def empty_model(self, config: MathematicsConfig) -> nn.Module:
        return empty_mathematics_model(config.model)

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{TASKS[result['module']]}, {result['n_train']:,} questions: {result['model']}"

    def identity(self, config: MathematicsConfig) -> dict[str, Any]:
        made = {"n_train": config.data.n_train, "batch_size": config.loop.batch_size}
        return {**super().identity(config), **made}

    def summary(
        self, config: MathematicsConfig, prepared: PreparedQuestions, trainer: Trainer, final: Mapping[str, float]
    ) -> dict[str, Any]:
        sizes = {name: len(examples) for name, examples in prepared.problem.evaluation.items()}
        return {**super().summary(config, prepared, trainer, final), "questions": sizes, "data": prepared.origin}

    def evaluation(self, prepared: PreparedQuestions, name: str, means: Mapping[str, float]) -> dict[str, Any]:
        freely = {f"{name}_{metric}": share for metric, share in free_accuracies(prepared, name).items()}
        return super().evaluation(prepared, name, {**means, **freely})

    def cost(self, config: MathematicsConfig) -> Cost:
        data, loop = config.data, config.loop
        evaluated = data.n_evaluated * (1 + len(loop.measure_at)) + 3 * data.n_answered * (1 + data.beams)
        questions = loop.epochs * data.n_train + EVALUATION_SHARE * evaluated
        work = questions * (COSTS[config.module] if data.padding == "masked" else 1)
        return Cost(work, lambda: timed_questions(config))


def timed_questions(config: MathematicsConfig) -> Problem:
    """A batch of the longest linear equations."""
    size, masked = config.loop.batch_size, config.data.padding == "masked"
    questions, answers = torch.zeros(size, QUESTION_LENGTH).byte(), torch.zeros(size, ANSWER_LENGTH + 1).byte()
    questions[:, : TIMED["question"]], answers[:, : TIMED["answer"]] = END, END
    examples = Answered(questions, answers, masked=masked)
    model = build_mathematics_model(config.model, seed=0)
    factors = scaled_from_base(config, model, empty_mathematics_model)
    return Problem(model, examples, answer_loss(masked=masked), factors=factors)
