"""Sensory attention by the library in C, on a CPU, where a compiler is found.

It is the library of relational attention (:mod:`.relational.compiled`), asked for no relations: a block of receivers,
in the lanes of vectors, weighs all senders of a few heads at a time, so that weights are read again from a near cache.

Shapes: as in :mod:`.attention`; G key/value heads, each of H / G query heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from . import reference
from .checks import dispatches, has_numbers, is_autocast, is_exporting, leaves_pytorch
from .derivatives import gradients_with_graph
from .mask_patterns import MaskPattern
from .relational import compiled
from .relational.blocks import LinearArguments
from .relational.linear import TENSORS, side_by_side

Part = Callable[[Tensor], Tensor]

FEWEST_PAIRS = 2**13
"""Receivers times senders, below which PyTorch's kernels are about as fast."""

FEWEST_RECEIVERS = 16
"""As many as the widest vector has lanes."""

LARGEST_TOGETHER = 2**12
"""Heads times senders, up to which a block weighs all heads at once: with 32 receivers, 512 kB of weights. Beyond,
key/value heads are calls' examples of their own."""


def as_autocast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The tensors as autocast casts those of PyTorch's attention; themselves without it, and in float64."""
    if not is_autocast(q) or torch.float64 in (q.dtype, k.dtype, v.dtype):
        return q, k, v
    dtype = torch.get_autocast_dtype(q.device.type)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def can_attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> bool:
    """Whether the library is to compute a call of :func:`.attention` that wants no weights.

    Args:
        q, k, v: as :func:`as_autocast` leaves them.
    """
    if torch.compiler.is_compiling() or leaves_pytorch() or is_exporting():
        return False
    (batch, heads, n, _), (groups, m) = q.shape, k.shape[1:3]
    if not batch or n < FEWEST_RECEIVERS or n * m < FEWEST_PAIRS:
        return False
    if dispatches() or not all(has_numbers(x) for x in (q, k, v)):
        return False
    if heads * m > LARGEST_TOGETHER:
        q, k, v = (_by_group(groups, 0, x) for x in (q, k, v))
    return compiled.obstacle(q, k, q.new_empty(1, n, 0, 1), q, v, bias, relative=False) is None


def compiled_attention(q: Tensor, k: Tensor, v: Tensor, mask: MaskPattern, *, scale: float, dropout: float) -> Tensor:
    """Attended values ``(B, H, N, d_h)``. A second derivative builds all weights, see :mod:`.derivatives`."""
    (batch, _, n, _), m = q.shape, k.shape[2]
    seed = torch.randint(2**62, (1,), device="cpu") if dropout else None
    u, w = q.new_empty(batch, n, 0, 1), q.new_empty(batch, m, 0, 1)
    parts = mask.savable_parts
    x = LinearArguments(q, k, u, w, v, None, None, seed, *parts, scale, 1.0, dropout, n)
    return _Attention.apply(*x)


class _Attention(torch.autograd.Function):
    """The heads of a token lie side by side in memory, of results as of projections."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        x = LinearArguments(*arguments)
        ctx.save_for_backward(*x[:TENSORS])
        ctx.numbers = x[TENSORS:]
        attended = side_by_side(x.q, x.table.shape[-1])
        for call, part in _calls(x):
            compiled.forward(call, part(attended), torch.empty_like(call.u))
        return attended

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x = LinearArguments(*ctx.saved_tensors, *ctx.numbers)
        if torch.is_grad_enabled() or not has_numbers(grads[0].resolve_neg()):
            dq, dk, dv = gradients_with_graph(partial(_plain, x, _all_kept(x)), (x.q, x.k, x.table), grads)
        else:
            needed = dict(zip(LinearArguments._fields, ctx.needs_input_grad, strict=True))
            dq = side_by_side(x.q, x.q.shape[-1])
            dk = side_by_side(x.k, x.k.shape[-1]) if needed["k"] else None
            dv = side_by_side(x.table, x.table.shape[-1]) if needed["table"] else None
            for call, part in _calls(x):
                into = {name: None if grad is None else part(grad) for name, grad in {"dk": dk, "dtable": dv}.items()}
                du, dw = torch.empty_like(call.u), torch.empty_like(call.w)  # of no relations
                compiled.backward(call, part(grads[0]), call.u, dq=part(dq), du=du, dw=dw, **into)
        found = {"q": dq, "k": dk, "table": dv}
        return tuple(found.get(name) for name in LinearArguments._fields)


def _plain(x: LinearArguments, kept: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor]:
    """The same for other tensors, by plain operations."""
    alpha = reference.attention_weights(q, k, scale=x.scale, mask=x.pattern.dense(q.device))
    return (reference.attend_to_symbols(alpha if kept is None else (alpha * kept).to(alpha.dtype), v),)


@torch.no_grad()
def _all_kept(x: LinearArguments) -> Tensor | None:
    """Factors of dropout of all weights, ``(B, H, N, M)`` in float32, as they were drawn."""
    if not x.dropout:
        return None
    factors = [compiled.dropout_factors(call) for call, _ in _calls(x)]
    return torch.cat(factors).view(*x.q.shape[:3], x.k.shape[2])


def _calls(x: LinearArguments) -> Iterator[tuple[LinearArguments, Part]]:
    """Calls of the library that make up the whole, and how to take the part that each has of a tensor with heads."""
    batch, heads, n, _ = x.q.shape
    groups, m = x.k.shape[1:3]
    if heads * m <= LARGEST_TOGETHER:
        yield x, lambda of_heads: of_heads
        return
    u, w = x.q.new_empty(groups, n, 0, 1), x.q.new_empty(groups, m, 0, 1)
    for b in range(batch):
        one, part = x.of_examples(slice(b, b + 1)), partial(_by_group, groups, b)
        mask = None if x.attn_mask is None else part(x.attn_mask.expand(batch, heads, n, m))
        seed = None if x.seed is None else x.seed + b
        yield one._replace(q=part(x.q), k=part(x.k), u=u, w=w, table=part(x.table), attn_mask=mask, seed=seed), part


def _by_group(groups: int, b: int, of_heads: Tensor) -> Tensor:
    """Heads of an example, ``(B, H or G, ...)``, with those of each key/value head as an example ``(G, ..., ...)``."""
    return of_heads[b].unflatten(0, (groups, -1))
