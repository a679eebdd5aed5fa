"""Context parallelism: each rank holds a slice of the sequence and all-gathers the keys and values of earlier ones.

To a layer the tokens of the other processes are like earlier ones in a cache, but they are gathered instead of
remembered, keys, relation keys, values and symbols alike, and gradients go back to where they came from. All processes
call the layer at the same time, with equally many tokens each.

Shapes: B batch, n tokens of a process.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from .cache import Cache, CacheGroup, Shapes, TokenCache


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

    def __init__(self, shapes: Shapes, group: Any, n: int, *, window: int | None = None) -> None:
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


def gathers(cache: Cache | None) -> bool:
    """Whether a cache gathers the tokens of other processes."""
    if isinstance(cache, CacheGroup):
        return all(gathers(part) for part in cache.caches.values())
    return isinstance(cache, GatheredTokens)


def gathered(cache: Cache, group: Any, n: int) -> Cache:
    """A cache like an empty one of a layer or a model, for n tokens of each process of a group."""
    if isinstance(cache, CacheGroup):
        return CacheGroup({name: gathered(part, group, n) for name, part in cache.caches.items()})
    if not isinstance(cache, TokenCache):
        raise TypeError(f"cache: expected one of tokens, got a {type(cache).__name__}")
    return GatheredTokens(cache.shapes, group, n, window=cache.window)
