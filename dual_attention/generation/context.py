"""The window of a text longer than a language model's context.

Of L tokens the model sees all while ``L <= C``, the length of its context. Beyond that the earliest are dropped,
``stride`` at a time, and the rest are read again, the first of them at position 0:

Math: dropped = stride ceil((L - C) / stride) for L > C, so that between C - stride + 1 and C tokens are left

With ``stride=1`` these are always the last C tokens, as in the published package, and each token past the context costs
a pass over all of them: positions, learned or rotary, are those of the window, and what a layer kept of a token was
computed with the tokens before it, which are now gone. With a larger stride, ``stride - 1`` of ``stride`` tokens cost
one step with the cache each. The window depends only on L, neither on where the prompt ended nor on the cache; with
left padding, only on the real tokens of each row.

Shapes: B batch, L tokens so far, C context, V vocabulary.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Protocol

import torch
from torch import Tensor

from .._layers.cache import Cache
from .._layers.inputs import check_boolean
from ._checks import check_integer


class CausalLM(Protocol):
    """A language model as generation needs it; with ``use_cache``, also ``new_cache(max_length) -> Cache``.

    ``model(x)`` takes integers ``(B, N)`` and returns a pair whose first item is logits ``(B, N or 1, V)``, of which
    the last are those of the next token. Where needed it is given keyword arguments:

    * ``padding_mask``, boolean ``(B, N)``, False at left padding, for batches that have it.
    * ``cache``; x then holds only new tokens, and the padding mask covers the tokens in the cache and the new ones.
    * ``all_logits=False``, if its ``forward`` has an argument of that name: only the last position's logits are needed.

    Attributes:
        block_size: C, most tokens that it can read.
        vocab_size: V.

    >>> lm: CausalLM = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> generate(lm, torch.tensor([[1, 2, 3]]), 4).shape
    torch.Size([1, 7])
    """

    block_size: int
    vocab_size: int

    def __call__(self, x: Tensor, /, *args: Any, **kwargs: Any) -> Any: ...


def dropped_tokens(lengths: Tensor, block_size: int, stride: int = 1) -> Tensor:
    """Number of earliest tokens that fall out of the context; integers of the shape of ``lengths``.

    >>> dropped_tokens(torch.tensor([10, 18]), block_size=16, stride=4)
    tensor([0, 4])
    """
    beyond = (lengths - block_size).clamp_min(0)
    return -(-beyond // stride) * stride


class LanguageModelDecoder:
    """A language model in the middle of generating, a :class:`~dual_attention.generation.decoding.Decoder`.

    Args:
        padding_mask: boolean ``(B, L)``, left padding of the prompt, which is the first call of :meth:`step`.
        use_cache: keep what the layers computed of earlier tokens.
        stride: tokens dropped at a time, past the context; 1 to ``model.block_size``.
        max_length: most tokens to come, including the prompt; the cache reserves memory for them.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> with evaluating(lm):
    ...     tokens = [*decode(LanguageModelDecoder(lm), torch.tensor([[1, 2, 3]]), 4, Sampling())]
    >>> len(tokens), tokens[0].shape
    (4, torch.Size([1]))
    """

    def __init__(
        self,
        model: CausalLM,
        *,
        padding_mask: Tensor | None = None,
        use_cache: bool = True,
        stride: int = 1,
        max_length: int | None = None,
    ) -> None:
        check_boolean(use_cache=use_cache)
        if use_cache and not callable(getattr(model, "new_cache", None)):
            raise TypeError(f"model: {type(model).__name__} has no new_cache(); generate with use_cache=False")
        self.model = model
        self.block_size = model.block_size
        self.stride = check_integer("window_stride", stride, low=1)
        if stride > self.block_size:
            raise ValueError(f"window_stride: expected at most block_size={self.block_size}, got {stride}")
        self.cache: Cache | None = None
        if use_cache:
            longest = self.block_size if max_length is None else min(self.block_size, max_length)
            self.cache = model.new_cache(max_length=longest)  # pyright: ignore[reportAttributeAccessIssue]
        # Of a long prompt the logits of all positions can take more memory than all else.
        forward = getattr(model, "forward", model)
        self._arguments = {"all_logits": False} if "all_logits" in signature(forward).parameters else {}
        self._padding_mask = padding_mask
        self._tokens: Tensor | None = None  # all tokens of each row, (B, L), left padding included
        self._lengths = self._dropped = torch.empty(0)  # of the real tokens of each row, (B,), on the CPU
        self._continues = False  # whether the cache holds what is seen, except for the newest tokens

    def step(self, tokens: Tensor) -> Tensor:
        """Append tokens, integers ``(B, n)``; returns the logits of the next token, ``(B, V)``."""
        if self._tokens is None:
            real = tokens.new_ones(tokens.shape) if self._padding_mask is None else self._padding_mask
            self._tokens, self._lengths = tokens, real.sum(dim=1).cpu()
        else:
            self._tokens, self._lengths = torch.cat([self._tokens, tokens], dim=1), self._lengths + tokens.shape[1]
        dropped = dropped_tokens(self._lengths, self.block_size, self.stride)
        if self._continues and torch.equal(dropped, self._dropped):
            return self._call(tokens, self.cache)
        self._dropped = dropped
        # The next token would be read together with all others again: nothing of these is worth keeping.
        full = self._seen == self.block_size
        self._continues = self.cache is not None and not full
        if self.cache is not None:
            self.cache.crop(0)
        return self._call(self._tokens[:, -self._seen :], None if full else self.cache)

    def reorder(self, indices: Tensor) -> None:
        """Let row ``b`` continue what row ``indices[b]`` was."""
        if self._tokens is not None:
            self._tokens = self._tokens[indices]
            self._lengths, self._dropped = self._lengths[indices.cpu()], self._dropped[indices.cpu()]
        if self.cache is not None and self._continues:
            self.cache.reorder(indices)

    @property
    def _seen(self) -> int:
        """Tokens in the longest row's window, to which others are padded."""
        return int((self._lengths - self._dropped).max())

    def _call(self, x: Tensor, cache: Cache | None) -> Tensor:
        arguments: dict[str, Any] = dict(self._arguments)
        if cache is not None:
            arguments["cache"] = cache
        seen = self._lengths - self._dropped
        padding = int(seen.max()) - seen
        if padding.any():
            places = torch.arange(int(seen.max()), device=x.device)
            arguments["padding_mask"] = places >= padding.to(x.device)[:, None]
        logits, *_ = self.model(x, **arguments)
        return logits[:, -1]
