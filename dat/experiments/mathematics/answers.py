"""Answers that a model gives freely, from the question only: greedily, and by beam search.

Shapes: as in :mod:`.problem`.
"""

from typing import Any

import torch
from torch import Tensor

from ...data.mathematics import ANSWER_LENGTH, END, PAD, START
from .problem import Answered, PreparedQuestions, question_mask


def free_accuracies(prepared: PreparedQuestions, name: str) -> dict[str, float]:
    """Shares of questions of a set whose answer is right to the last character, greedily and by beams.

    They are the first of a set to test on. To validate on, levels follow each other, and questions are taken evenly.
    """
    examples: Any = prepared.problem.evaluation[name]
    data, dtype = prepared.config.data, prepared.config.machine.autocast
    n, size = min(data.n_answered, len(examples)), prepared.config.loop.eval_batch_size
    places = torch.arange(n) * (len(examples) // n if name == "val" else 1)
    model, right = prepared.problem.model, {1: 0, data.beams: 0}
    with torch.autocast(prepared.device.type, dtype=dtype, enabled=dtype is not None):
        for indices in places.split(size):
            for beams in right:
                right[beams] += int(right_answers(model, examples, indices, beams=beams).sum())
    return {"greedy": right[1] / n, "beams": right[data.beams] / n}


def right_answers(model: Any, examples: Answered, indices: Tensor, *, beams: int = 1) -> Tensor:
    """Whether the model's answers are right to the last character and its end, boolean ``(B,)``.

    Args:
        beams: hypotheses of a beam search; 1 takes the likeliest character each time.
    """
    questions, _, wanted = examples.batch(indices)
    ends, mask = {"start_token": START, "stop_token": END, "pad_token": PAD}, question_mask(questions, examples.masked)
    made = model.generate(questions, ANSWER_LENGTH, **ends, num_beams=beams, source_padding_mask=mask)
    length = max(made.shape[1], wanted.shape[1])
    return (_padded(made, length) == _padded(wanted, length)).all(-1)


def _padded(answers: Tensor, length: int) -> Tensor:
    return torch.nn.functional.pad(answers, (0, length - answers.shape[1]), value=PAD)
