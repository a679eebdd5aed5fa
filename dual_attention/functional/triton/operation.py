"""The fused operation, registered with its gradient and its shapes, which torch.compile and torch.export rely on.

Shapes: as in :mod:`..reference`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..checks import is_certain
from ..derivatives import gradients_with_graph
from ..masks import MaskPattern
from ..op_schema import op_schema
from ..relational.inputs import RelationalAttentionOutput, RelationalInputs
from ..relational.whole import whole_sums
from ..symbols import OffsetSymbols, symbol_table
from .launch import Call, KernelArguments

LONGEST_KEPT = 32_768
"""Receivers up to which relation keys under the weights are kept for the backward pass; lower it to save memory."""


def fused_relational_attention(x: RelationalInputs) -> RelationalAttentionOutput:
    """Relational attention for inputs in which :func:`.support.obstacle` sees none.

    Rows with nothing to attend are zero, and so are their gradients. A second derivative builds all weights, see
    :mod:`..derivatives`.

    The relation keys under the weights of each head, ``(B, H, N, R, p)``, are kept for the backward pass if gradients
    are wanted: 8 KB a token with 8 heads and R p = 512 in half precision. For more than :data:`LONGEST_KEPT`
    receivers they are not, and the backward pass runs the forward kernel again.
    """
    symbols = x.symbols
    of_offsets = isinstance(symbols, OffsetSymbols)
    offset = symbols.offset if of_offsets else 0
    wanted = torch.is_grad_enabled() and any(t.requires_grad for t in (x.q, x.k, x.u, x.w, symbol_table(symbols)))
    keep = is_certain(x.n() <= LONGEST_KEPT)
    reach = symbols.max_offset if of_offsets else None, int(offset) if isinstance(offset, Tensor) else offset
    tensors = (x.q, x.k, x.u, x.w, symbol_table(symbols), *x.pattern.parts[1:4])
    numbers = (*reach, *x.pattern.parts[4:], x.scale, x.rel_scale, None, keep and wanted)
    out_symbols, out_relations, *_ = _forward_op(*tensors, *numbers)
    return x.output(out_symbols, out_relations)


@torch.library.custom_op(
    "dual_attention::fused_relational_attention", mutates_args=(), schema=op_schema(KernelArguments, 4)
)
def _forward_op(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return Call(KernelArguments(*arguments)).forward()


@_forward_op.register_fake
def _empty_of_forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = KernelArguments(*arguments)
    shape, new = x.q.shape[:3], x.q.new_empty
    attended = new((*shape, *x.u.shape[2:]) if x.keep else (0,))
    return new(*shape, x.table.shape[-1]), new(*shape, x.u.shape[2]), new(shape, dtype=torch.float32), attended


SAVED = ("grad_symbols", "grad_relations", "out_symbols", "log_sum", "attended")
"""Tensors that the backward pass takes before the arguments."""


@torch.library.custom_op(
    "dual_attention::fused_relational_attention_backward", mutates_args=(), schema=op_schema(KernelArguments, 5, *SAVED)
)
def _backward_op(*tensors_and_arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    saved, arguments = tensors_and_arguments[: len(SAVED)], tensors_and_arguments[len(SAVED) :]
    return Call(KernelArguments(*arguments)).backward(*saved)


@_backward_op.register_fake
def _empty_of_backward(*tensors_and_arguments: Any) -> tuple[Tensor, ...]:
    x = KernelArguments(*tensors_and_arguments[len(SAVED) :])
    *grads, of_symbols = (like.new_empty(like.shape) for like in (x.q, x.k, x.u, x.w, x.table))
    if x.max_offset is None:  # heads side by side, as layers hold them
        of_symbols = of_symbols.new_empty(x.table.transpose(1, 2).shape).transpose(1, 2)
    return (*grads, of_symbols)


TENSORS = KernelArguments._fields.index("max_offset")
"""Arguments of the registered operation that are tensors or None; they come first."""


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Keep for the backward pass what came out, and what went in."""
    ctx.set_materialize_grads(False)  # zeros would be made for what was kept
    ctx.save_for_backward(*output, *inputs[:TENSORS])
    ctx.numbers = inputs[TENSORS:]


def plain_sums(x: KernelArguments, q: Tensor, k: Tensor, u: Tensor, w: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """The operation for other tensors, by plain operations."""
    n, m = q.shape[2], k.shape[2]
    symbols = table if x.max_offset is None else OffsetSymbols(table, n, m, x.symbol_offset)
    masks = (None, x.padding, x.receiver_segments, x.sender_segments)
    pattern = MaskPattern(n, m, *masks, x.causal, x.window, x.offset)
    return whole_sums(q, k, u, w, symbols, pattern=pattern, scale=x.scale, rel_scale=x.rel_scale)


def _backward(
    ctx: Any, grad_symbols: Tensor | None, grad_relations: Tensor | None, *_: None
) -> tuple[Tensor | None, ...]:
    out_symbols, out_relations, log_sum, attended, *tensors = ctx.saved_tensors
    x = KernelArguments(*tensors, *ctx.numbers)
    grad_symbols = torch.zeros_like(out_symbols) if grad_symbols is None else grad_symbols
    grad_relations = torch.zeros_like(out_relations) if grad_relations is None else grad_relations
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        tensors = (x.q, x.k, x.u, x.w, x.table)
        grads = gradients_with_graph(partial(plain_sums, x), tensors, (grad_symbols, grad_relations))
    else:
        if not x.keep:
            attended = _forward_op(*x._replace(keep=True))[-1]
        grads = _backward_op(grad_symbols, grad_relations, out_symbols, log_sum, attended, *x)
    return (*grads, *[None] * (len(KernelArguments._fields) - len(grads)))


_forward_op.register_autograd(_backward, setup_context=setup_context)
