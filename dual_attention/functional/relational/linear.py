"""Relational attention in memory linear in the length, forward and backward.

Attention weights are built for a block of receivers at a time, the relations of that block for all heads at once, a
tile at a time (see :mod:`.tiles`), and all of it again in the backward pass. Nothing of size N x M, let alone
N x M x R, outlives a block.

Math: a^h_i = sum_j alpha^h_ij r_ij, and sum_j alpha^h_ij s_j W_s^h beside it

Shapes: as in :mod:`..reference`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..checks import is_open
from .blocks import Blocks, Gradients, LinearArguments, of_examples
from .inputs import RelationalAttentionOutput, RelationalInputs, obstacle_to_blocks
from .operation import linear_arguments, registered
from .pair_symbols import PairSymbols, pair_symbols
from .table import UNSUITED, Choice, Implementation, Verdict, register_implementation
from .tiles import even_part, multiplies_bfloat16, prefers_tiles, slices, tile_size
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


def linear_relational_attention(x: RelationalInputs) -> RelationalAttentionOutput:
    """Relational attention for the identity activation, without maps.

    Dropout depends on a seed drawn from the global generator, and is drawn again, not kept, in the backward pass.
    A second derivative builds all weights, see :mod:`..derivatives`.
    """
    return x.output(*_operation(*linear_arguments(x, block_size(x.q.shape[1], x.m()))))


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


def _pairs(x: LinearArguments) -> PairSymbols | None:
    """Relative symbols written out for all pairs, if that is worth its memory."""
    return pair_symbols(x.table, x.symbol_index, x.q.shape[2], x.k.shape[2], maps=x.q.shape[0] * x.q.shape[1])


def _forward(x: LinearArguments, symbols: Tensor, relations: Tensor) -> None:
    for examples, blocks in _some_examples_at_a_time(x, _pairs(x)):
        blocks.forward(symbols[examples], relations[examples])


def _backward(x: LinearArguments, grad_symbols: Tensor, grad_relations: Tensor, into: Gradients) -> None:
    wide = torch.promote_types(x.q.dtype, torch.float32)
    dtable = torch.zeros_like(into.table, dtype=wide)
    dbias = None if into.bias is None else torch.zeros_like(into.bias, dtype=wide)
    pairs = _pairs(x)
    for some, blocks in _some_examples_at_a_time(x, pairs):
        of_table = dtable if x.symbol_index is not None else of_examples(dtable, some)
        of_bias = None if dbias is None else of_examples(dbias, some)
        of_some = Gradients(into.q[some], into.k[some], into.u[some], into.w[some], of_table, of_bias)
        blocks.backward(grad_symbols[some], grad_relations[some], of_some)
    into.table.copy_(dtable if pairs is None else pairs.table_gradient())
    if into.bias is not None and dbias is not None:
        into.bias.copy_(dbias)


def _kept(x: LinearArguments) -> Tensor:
    wide = torch.promote_types(x.q.dtype, torch.float32)
    all_kept = x.q.new_zeros(*x.q.shape[:3], x.k.shape[2], dtype=wide)
    for some, blocks in _some_examples_at_a_time(x, None):
        for rows, columns in blocks.spans():
            part = all_kept[some, :, rows, columns].transpose(0, 1)
            kept = blocks.kept(rows, part.shape)
            if kept is not None and part.numel():
                part.copy_(kept)
    return all_kept


_operation = registered("linear_relational_attention", forward=_forward, backward=_backward, kept=_kept)


def _instead(x: RelationalInputs) -> Choice | None:
    if not x.activated():
        return None
    return Choice("blockwise", "impl='linear' was asked for, and activated relations must be built, block by block")


def _suits(x: RelationalInputs) -> Verdict:
    if x.activated():
        return UNSUITED
    if is_open(x.n(), x.m()):
        return Verdict(True, "an export leaves lengths open, and linear suits long ones")
    sizes, form = (x.q.shape[1], x.u.shape[3]), ""
    if multiplies_bfloat16(x.u) and prefers_tiles(*sizes) and not prefers_tiles(*sizes, in_bfloat16=True):
        form = ", and large products suit a processor that multiplies bfloat16"
    return Verdict(True, "there are too many weights to build all at once" + form)


register_implementation(
    Implementation("linear", linear_relational_attention, obstacle_to_blocks, _suits, priority=10, instead=_instead)
)
