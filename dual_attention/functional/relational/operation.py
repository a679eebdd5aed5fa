"""Operations of PyTorch that build no weights whole, registered with their gradients and their shapes.

An implementation of relational attention for the identity activation gives three functions, and has an operation that
``torch.compile`` calls as one, with a backward pass that builds everything again, and second derivatives through
:mod:`..derivatives`.

Shapes: as in :mod:`..reference`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..derivatives import gradients_with_graph
from ..op_schema import op_schema
from ..symbols import OffsetSymbols, RelativeSymbols, symbol_table
from .blocks import Gradients, LinearArguments
from .inputs import RelationalInputs
from .pair_symbols import pair_index
from .whole import whole_sums

TENSORS = LinearArguments._fields.index("causal")
"""Number of the operation's arguments that are tensors or None; they come first."""

Operation = Callable[..., tuple[Tensor, Tensor]]


def registered(
    name: str,
    *,
    forward: Callable[[LinearArguments, Tensor, Tensor], None],
    backward: Callable[[LinearArguments, Tensor, Tensor, Gradients], None],
    kept: Callable[[LinearArguments], Tensor],
) -> Operation:
    """Register an operation that takes :class:`.LinearArguments` and returns attended symbols and relations.

    Args:
        name: of the operation in the namespace ``dual_attention``.
        forward: writes attended symbols ``(B, H, N, d_h)`` and relations ``(B, H, N, R)``.
        backward: writes all gradients, from those of the two results.
        kept: factors of dropout of all weights, ``(B, H, N, M)``, as the other two draw them.
    """

    @torch.library.custom_op(f"dual_attention::{name}", mutates_args=(), schema=op_schema(LinearArguments, 2))
    def forward_op(*arguments: Any) -> tuple[Tensor, Tensor]:
        x = LinearArguments(*arguments)
        symbols, relations = _empty_results(x)
        forward(x, symbols, relations)
        return symbols, relations

    @forward_op.register_fake
    def _(*arguments: Any) -> tuple[Tensor, Tensor]:
        return _empty_results(LinearArguments(*arguments))

    schema = op_schema(LinearArguments, len(Gradients._fields), "grad_symbols", "grad_relations")

    @torch.library.custom_op(f"dual_attention::{name}_backward", mutates_args=(), schema=schema)
    def backward_op(grad_symbols: Tensor, grad_relations: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        x = LinearArguments(*arguments)
        into = _empty_gradients(x)
        backward(x, grad_symbols, grad_relations, into)
        return _tensors(into)

    @backward_op.register_fake
    def _(grad_symbols: Tensor, grad_relations: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        return _tensors(_empty_gradients(LinearArguments(*arguments)))

    def differentiate(ctx: Any, grad_symbols: Tensor, grad_relations: Tensor) -> tuple[Tensor | None, ...]:
        place = LinearArguments._fields.index("bias")  # behind the table comes an index, which has no gradient
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            x = LinearArguments(*ctx.saved_tensors, *ctx.numbers)
            with torch.no_grad():
                factors = kept(x) if x.dropout else None
            inputs, of_results = (x.q, x.k, x.u, x.w, x.table, x.bias), (grad_symbols, grad_relations)
            *grads, of_bias = gradients_with_graph(partial(_plain, x, factors), inputs, of_results)
        else:
            *grads, dbias = backward_op(grad_symbols, grad_relations, *ctx.saved_tensors, *ctx.numbers)
            of_bias = dbias if ctx.needs_input_grad[place] else None
        return (*grads, None, of_bias, *[None] * (len(LinearArguments._fields) - place - 1))

    forward_op.register_autograd(differentiate, setup_context=_setup_context)
    return forward_op


def linear_arguments(x: RelationalInputs, block: int) -> LinearArguments:
    """Arguments of an operation, with a seed for dropout; ``x`` has zeros for padded senders."""
    symbols, index = x.symbols, None
    if isinstance(symbols, RelativeSymbols):
        index = symbols.diagonals if isinstance(symbols, OffsetSymbols) else symbols.index
    seed = torch.randint(2**62, (1,), device="cpu") if x.dropout else None
    tensors = (x.q, x.k, x.u, x.w, symbol_table(symbols), index, x.bias, seed, *x.pattern.savable_parts)
    return LinearArguments(*tensors, x.scale, x.rel_scale, x.dropout, block)


def side_by_side(x: Tensor, width: int) -> Tensor:
    """Empty, ``(B, H, N, width)``, with the heads of a token side by side in memory as in projections."""
    batch, heads, n, _ = x.shape
    return x.new_empty_strided((batch, heads, n, width), (n * heads * width, width, heads * width, 1))


def _empty_results(x: LinearArguments) -> tuple[Tensor, Tensor]:
    """Attended symbols ``(B, H, N, d_h)`` and relations ``(B, H, N, R)``, yet to be written."""
    return side_by_side(x.q, x.table.shape[-1]), x.q.new_empty(*x.q.shape[:3], x.u.shape[2])


def _empty_gradients(x: LinearArguments) -> Gradients:
    dq, dk = (side_by_side(heads, heads.shape[-1]) for heads in (x.q, x.k))
    du, dw, dtable = (like.new_empty(like.shape) for like in (x.u, x.w, x.table))
    return Gradients(dq, dk, du, dw, dtable, None if x.bias is None else x.bias.new_empty(x.bias.shape))


def _tensors(x: Gradients) -> tuple[Tensor, ...]:
    """As an operation returns them: without a bias its gradient is empty."""
    return (*x[:-1], x.q.new_empty(0) if x.bias is None else x.bias)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:TENSORS])
    ctx.numbers = inputs[TENSORS:]


def _plain(
    x: LinearArguments,
    kept: Tensor | None,
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    table: Tensor,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The operation for other tensors, by plain operations."""
    symbols = table
    if x.symbol_index is not None:
        n, m, index = q.shape[2], k.shape[2], x.symbol_index
        symbols = RelativeSymbols(table, pair_index(index, n, slice(0, n), slice(0, m)))
    how = {"pattern": x.pattern, "scale": x.scale, "rel_scale": x.rel_scale, "kept": kept}
    return whole_sums(q, k, u, w, symbols, bias, **how)
