"""Mathematics as a problem for the training loop.

Shapes: B questions, S positions of the longest of them or 161, T of the longest answer with its end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention._base.files import read_json
from dual_attention._base.words import counted

from ...data.mathematics import (
    ANSWER_LENGTH,
    PAD,
    QUESTION_LENGTH,
    Pair,
    QuestionSets,
    encode_answers,
    encode_questions,
    generated_folder,
    load_questions,
)
from ...training.device import check_memory, prepare_device
from ...training.experiment import ORIGIN, Prepared, count_parameters, without_values
from ...training.problem import Batch, LossFunction, Problem, TensorExamples
from ...training.seeding import derive_seed
from ..base_width import scaled_from_base
from ..progress import data_progress
from .config import MathematicsConfig
from .model_keys import MathematicsModelKeys

QUESTIONS = "mathematics"
"""Folder beside run folders that keeps generated questions, for all runs on them."""


class Answered(TensorExamples):
    """Questions with their answers, kept whole in memory as uint8.

    Args:
        questions: indices ``(n, 161)``.
        answers: indices ``(n, 32)``, from the start on.
        masked: whether padding is masked; questions are then no longer than the longest of their batch.
    """

    def __init__(self, questions: Tensor, answers: Tensor, *, masked: bool, device: torch.device | str = "cpu") -> None:
        super().__init__(questions, answers, device=device)
        self.masked = masked

    def batch(self, indices: Tensor) -> Batch:
        """Questions ``(B, S)``, what the decoder reads and what it is to predict ``(B, T)``, all int64.

        Answers are no longer than the longest of the batch, which changes nothing: their padding is not scored, and no
        earlier position sees it.
        """
        questions, answers = (tensor.long() for tensor in super().batch(indices))
        if self.masked:
            questions = questions[:, : int((questions != PAD).sum(-1).max())]
        answers = answers[:, : int((answers != PAD).sum(-1).max())]
        return questions, answers[:, :-1], answers[:, 1:]


def answered(pairs: Sequence[Pair], *, masked: bool, device: torch.device | str = "cpu") -> Answered:
    """Questions and answers as tensors."""
    questions, answers = zip(*pairs, strict=True)
    return Answered(encode_questions(questions), encode_answers(answers), masked=masked, device=device)


def question_mask(questions: Tensor, masked: bool) -> Tensor | None:
    """Mask of the characters of questions ``(B, S)``; None if their padding is attended to."""
    return questions != PAD if masked else None


def answer_loss(*, masked: bool, autocast: torch.dtype | None = None) -> LossFunction:
    """Mean cross-entropy of the characters of answers, ends included, given the right ones before.

    Its scalars are means over questions: ``characters``, those that are ``right``, their cross-entropy in ``nats``, and
    the share of ``answers`` of which every character is right. The latter is the share that greedy decoding answers
    rightly, since that goes on from the right characters until it errs.
    """

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        questions, read, wanted = batch
        with torch.autocast(questions.device.type, dtype=autocast, enabled=autocast is not None):
            mask = question_mask(questions, masked)
            logits, value = model(questions, read, wanted, source_padding_mask=mask)
        scored = wanted != PAD
        right = (logits.detach().argmax(-1) == wanted) & scored
        characters = scored.sum() / len(wanted)
        return value, {
            "characters": characters,
            "right": right.sum() / len(wanted),
            "nats": value.detach() * characters,
            "answers": (right == scored).all(-1).float().mean(),
        }

    return loss


def by_character(means: Mapping[str, Any]) -> dict[str, float]:
    """Accuracy and loss over characters from the means over questions, whatever prefix both have."""
    numbers = {}
    for name in [name for name in means if name.endswith("characters")]:
        prefix = name.removesuffix("characters")
        numbers[f"{prefix}accuracy"] = means[f"{prefix}right"] / means[name]
        numbers[f"{prefix}loss"] = means[f"{prefix}nats"] / means[name]
    return numbers


@dataclass(frozen=True)
class PreparedQuestions(Prepared):
    """A run on mathematics, ready to train.

    Attributes:
        config: of the run.
    """

    config: MathematicsConfig


def prepare_questions(config: MathematicsConfig, *, cache: Path, run: Path | None = None) -> PreparedQuestions:
    """Model, data and loss of a run, see :meth:`~dat.training.experiment.Experiment.prepare`."""
    device, data = prepare_device(config.machine), config.data
    check_memory("data", "its questions", (data.n_train + data.n_evaluated) * (QUESTION_LENGTH + ANSWER_LENGTH + 1))
    check_memory("model", "its weights", 4 * count_parameters(empty_mathematics_model(config.model)), device)
    found = find_questions(config, cache / QUESTIONS)
    if run is not None and read_json(run / ORIGIN) != found.origin:
        raise ValueError(f"{run}: the questions are not those that the run began with, see {ORIGIN} there")
    masked = data.padding == "masked"
    sets = {name: answered(pairs, masked=masked, device=device) for name, pairs in found.sets.items()}
    model = build_mathematics_model(config.model, seed=config.seed)
    factors = scaled_from_base(config, model, empty_mathematics_model)
    problem = Problem(
        model=model.to(device),
        train=sets.pop("train"),
        loss=answer_loss(masked=masked, autocast=config.machine.autocast),
        evaluation=sets,
        watch=("val" if data.n_val else "interpolate",),
        derive=by_character,
        factors=factors,
        weigh=lambda batch: (batch[2] != PAD).sum(),  # characters of answers that the loss is a mean over
    )
    about = about_questions(config.module, found)
    return PreparedQuestions(problem, device, config, about=about, origin=found.origin)


def about_questions(module: str, found: QuestionSets) -> str:
    """A line on the questions of a run, and on those that are left out."""
    left_out = sum(found.left_out.values())
    dropped = f"; left out: {left_out:,} that another set has, too" if left_out else ""
    return f"{module}: {counted(len(found.sets['train']), 'question')} to train on{dropped}"


def find_questions(config: MathematicsConfig, cache: Path) -> QuestionSets:
    """The questions of a run, of the official files or generated.

    Raises:
        FileNotFoundError, ValueError: naming the key and the file, if it is not there, cut short or too small; a
            ValueError also if none is left to train on.
    """
    data, module = config.data, config.module
    sizes = {"n_train": data.n_train, "n_val": data.n_val, "n_test": data.n_test}
    if data.official_folder is not None:
        try:
            found = load_questions(Path(data.official_folder), module, **sizes)
        except (FileNotFoundError, ValueError) as error:
            raise type(error)(f"data.official_folder: {error}") from error
    else:

        def generated(seconds: float, done: int, total: int) -> str:
            left = seconds / done * (total - done)
            return f"{module}: {done:,} of {total:,} questions  {left:.0f} s left"

        drawn = {"n_train": data.n_train + data.n_val, "n_test": data.n_test, "seed": data.seed}
        advice = "or name a folder of the official files with data.official_folder"
        with data_progress(config.output.progress, generated) as report:
            try:
                folder = generated_folder(cache, module, **drawn, report=report)
            except ImportError as error:
                raise ImportError(f"{error}, {advice}") from error
        found = load_questions(folder, module, **sizes)
    if not found.sets["train"]:
        raise ValueError("data: every training question is in another set, too; give more of them (data.n_train)")
    return found


def build_mathematics_model(config: MathematicsModelKeys, *, seed: int) -> nn.Module:
    """The model with initial weights that depend on ``seed`` only; the global generators are left seeded by it."""
    torch.manual_seed(derive_seed(seed, "weights"))
    return config.build()


def empty_mathematics_model(config: MathematicsModelKeys) -> nn.Module:
    """The model on the meta device; random generators are left as they are."""
    with without_values():
        return config.build()
