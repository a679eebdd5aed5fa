"""Sessions: a language model and its tokenizer, asked by pages for the recordings of texts."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ...checkpoints import Checkpoint, open_checkpoint
from ...data.text.tokenizer import Tokenizer
from ...language_models import LanguageModel
from ..views.tokens import token_labels
from .packing import Bits, pack
from .recording import Recording, record

DEFAULT_TEXT = (
    "The relation between two objects is not a property of either. The cat sat on the mat; the dog sat on the log."
)


@dataclass(frozen=True)
class Session:
    """A language model that is looked into, by one text at a time.

    Nothing of it changes but the text that the model reads at the moment, which a lock keeps to one.

    Attributes:
        model: in evaluation mode.
        tokenizer: of its tokens.
        title, facts: of its pages.
        bits: of factors, see :func:`~dual_attention.model_analysis.explorer.packing.pack`.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    bits: Bits | None = None
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    @classmethod
    def open(
        cls, checkpoint: str, *, tokenizer: str | None = None, bits: Bits | None = None, title: str | None = None
    ) -> Session:
        """The session of a checkpoint.

        Raises:
            ValueError: if it is no language model; further errors as of
                :func:`~dual_attention.checkpoints.open_checkpoint`.
        """
        found = open_checkpoint(checkpoint)
        model = found.model
        if not isinstance(model, LanguageModel):
            raise ValueError(
                f"{checkpoint}: its {type(model).__name__} reads no text; expected a language model (a DAT, or a "
                "Transformer, of which only attention is shown)"
            )
        return cls(model, found.tokenizer(tokenizer), title or _name(found), facts_of(found), bits)

    @property
    def context(self) -> int:
        """Most tokens of a text."""
        return self.model.block_size

    def tensor(self, tokens: list[int]) -> torch.Tensor:
        """Tokens as the model takes them, ``(1, N)``."""
        return torch.tensor([tokens], device=next(self.model.parameters()).device)

    @contextmanager
    def reserved(self) -> Iterator[LanguageModel]:
        """The model, which nobody else calls within this context, so that hooks see one text."""
        with self._lock:
            yield self.model

    def twin(self) -> LanguageModel:
        """The same model with modules of its own and shared parameters: hooks on it see no other call."""
        with self.reserved() as model:  # whose hooks of the moment would be copied
            shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
            return copy.deepcopy(model, shared)

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text.

        Raises:
            ValueError: if it has none, or more than the model reads at a time, or is not Unicode.
        """
        if not text:
            raise ValueError("text: expected at least one character, got an empty text")
        tokens = self.tokenizer.encode(text)
        if len(tokens) > self.context:
            raise ValueError(
                f"text: {len(tokens):,} tokens, but the model reads at most {self.context:,} at a time; shorten it"
            )
        return tokens

    def record(self, text: str) -> Recording:
        """Record the model on a text; errors as :meth:`tokens`."""
        tokens = self.tokens(text)
        x, labels = self.tensor(tokens), token_labels(self.tokenizer, tokens)
        with self.reserved() as model:
            about = {"title": self.title, "facts": self.facts, "reads": "text"}
            return record(model, lambda: model(x), {"tokens": labels}, **about)

    def packed(self, text: str) -> dict[str, Any]:
        """The recording of a text as JSON; errors as :meth:`tokens`."""
        return pack(self.record(text), self.bits).json


def facts_of(checkpoint: Checkpoint) -> dict[str, str]:
    """Facts of a model for the head of its pages."""
    model, config = checkpoint.model, checkpoint.config
    heads = {"sensory": getattr(config, "n_heads_sa", 0) or 0, "relational": getattr(config, "n_heads_ra", 0) or 0}
    if not any(heads.values()):
        heads = {"": getattr(config, "n_heads", 0) or 0}
    facts = {
        "": type(model).__name__,
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "layers": f"{config.n_layers}",
        "heads": " + ".join(f"{number} {kind}".strip() for kind, number in heads.items() if number),
    }
    return {**facts, "state": checkpoint.state} if checkpoint.state.startswith("unfinished") else facts


def _name(checkpoint: Checkpoint) -> str:
    return checkpoint.source.rstrip("/\\").rsplit("/", 1)[-1] or checkpoint.source
