"""One token after a context: caches of the two kinds under one interface, and the fewest bytes that the token needs.

Shapes: B batch, N new tokens, t earlier tokens, V size of the vocabulary.
"""

import contextlib
import importlib
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from benchmarks.subjects import library
from benchmarks.work import Decoding

CHUNK = 512
"""Tokens of the context that are read at once."""


class Held(Protocol):
    """What a model keeps of the tokens it has read."""

    def read(self, tokens: Tensor) -> Tensor:
        """Scores ``(B, 1, V)`` after more tokens ``(B, N)``, which are kept."""
        ...

    def try_one(self, token: Tensor) -> Tensor:
        """Scores ``(B, 1, V)`` after one more token ``(B, 1)``, which is forgotten."""
        ...

    def repeat(self, batch: int) -> None:
        """Let the one example stand for ``batch``."""
        ...

    def nbytes(self) -> int:
        """Bytes of the tokens held, without what is reserved for more."""
        ...


class Undo(Exception):
    """Leaves a transaction of a cache."""


class OwnCache:
    """Of a language model of this library, with memory for ``length`` tokens."""

    def __init__(self, model: Any, length: int) -> None:
        self.model, self.cache = model, model.new_cache(length)

    def read(self, tokens: Tensor) -> Tensor:
        return self.model(tokens, cache=self.cache, all_logits=False).logits

    def try_one(self, token: Tensor) -> Tensor:
        scores = None
        with contextlib.suppress(Undo), self.cache.transaction():  # a crop could not bring back what a window dropped
            scores = self.read(token)
            raise Undo
        assert scores is not None
        return scores

    def repeat(self, batch: int) -> None:
        self.cache.reorder(torch.zeros(batch, dtype=torch.int64))

    def nbytes(self) -> int:
        return self.cache.numel() * next(self.model.parameters()).element_size()


class TransformersCache:
    """Of a language model of transformers, its usual one: it grows by a copy with each token."""

    def __init__(self, model: Any, length: int) -> None:
        self.model, self.cache = model, importlib.import_module("transformers").DynamicCache()

    def read(self, tokens: Tensor) -> Tensor:
        return self.model(tokens, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits

    def try_one(self, token: Tensor) -> Tensor:
        scores = self.read(token)
        self.cache.crop(-1)
        return scores

    def repeat(self, batch: int) -> None:
        self.cache.batch_repeat_interleave(batch)

    def nbytes(self) -> int:
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.cache.layers)


CACHES: dict[str, type[OwnCache | TransformersCache]] = {"model": OwnCache, "llama_model": TransformersCache}
"""Kinds of caches by subject."""


@torch.no_grad()
def filled(subject: str, model: Any, tokens: Tensor, decoding: Decoding) -> Held:
    """A cache after the context, the first of ``tokens`` ``(1, t + 1)``."""
    held: Held = CACHES[subject](model, decoding.context + 1)
    for chunk in tokens[:, : decoding.context].split(CHUNK, dim=1):
        held.read(chunk)
    if decoding.batch > 1:
        held.repeat(decoding.batch)
    return held


def bytes_of_weights(model: nn.Module, context: int) -> int:
    """Weights that a token after ``context`` others needs, each once however many layers and names it has.

    A table that is looked up counts only if something else uses it, as an output layer does. Of symbols by offset there
    are those of earlier tokens, with the token itself.
    """
    used: dict[int, int] = {}
    for part in model.modules():
        for weight in part.parameters(recurse=False):
            if isinstance(part, library("positional_encoding").RelativePositionalEncoding):
                farthest: Any = part.max_rel_pos
                used[id(weight)] = weight[: min(context, farthest) + 1].nbytes
            elif not isinstance(part, nn.Embedding):
                used[id(weight)] = weight.nbytes
    return sum(used.values())
