"""The fused operation, registered with its gradient and its shapes, which torch.compile and torch.export rely on.

Shapes: B batch, H heads, G key/value heads (H = G * rep), N receivers, M senders, D width of an attention query or
key, d_h width of a head, R relations, p width of one relation's query or key, K rows of a library of offsets' symbols.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..masks import MaskPattern
from ..symbols import OffsetSymbols
from .launch import Call
from .tuning import Tuning


def fused_relational_attention(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | OffsetSymbols,
    *,
    scale: float,
    rel_scale: float,
    pattern: MaskPattern,
    sizes: Tuning | None = None,
) -> tuple[Tensor, Tensor]:
    """Attended symbols and attended relations; :func:`.support.obstacle` says which arguments are possible.

    Args:
        q: ``(B, H, N, D)``; k: ``(B, G, M, D)``; u: ``(B, N, R, p)``; w: ``(B, M, R, p)``.
        symbols: projected, ``(B or 1, G, M, d_h)``; or of offsets, with a library ``(K, G, d_h)``.
        pattern: which pairs may be attended, without a mask of pairs.
        sizes: of the kernels' tiles; by default those of :func:`.tuning.tuning` for the device.

    Returns:
        ``(B, H, N, d_h)`` and ``(B, H, N, R)``; rows with nothing to attend are zero, and so are their gradients.
        Asking for a second derivative raises ``RuntimeError``.
    """
    relative = isinstance(symbols, OffsetSymbols)
    table = symbols.library if relative else symbols
    out_symbols, out_relations, _ = _forward_op(
        q,
        k,
        u,
        w,
        table,
        pattern.padding,
        pattern.receiver_segments,
        pattern.sender_segments,
        symbols.max_offset if relative else None,
        symbols.offset if relative else 0,
        pattern.causal,
        pattern.window,
        pattern.offset,
        scale,
        rel_scale,
        None if sizes is None else sizes.numbers(),
    )
    return out_symbols, out_relations


@torch.library.custom_op("dual_attention::fused_relational_attention", mutates_args=())
def _forward_op(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    table: Tensor,
    padding: Tensor | None,
    receiver_segments: Tensor | None,
    sender_segments: Tensor | None,
    max_offset: int | None,
    symbol_offset: int,
    causal: bool,
    window: int | None,
    offset: int,
    scale: float,
    rel_scale: float,
    sizes: list[int] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    tensors = (q, k, u, w, table, padding, receiver_segments, sender_segments)
    return Call(*tensors, max_offset, symbol_offset, causal, window, offset, scale, rel_scale, sizes).forward()


@_forward_op.register_fake
def _(q: Tensor, k: Tensor, u: Tensor, w: Tensor, table: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    shape = q.shape[:3]
    symbols, relations = q.new_empty(*shape, table.shape[-1]), q.new_empty(*shape, u.shape[2])
    return symbols, relations, q.new_empty(shape, dtype=torch.float32)


@torch.library.custom_op("dual_attention::fused_relational_attention_backward", mutates_args=())
def _backward_op(
    grad_symbols: Tensor,
    grad_relations: Tensor,
    out_symbols: Tensor,
    out_relations: Tensor,
    log_sum: Tensor,
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    table: Tensor,
    padding: Tensor | None,
    receiver_segments: Tensor | None,
    sender_segments: Tensor | None,
    max_offset: int | None,
    symbol_offset: int,
    causal: bool,
    window: int | None,
    offset: int,
    scale: float,
    rel_scale: float,
    sizes: list[int] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    tensors = (q, k, u, w, table, padding, receiver_segments, sender_segments)
    call = Call(*tensors, max_offset, symbol_offset, causal, window, offset, scale, rel_scale, sizes)
    return call.backward(grad_symbols, grad_relations, out_symbols, out_relations, log_sum)


@_backward_op.register_fake
def _(*args: Any) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in args[5:10])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output, *inputs[:8])
    ctx.numbers = inputs[8:]


def _backward(ctx: Any, grad_symbols: Tensor, grad_relations: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    grads = _backward_op(grad_symbols, grad_relations, *ctx.saved_tensors, *ctx.numbers)
    return (*grads, *[None] * 11)


_forward_op.register_autograd(_backward, setup_context=_setup_context)
