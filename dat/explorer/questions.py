"""Sessions of models that answer questions of school mathematics: a question, and the answer of the model."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..data.mathematics import ANSWER_LENGTH, END, PAD, START, VOCABULARY, decode_text, encode_questions
from .packing import pack
from .recording import Recording, record
from .requests import Json
from .session import ModelSession

EXAMPLES = {
    "algebra__linear_1d": "Solve 4*x + 7 = 23 for x.",
    "algebra__sequence_next_term": "What is next in 3, 7, 11, 15?",
    "calculus__differentiate": "What is the derivative of 3*x**2 - 5*x wrt x?",
    "polynomials__add": "Let f(x) = 2*x - 1. Let g(x) = x + 4. Calculate 3*f(x) - 2*g(x).",
    "polynomials__expand": "Expand (x + 2)*(3*x - 1).",
}
"""A question of each module, in the words of its generator."""

_NAMES = {PAD: "⟨padding⟩", START: "⟨start⟩", END: "⟨end⟩"}


@dataclass(frozen=True)
class QuestionSession(ModelSession):
    """An encoder-decoder model of characters that is looked into, by one question at a time.

    Attributes:
        title, facts: of its pages.
        module: of its questions, one of :data:`~dat.data.mathematics.MODULES`.
        masked: whether it was trained not to see the padding of questions; otherwise it sees all 161 positions.
    """

    model: Any
    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    module: str = "algebra__linear_1d"
    masked: bool = True

    @property
    def default(self) -> str:
        """Question to show first, if nothing else is asked for."""
        return EXAMPLES[self.module]

    def check(self, text: str) -> None:
        """Raise ``ValueError`` if the model cannot read a question."""
        self.question(text)

    def question(self, text: str) -> Tensor:
        """The characters of a question with its end, ``(1, S)``.

        Raises:
            ValueError: if it is empty, longer than the model reads, or has characters that it does not know.
        """
        if not text:
            raise ValueError("text: expected a question, got an empty text")
        found = encode_questions([text]).long().to(next(self.model.parameters()).device)
        return found[:, : int((found != PAD).sum())] if self.masked else found

    def options(self, question: Tensor) -> dict[str, Tensor]:
        """Further arguments of the model for a question."""
        return {"source_padding_mask": question != PAD} if self.masked else {}

    def answer(self, model: Any, question: Tensor) -> tuple[Tensor, Tensor]:
        """The model's own answer as it reads it, behind a start, and as it gives it, a place on; ``(1, T)`` each."""
        ends = {"start_token": START, "stop_token": END, "pad_token": PAD}
        answer = model.generate(question, ANSWER_LENGTH, **ends, **self.options(question))
        answer = answer[:, : int((answer != PAD).sum())]
        return torch.cat((answer.new_full((1, 1), START), answer[:, :-1]), 1), answer

    def record(self, text: str) -> Recording:
        """Record the model on a question and its own answer, greedily decoded; errors as :meth:`question`."""
        question = self.question(text)
        options = self.options(question)
        with self.reserved() as model, torch.no_grad():
            read, answer = self.answer(model, question)
            labels = {"question": _labels(question[0]), "answer": _labels(read[0])}
            facts = {**self.facts, "answer": decode_text(answer[0])}
            about = {"title": self.title, "facts": facts, "reads": "text", "layers": self.layers}
            return record(model, lambda: model(question, read, **options), labels, **about)

    def packed(self, text: str, layers: Collection[str] = ()) -> Json:
        """The recording of a question and its answer as JSON, of all layers; errors as :meth:`question`."""
        return {**pack(self.record(text), self.bits).json, "source": text}


def _labels(indices: Tensor) -> list[str]:
    """Characters as :func:`~dual_attention.model_analysis.views.tokens.token_labels` writes them."""
    return [_NAMES.get(index) or VOCABULARY[index].replace(" ", "␣") for index in indices.tolist()]
