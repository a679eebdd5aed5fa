"""The loop over tokens that all models share, and the protocol that it needs.

Shapes: B batch, L tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from .sampling import Sampling


class Decoder(Protocol):
    """A model in the middle of generating: it knows the tokens so far, and scores the next one.

    >>> class Counts:
    ...     def step(self, tokens):
    ...         return torch.eye(10)[tokens[:, -1] + 1]
    ...     def reorder(self, indices):
    ...         pass
    >>> [*decode(Counts(), torch.tensor([[3]]), 3, Sampling(temperature=0))]
    [tensor([4]), tensor([5]), tensor([6])]
    """

    def step(self, tokens: Tensor) -> Tensor:
        """Append tokens, integers ``(B, n)``, to each row; returns the logits of the token after them, ``(B, V)``.

        The first call gives the prompt, each later one a single token.
        """
        ...

    def reorder(self, indices: Tensor) -> None:
        """Let row ``b`` continue what row ``indices[b]`` was; integers ``(B',)``, with B' smaller or larger than B."""
        ...


def decode(
    decoder: Decoder,
    prompt: Tensor,
    max_new_tokens: int,
    sampling: Sampling,
    *,
    padding_mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    stop_tokens: tuple[int, ...] = (),
    pad_token: int = 0,
) -> Iterator[Tensor]:
    """Yield the new tokens of all rows, integers ``(B,)``, until each row has ended or ``max_new_tokens`` have come.

    A row ends with one of the stop tokens, which it emits; after it, it emits ``pad_token``. Arguments are not
    checked here.

    Args:
        prompt: integers ``(B, L)``, L >= 1.
        padding_mask: boolean ``(B, L)``; True = a real token of the prompt, for the repetition penalty. The decoder
            has its own account of padding.
        generator: source of the random numbers, see :meth:`Sampling.choose`.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> with evaluating(lm):
    ...     tokens = [*decode(LanguageModelDecoder(lm), torch.tensor([[1, 2, 3]]), 4, Sampling(temperature=0))]
    >>> torch.stack(tokens, dim=1).shape
    torch.Size([1, 4])
    """
    stops = torch.tensor(stop_tokens, dtype=torch.long, device=prompt.device)
    ended = torch.zeros(len(prompt), dtype=torch.bool, device=prompt.device)
    tokens = new = prompt
    for _ in range(max_new_tokens if len(prompt) else 0):
        chosen = sampling.choose(decoder.step(new), tokens, padding_mask, generator)
        if stop_tokens:
            chosen = chosen.where(~ended, pad_token)
            ended = ended | torch.isin(chosen, stops)
        yield chosen
        if stop_tokens and ended.all():
            return
        new = chosen[:, None]
        tokens = torch.cat([tokens, new], dim=1)
        if padding_mask is not None:
            padding_mask = torch.cat([padding_mask, torch.ones_like(new, dtype=torch.bool)], dim=1)


@contextmanager
def evaluating(model: Callable[..., object]) -> Iterator[None]:
    """Put the model in evaluation mode, without gradients; afterwards each module has its former mode.

    >>> layer = torch.nn.Linear(2, 2)
    >>> with evaluating(layer):
    ...     layer.training, layer(torch.ones(1, 2)).requires_grad
    (False, False)
    >>> layer.training
    True
    """
    modules = model.modules() if isinstance(model, nn.Module) else ()
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        # Not inference mode: its tensors could not be used in training later, such as tokens that earn a reward.
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def undisturbed(model: Callable[..., object], tokens: Iterator[Tensor]) -> Iterator[Tensor]:
    """The same items, each computed within :func:`evaluating`, so that a reader finds the model in its own mode.

    A reader that stops midway leaves nothing changed either.

    >>> layer = torch.nn.Linear(2, 2)
    >>> outputs = undisturbed(layer, (layer(torch.ones(1, 2)) for _ in range(2)))
    >>> next(outputs).requires_grad, layer.training
    (False, True)
    """
    while True:
        with evaluating(model):
            token = next(tokens, None)
        if token is None:
            return
        yield token
