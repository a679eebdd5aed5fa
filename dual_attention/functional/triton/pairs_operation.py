"""Relations attended by the kernels of :mod:`.pairs`, registered with gradient and shapes; symbols by the library.

Shapes: as in :mod:`..reference`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..attention import attend_to_values
from ..derivatives import gradients_with_graph
from ..op_schema import op_schema
from ..relational.inputs import RelationalAttentionOutput, RelationalInputs
from ..symbols import symbol_table
from .launch import Call, KernelArguments
from .operation import plain_sums, setup_context
from .pairs import pairs_kernel, receivers_kernel, senders_kernel
from .support import ceil_div, next_power_of_2
from .tuning import Tile, Tuning, pair_tuning


def relational_attention_by_pairs(x: RelationalInputs) -> RelationalAttentionOutput:
    """Relational attention for inputs in which :func:`.support.obstacle_to_pairs` sees none.

    A second derivative builds all weights, see :mod:`..derivatives`.
    """
    symbols = symbol_table(x.symbols)
    values = symbols.expand(*x.k.shape[:3], symbols.shape[-1])
    attended_symbols, _ = attend_to_values(x.q, x.k, values, scale=x.scale, mask=x.pattern)
    padding_and_segments, order = x.pattern.parts[1:4], x.pattern.parts[4:]
    arguments = (x.q, x.k, x.u, x.w, x.k, *padding_and_segments, None, 0, *order, x.scale, x.rel_scale, None, False)
    relations, _ = _forward_op(*arguments)
    return x.output(attended_symbols, relations)


class PairsCall(Call):
    """One call's tensors. It has no symbols: keys stand in their place, and nothing reads them."""

    def __init__(self, x: KernelArguments) -> None:
        super().__init__(x)
        heads = next_power_of_2(self.heads)
        self.form = self.form._replace(H_PAD=heads, P_PAD=self.padded(self.p))

    def default_sizes(self) -> Tuning:
        return pair_tuning(self.shared_memory())

    def relation_groups(self, tile: Tile) -> tuple[int, int]:
        """All relations, in one group."""
        return next_power_of_2(self.n_relations), 1

    def blocks(self, length: int, size: int) -> tuple[int, int, int]:
        return ceil_div(length, size), self.batch, 1

    def forward_pairs(self) -> tuple[Tensor, Tensor]:
        shape = (self.batch, self.heads, self.n)
        out = self.like.new_empty(*shape, self.n_relations)
        log_sum = self.like.new_empty(shape, dtype=torch.float32)
        self.operands = self.operands._replace(out_relations=out, log_sum=log_sum)
        tile = self.sizes.forward
        self.launch(pairs_kernel, self.blocks(self.n, tile.receivers), tile)
        return out, log_sum

    def backward_pairs(self, grad: Tensor, out: Tensor, log_sum: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        delta = torch.empty_like(log_sum)
        given = {"grad_relations": grad.contiguous(), "out_relations": out, "log_sum": log_sum, "delta": delta}
        self.operands = self.operands._replace(**given)
        width, relations = self.like.shape[-1], (self.n_relations, self.p)
        new = self.like.new_empty
        dq, du = new(self.batch, self.heads, self.n, width), new(self.batch, self.n, *relations)
        dk, dw = new(self.batch, self.heads, self.m, width), new(self.batch, self.m, *relations)
        tile = self.sizes.queries
        self.launch(receivers_kernel, self.blocks(self.n, tile.receivers), tile, dq=dq, du=du)
        tile = self.sizes.keys
        self.launch(senders_kernel, self.blocks(self.m, tile.senders), tile, owns_senders=True, dk=dk, dw=dw)
        return dq, dk.unflatten(1, (self.groups, -1)).sum(2), du, dw


@torch.library.custom_op("dual_attention::attended_relations", mutates_args=(), schema=op_schema(KernelArguments, 2))
def _forward_op(*arguments: Any) -> tuple[Tensor, Tensor]:
    return PairsCall(KernelArguments(*arguments)).forward_pairs()


@_forward_op.register_fake
def _empty_of_forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    x = KernelArguments(*arguments)
    shape = x.q.shape[:3]
    return x.q.new_empty(*shape, x.u.shape[2]), x.q.new_empty(shape, dtype=torch.float32)


SAVED = ("grad", "out", "log_sum")
"""Tensors that the backward pass takes before the arguments."""


@torch.library.custom_op(
    "dual_attention::attended_relations_backward", mutates_args=(), schema=op_schema(KernelArguments, 4, *SAVED)
)
def _backward_op(*tensors_and_arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    saved, arguments = tensors_and_arguments[: len(SAVED)], tensors_and_arguments[len(SAVED) :]
    return PairsCall(KernelArguments(*arguments)).backward_pairs(*saved)


@_backward_op.register_fake
def _empty_of_backward(*tensors_and_arguments: Any) -> tuple[Tensor, ...]:
    x = KernelArguments(*tensors_and_arguments[len(SAVED) :])
    return tuple(like.new_empty(like.shape) for like in (x.q, x.k, x.u, x.w))


def _backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    out, log_sum, *tensors = ctx.saved_tensors
    x = KernelArguments(*tensors, *ctx.numbers)
    grads: Any = (None,) * 4
    if grad is not None and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        grads = gradients_with_graph(partial(plain_sums, x), (x.q, x.k, x.u, x.w, x.table), (None, grad))[:4]
    elif grad is not None:
        grads = _backward_op(grad, out, log_sum, *x)
    return (*grads, *[None] * (len(KernelArguments._fields) - 4))


_forward_op.register_autograd(_backward, setup_context=setup_context)
