"""Relational attention in memory linear in the length, forward and backward.

Attention weights are built for a block of receivers at a time, the relations of that block for all heads at once, a
tile at a time (see :mod:`.tiles`), and all of it again in the backward pass. Nothing of size N x M, let alone
N x M x R, outlives a block. On a CPU a library in C does the same faster, where it can be built
(:mod:`.compiled`).

Math: a^h_i = sum_j alpha^h_ij r_ij, and sum_j alpha^h_ij s_j W_s^h beside it

Shapes: as in :mod:`..reference`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..checks import is_open
from ..compiled_step import can_step, step
from ..derivatives import gradients_with_graph
from ..op_schema import op_schema
from ..symbols import OffsetSymbols, RelativeSymbols, symbol_table
from . import compiled
from .blocks import Blocks, Gradients, LinearArguments, of_examples
from .inputs import RelationalAttentionOutput, RelationalInputs
from .pair_symbols import PairSymbols, pair_index, pair_symbols
from .tiles import even_part, multiplies_bfloat16, prefers_tiles, slices, tile_size
from .whole import whole_sums
from .workspace import Workspace

BLOCK = 128
"""Receivers in a block. Larger blocks make larger products and hold more weights at a time."""

SMALLEST_BLOCK = 32
"""Receivers in a block at least, however many senders there are."""

WEIGHTS = 2**20
"""Weights of a block of as many examples as are handled at a time, about: 4 MB of float32, which a processor's cache
holds."""
WEIGHTS_ON_GPU = 2**27
"""The same on a GPU, where small operations wait for one another."""

TENSORS = LinearArguments._fields.index("causal")
"""Arguments of the registered operation that are tensors or None; they come first."""


def linear_relational_attention(x: RelationalInputs) -> RelationalAttentionOutput:
    """Relational attention for the identity activation, without maps.

    Dropout depends on a seed drawn from the global generator, and is drawn again, not kept, in the backward pass.
    A second derivative builds all weights, see :mod:`..derivatives`.
    """
    if is_step(x):
        return _step(x)
    x = x.zeroed()
    symbols, index = x.symbols, None
    if isinstance(symbols, RelativeSymbols):
        index = symbols.diagonals if isinstance(symbols, OffsetSymbols) else symbols.index
    arguments = LinearArguments(
        x.q,
        x.k,
        x.u,
        x.w,
        symbol_table(symbols),
        index,
        x.bias,
        torch.randint(2**62, (1,), device="cpu") if x.dropout else None,
        *x.pattern.savable_parts,
        x.scale,
        x.rel_scale,
        x.dropout,
        block_size(x.q.shape[1], x.m),
    )
    return x.output(*_forward_op(*arguments))


def is_step(x: RelationalInputs) -> bool:
    """Whether the library in C for one receiver computes this, see :mod:`..compiled_step`."""
    return can_step(x.q, x.bias, x.dropout, x.k, x.u, x.w, symbol_table(x.symbols))


def _step(x: RelationalInputs) -> RelationalAttentionOutput:
    index = x.symbols.index if isinstance(x.symbols, RelativeSymbols) else None
    how = {"scale": x.scale, "relations": (x.u, x.w, x.rel_scale), "index": index}
    return x.output(*step(x.q, x.k, symbol_table(x.symbols), x.pattern, **how))


def block_size(heads: int, m: int) -> int:
    """Receivers handled at a time: fewer with more senders, so that a block's weights take no more memory."""
    return BLOCK if is_open(m) else min(BLOCK, max(SMALLEST_BLOCK, 2 * WEIGHTS // max(1, heads * m)))


def examples_at_a_time(
    batch: int, heads: int, rows: int, m: int, n_relations: int, p: int, *, on_cpu: bool, in_bfloat16: bool = False
) -> int:
    """Examples handled at a time: as many as have the weights of a block, of that many receivers.

    One, if a tile has no room for the relations of two: tiles multiply many examples or the relations of one at once.
    """
    if prefers_tiles(heads, p, in_bfloat16=in_bfloat16) and 2 * rows * m * n_relations > tile_size(on_cpu):
        return 1
    room = WEIGHTS if on_cpu else WEIGHTS_ON_GPU
    return even_part(batch, max(1, room // max(1, heads * rows * m)))


def _some_examples_at_a_time(x: LinearArguments, pairs: PairSymbols | None) -> Iterator[tuple[slice, Blocks]]:
    """Examples, as many as fill the processor's cache, and their part of a call."""
    batch, heads, n, _ = x.q.shape
    sizes = batch, heads, min(n, x.block), x.k.shape[2], *x.u.shape[2:]
    step = examples_at_a_time(*sizes, on_cpu=x.q.is_cpu, in_bfloat16=multiplies_bfloat16(x.u))
    first, workspace = 0 if x.seed is None else int(x.seed), Workspace(x.q)
    for some in slices(batch, step):
        # Receivers of other examples draw other numbers.
        yield some, Blocks(x.of_examples(some), first + some.start * n, workspace, pairs)


def _is_compiled(x: LinearArguments) -> bool:
    """Whether the library in C computes this, forward and backward."""
    return compiled.obstacle(x.q, x.k, x.u, x.w, x.table, x.bias, relative=x.symbol_index is not None) is None


def _pairs(x: LinearArguments) -> PairSymbols | None:
    """Relative symbols written out for all pairs, if that is worth its memory."""
    return pair_symbols(x.table, x.symbol_index, x.q.shape[2], x.k.shape[2], maps=x.q.shape[0] * x.q.shape[1])


def side_by_side(x: Tensor, width: int) -> Tensor:
    """Empty, ``(B, H, N, width)``, with the heads of a token side by side in memory as in projections."""
    batch, heads, n, _ = x.shape
    return x.new_empty_strided((batch, heads, n, width), (n * heads * width, width, heads * width, 1))


@torch.library.custom_op(
    "dual_attention::linear_relational_attention", mutates_args=(), schema=op_schema(LinearArguments, 2)
)
def _forward_op(*arguments: Any) -> tuple[Tensor, Tensor]:
    x = LinearArguments(*arguments)
    symbols, relations = _empty_results(x)
    if _is_compiled(x):
        compiled.forward(x, symbols, relations)
        return symbols, relations
    for examples, blocks in _some_examples_at_a_time(x, _pairs(x)):
        blocks.forward(symbols[examples], relations[examples])
    return symbols, relations


@_forward_op.register_fake
def _empty_of_forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    return _empty_results(LinearArguments(*arguments))


def _empty_results(x: LinearArguments) -> tuple[Tensor, Tensor]:
    """Attended symbols ``(B, H, N, d_h)`` and relations ``(B, H, N, R)``, yet to be written."""
    return side_by_side(x.q, x.table.shape[-1]), x.q.new_empty(*x.q.shape[:3], x.u.shape[2])


@torch.library.custom_op(
    "dual_attention::linear_relational_attention_backward",
    mutates_args=(),
    schema=op_schema(LinearArguments, 6, "grad_symbols", "grad_relations"),
)
def _backward_op(grad_symbols: Tensor, grad_relations: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    x = LinearArguments(*arguments)
    wide = torch.promote_types(x.q.dtype, torch.float32)
    dq, dk = side_by_side(x.q, x.q.shape[-1]), side_by_side(x.k, x.k.shape[-1])
    du, dw = x.u.new_empty(x.u.shape), x.w.new_empty(x.w.shape)
    if _is_compiled(x):
        dtable = x.table.new_empty(x.table.shape)
        compiled.backward(x, grad_symbols, grad_relations, dq=dq, dk=dk, du=du, dw=dw, dtable=dtable)
        return dq, dk, du, dw, dtable, x.q.new_zeros(0)
    dtable = x.table.new_zeros(x.table.shape, dtype=wide)
    dbias = x.q.new_zeros(0 if x.bias is None else x.bias.shape, dtype=wide)
    pairs = _pairs(x)
    for some, blocks in _some_examples_at_a_time(x, pairs):
        of_table = dtable if x.symbol_index is not None else of_examples(dtable, some)
        of_bias = None if x.bias is None else of_examples(dbias, some)
        into = Gradients(dq[some], dk[some], du[some], dw[some], of_table, of_bias)
        blocks.backward(grad_symbols[some], grad_relations[some], into)
    if pairs is not None:
        dtable = pairs.table_gradient()
    return dq, dk, du, dw, dtable.to(x.table.dtype), dbias.to(x.q.dtype)


@_backward_op.register_fake
def _empty_of_backward(grad_symbols: Tensor, grad_relations: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    x = LinearArguments(*arguments)
    of_heads = (side_by_side(heads, heads.shape[-1]) for heads in (x.q, x.k))
    dbias = x.q.new_empty(0 if x.bias is None else x.bias.shape)
    return (*of_heads, *(like.new_empty(like.shape) for like in (x.u, x.w, x.table)), dbias)


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


@torch.no_grad()
def _all_kept(x: LinearArguments) -> Tensor | None:
    """Factors of dropout of all weights, ``(B, H, N, M)``, as the operation draws them."""
    if not x.dropout:
        return None
    if _is_compiled(x):
        return compiled.dropout_factors(x)
    wide = torch.promote_types(x.q.dtype, torch.float32)
    all_kept = x.q.new_zeros(*x.q.shape[:3], x.k.shape[2], dtype=wide)
    for some, blocks in _some_examples_at_a_time(x, None):
        for rows, columns in blocks.spans():
            part = all_kept[some, :, rows, columns].transpose(0, 1)
            kept = blocks.kept(rows, part.shape)
            if kept is not None and part.numel():
                part.copy_(kept)
    return all_kept


def _backward(ctx: Any, grad_symbols: Tensor, grad_relations: Tensor) -> tuple[Tensor | None, ...]:
    place = LinearArguments._fields.index("bias")  # behind the table comes an index, which has no gradient
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        x = LinearArguments(*ctx.saved_tensors, *ctx.numbers)
        *grads, of_bias = gradients_with_graph(
            partial(_plain, x, _all_kept(x)), (x.q, x.k, x.u, x.w, x.table, x.bias), (grad_symbols, grad_relations)
        )
    else:
        *grads, dbias = _backward_op(grad_symbols, grad_relations, *ctx.saved_tensors, *ctx.numbers)
        of_bias = dbias if ctx.needs_input_grad[place] else None
    return (*grads, None, of_bias, *[None] * (len(LinearArguments._fields) - place - 1))


_forward_op.register_autograd(_backward, setup_context=_setup_context)
