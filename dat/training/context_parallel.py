"""Context parallel training: processes share each sequence, so that its length is bounded by the memory of all of them.

Everything that concerns single tokens, embeddings, projections, feed-forward blocks, norms and the loss, each process
computes for its part of the sequence. Attention needs senders of earlier parts: keys and values of sensory heads, and
keys, relation keys and symbols of relational heads, are gathered along the sequence, and their gradients go back.
To a layer they are like earlier tokens in a cache, gathered instead of remembered. Queries, weights and relations are
those of a process's own receivers. The last process sees all senders and the first only its own, so the work of causal
attention is uneven.

Shapes: B batch, n tokens of a process.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from dual_attention import CacheGroup, TokenCache
from dual_attention.language_models import LanguageModel


class _Gather(torch.autograd.Function):
    """The tensors of all processes behind each other along the last axis but one; gradients are added up."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, group: Any) -> Tensor:
        ctx.group, ctx.size = group, dist.get_world_size(group)
        own = own.contiguous()
        everything = own.new_empty((ctx.size * own.shape[0], *own.shape[1:]))
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # renamed in torch 2.13
        gather(everything, own, group=group)
        return torch.cat(everything.chunk(ctx.size), dim=-2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        parts = grad.chunk(ctx.size, dim=-2)
        own = torch.empty_like(parts[0], memory_format=torch.contiguous_format)
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        scatter(own, torch.cat(parts), group=ctx.group)
        return own, None


class GatheredTokens(TokenCache):
    """Stands for the tokens before those of this process; holds nothing, so a layer may be computed again.

    Args:
        shapes: what a layer gathers of each token.
        group: the process group, whose ranks have the parts of the sequence in their order.
        n: tokens of each process.
        window: tokens a receiver sees, itself included.
    """

    gathers = True

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], group: Any, n: int, *, window: int | None = None) -> None:
        self.group, self.n = group, n
        self._rank = dist.get_rank(group)
        super().__init__(shapes, window=window)

    def reset(self) -> None:
        super().reset()
        self._length = self._rank * self.n

    def once(self, key: Tensor | int, make: Any) -> Tensor:
        return make()

    def append(self, batch: int, n: int, **new: Tensor) -> tuple[Tensor, ...]:
        """Tokens of all processes that those of this one see, ``(B or 1, heads, held + n, width)`` for each name."""
        if new.keys() != self.shapes.keys() or n != self.n:
            expected = f"the tensors {sorted(self.shapes)} of {self.n} tokens"
            raise ValueError(f"cache: expected {expected}, got {sorted(new)} of {n}")
        first, last = self.length - self.held, self.length + n
        return tuple(_Gather.apply(new[name], self.group)[..., first:last, :] for name in self.shapes)


def gathered(cache: Any, group: Any, n: int) -> CacheGroup | GatheredTokens:
    """A cache like an empty one of a layer or a model, for n tokens of each process of a group."""
    if isinstance(cache, CacheGroup):
        return CacheGroup({name: gathered(part, group, n) for name, part in cache.caches.items()})
    if not isinstance(cache, TokenCache):
        raise TypeError(f"cache: expected one of tokens, got a {type(cache).__name__}")
    return GatheredTokens(cache.shapes, group, n, window=cache.window)


class ContextParallel:
    """A causal language model of which each process of a group computes a part of every sequence.

    Args:
        model: on which ``new_cache`` is called.
        called: the module that is called, the model or what wraps it; by default ``model``.
        group: the process group; None: all processes.
    """

    def __init__(self, model: LanguageModel, called: Any = None, *, group: Any = None) -> None:
        self.model, self.called, self.group = model, called or model, group
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def __call__(
        self,
        tokens: Tensor,
        *others: Tensor,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """Output of the model for the part of this process, of whole sequences that all processes give alike.

        Args:
            tokens: integers ``(B, N)``; processes take N / size of them each, in their order.
            others: further tensors ``(B, N)`` by position, the targets, of which it takes the same part.
            segments: integers ``(B or 1, N)`` of sequences packed into one.
            positions: integers ``(B or 1, N)``, if they do not begin again with each of these sequences.
            options: further arguments of the call, as they are.

        Returns:
            The output of the model; a loss is the mean over this part.

        Raises:
            ValueError: if the processes do not divide N.
        """
        length = tokens.shape[1]
        if length % self.size:
            raise ValueError(f"tokens: expected a multiple of the {self.size} processes, got a length of {length}")
        n = length // self.size
        part = slice(self.rank * n, (self.rank + 1) * n)
        if segments is not None:
            options["segments"] = segments[:, : part.stop]
        if positions is not None:
            options["positions"] = positions[:, part]
        cache = gathered(self.model.new_cache(), self.group, n)
        return self.called(tokens[:, part], *(other[:, part] for other in others), cache=cache, **options)
