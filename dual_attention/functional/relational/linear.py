"""Relational attention in memory linear in the length, forward and backward, in plain PyTorch.

Attention weights are built for a block of receivers at a time, the relations of that block for all heads at once, a
tile at a time (see :mod:`.relation_tiles`), and all of it again in the backward pass. Nothing of size N x M, let alone
N x M x R, outlives a block.

Math: a^h_i = sum_j alpha^h_ij r_ij, and sum_j alpha^h_ij s_j W_s^h beside it

Shapes: B batch, H heads, G key/value heads (H = G * rep), N receivers, M senders, D width of an attention query or
key, d_h width of a head, R relations, p width of one relation's query or key, K rows of a library of relative symbols;
in a block: C receivers, J senders.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..attention import narrow
from ..checks import is_open
from ..masks import MaskPattern
from ..symbols import OffsetSymbols, RelativeSymbols
from .head_products import add_head_products, multiply_heads
from .pair_symbols import PairSymbols, pair_index, pair_symbols
from .shared_symbols import summed_by_symbol
from .tiles import even_part, prefers_tiles, relations_under_weights, tile_size
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


def linear_relational_attention(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    *,
    scale: float,
    rel_scale: float,
    pattern: MaskPattern,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    block: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Attended symbols and attended relations.

    Args:
        q: ``(B, H, N, D)``; k: ``(B, G, M, D)``; u: ``(B, N, R, p)``; w: ``(B, M, R, p)``.
        symbols: projected, ``(B or 1, G, M, d_h)``; or relative with a library ``(K, G, d_h)``.
        pattern: which pairs may be attended.
        bias: added to the scaled scores, broadcastable to ``(B, H, N, M)``; minus infinity masks.
        dropout: rate on the weights; symbols and relations see the same mask, which depends on a seed drawn from the
            global generator and is drawn again, not kept, in the backward pass.
        block: receivers handled at a time; by default :func:`block_size`.

    Returns:
        ``(B, H, N, d_h)`` and ``(B, H, N, R)``. Asking for a second derivative raises ``RuntimeError``.
    """
    relative = isinstance(symbols, RelativeSymbols)
    index = symbols.diagonals if isinstance(symbols, OffsetSymbols) else symbols.index if relative else None
    seed = torch.randint(2**62, (1,)) if dropout else None
    return _forward_op(
        q,
        k,
        u,
        w,
        symbols.library if relative else symbols,
        index,
        bias,
        seed,
        pattern.attn_mask,
        pattern.padding,
        pattern.receiver_segments,
        pattern.sender_segments,
        pattern.causal,
        pattern.window,
        pattern.offset,
        scale,
        rel_scale,
        dropout,
        block_size(q.shape[1], k.shape[2]) if block is None else block,
    )


def block_size(heads: int, m: int) -> int:
    """Receivers handled at a time: fewer with more senders, so that a block's weights take no more memory."""
    return BLOCK if is_open(m) else min(BLOCK, max(SMALLEST_BLOCK, 2 * WEIGHTS // max(1, heads * m)))


def examples_at_a_time(batch: int, heads: int, rows: int, m: int, n_relations: int, p: int, *, on_cpu: bool) -> int:
    """Examples handled at a time: as many as have the weights of a block, of that many receivers.

    One, if a tile has no room for the relations of two: tiles multiply many examples or the relations of one at once.
    """
    if prefers_tiles(heads, p) and 2 * rows * m * n_relations > tile_size(on_cpu):
        return 1
    room = WEIGHTS if on_cpu else WEIGHTS_ON_GPU
    return even_part(batch, max(1, room // max(1, heads * rows * m)))


class _Blocks:
    """One call's tensors, and the sums over blocks of receivers that forward and backward are made of.

    Heads come first here, before examples: products then take views of the tensors as they are, and weights of all
    examples or of all heads of a group lie in a row.
    """

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        u: Tensor,
        w: Tensor,
        table: Tensor,
        index: Tensor | None,
        bias: Tensor | None,
        attn_mask: Tensor | None,
        padding: Tensor | None,
        receiver_segments: Tensor | None,
        sender_segments: Tensor | None,
        causal: bool,
        window: int | None,
        offset: int,
        scale: float,
        rel_scale: float,
        dropout: float,
        block: int,
        seed: int,
        workspace: Workspace,
        pairs: PairSymbols | None,
    ) -> None:
        self.batch, self.heads, self.n, _ = q.shape
        self.m = k.shape[2]
        self.pattern = MaskPattern(
            self.n, self.m, attn_mask, padding, receiver_segments, sender_segments, causal, window, offset
        )
        self.q, self.k, self.scale = q.transpose(0, 1), k.transpose(0, 1), scale
        self.workspace = workspace
        self.relations = relations_under_weights(self.heads, u, w, rel_scale, workspace)
        self.index, self.bias = index, bias
        # (G, 1, K, d_h), or shared symbols (G, B or 1, M, d_h)
        self.table = by_group(table) if index is not None else table.transpose(0, 1)
        self.dropout, self.block, self.seed, self.pairs = dropout, block, seed, pairs
        self.wide = torch.promote_types(q.dtype, torch.float32)  # of softmax and of sums over blocks

    def spans(self) -> list[tuple[slice, slice]]:
        """Blocks of receivers with the senders that any of them may attend, last first.

        With a causal mask the last block is the largest, whose memory serves the others.
        """
        starts = reversed(range(0, self.n if self.batch else 0, self.block))
        blocks = [(start, min(start + self.block, self.n)) for start in starts]
        return [(slice(*block), slice(*self.pattern.senders(*block))) for block in blocks]

    def weights(self, rows: slice, columns: slice) -> Tensor:
        """Attention weights before dropout, ``(H, B, C, J)``; zero in rows that have nothing to attend."""
        scores = self.memory("scores", rows, columns)
        multiply_heads(self.q[:, :, rows], self.k[:, :, columns].transpose(-2, -1), scores, self.scale)
        scores = scores.to(self.wide)
        by_example = scores.transpose(0, 1)
        if self.bias is not None:
            by_example += narrow(self.bias, rows, columns)
        self.pattern.hide_(by_example, rows, columns)
        if scores.dtype == self.q.dtype:
            alpha = torch.softmax(scores, dim=-1, out=self.memory("weights", rows, columns))
        else:
            alpha = torch.softmax(scores, dim=-1)
        if self.bias is not None or self.pattern.may_hide_all:
            alpha.masked_fill_(scores.amax(dim=-1, keepdim=True) == -torch.inf, 0.0)
        return alpha

    def memory(self, name: str, rows: slice, columns: slice) -> Tensor:
        """For numbers as many as a block's weights, ``(H, B, C, J)``."""
        shape = (self.heads, self.batch, rows.stop - rows.start, columns.stop - columns.start)
        return self.workspace.tensor(name, *shape)

    def kept(self, rows: slice, shape: torch.Size) -> Tensor | None:
        """Dropout factors of the weights of a block: zero, or one over the rate of what is kept."""
        if not self.dropout:
            return None
        generator = torch.Generator(self.q.device).manual_seed(self.seed + rows.start)
        kept = torch.empty(shape, dtype=self.wide, device=self.q.device)
        return kept.bernoulli_(1.0 - self.dropout, generator=generator).div_(1.0 - self.dropout)

    def attend_symbols(self, alpha: Tensor, rows: slice, columns: slice) -> Tensor:
        """``(H, B, C, J) -> (H, B, C, d_h)``."""
        if self.pairs is not None:
            return self.pairs.attend(alpha, rows, columns)
        if self.index is not None:
            alpha, columns = self.shared(alpha, rows, columns), slice(None)
        attended = alpha.new_empty(*alpha.shape[:3], self.table.shape[-1])
        return multiply_heads(alpha, self.table[:, :, columns], attended)

    def shared(self, alpha: Tensor, rows: slice, columns: slice) -> Tensor:
        """Weights summed over the senders that have the same relative symbol: ``(H, B, C, K)``."""
        return summed_by_symbol(alpha, self.index_of(rows, columns), self.table.shape[-2])

    def index_of(self, rows: slice, columns: slice) -> Tensor:
        """Rows of the library for the pairs of a block, ``(C, J)``."""
        assert self.index is not None
        return pair_index(self.index, self.n, rows, columns)

    def forward(self, symbols: Tensor, relations: Tensor) -> None:
        """Write attended symbols ``(B, H, N, d_h)`` and relations ``(B, H, N, R)``."""
        symbols, relations = symbols.transpose(0, 1), relations.transpose(1, 2)
        for rows, columns in self.spans():
            if columns.start >= columns.stop:
                symbols[:, :, rows], relations[:, rows] = 0.0, 0.0
                continue
            alpha = self.weights(rows, columns)
            kept = self.kept(rows, alpha.shape)
            alpha = (alpha if kept is None else alpha.mul_(kept)).to(self.q.dtype)
            symbols[:, :, rows] = self.attend_symbols(alpha, rows, columns)
            relations[:, rows] = self.relations.attend(alpha, rows, columns)

    def backward(self, grad_symbols: Tensor, grad_relations: Tensor, into: _Gradients) -> None:
        """Write the gradients of q, k, u and w, and add those of the table and the bias, from those of the results."""
        wide = self.wide
        dk = into.k.zero_() if into.k.dtype == wide else torch.zeros_like(into.k, dtype=wide)
        dq, dk, du, dw = into.q.transpose(0, 1), dk.transpose(0, 1), into.u, self.relations.sum_of_keys()
        grad_symbols = grad_symbols.transpose(0, 1)
        dtable = by_group(into.table) if self.index is not None else into.table.transpose(0, 1)
        for rows, columns in self.spans():
            if columns.start >= columns.stop:
                dq[:, :, rows], du[:, rows] = 0.0, 0.0
                continue
            probabilities = self.weights(rows, columns)
            kept = self.kept(rows, probabilities.shape)
            alpha = (probabilities if kept is None else probabilities * kept).to(self.q.dtype)
            g_s, g_a = grad_symbols[:, :, rows].contiguous(), grad_relations[:, :, rows].transpose(1, 2).contiguous()
            dalpha = self.symbols_backward(g_s, alpha, rows, columns, dtable)
            self.relations.backward_(g_a, alpha, rows, columns, dalpha, du[:, rows], dw)
            dalpha = dalpha.to(wide) if kept is None else dalpha.to(wide).mul_(kept)
            # Math: dS = alpha * (dalpha - <alpha, dalpha>)
            dscores = self.memory("scores", rows, columns) if wide == self.q.dtype else torch.empty_like(dalpha)
            torch.ops.aten._softmax_backward_data.out(dalpha, probabilities, -1, wide, grad_input=dscores)
            if into.bias is not None:
                add_reduced(into.bias, dscores.transpose(0, 1), rows, columns)
            dscores = dscores.to(self.q.dtype)
            part = dscores.new_empty(*dscores.shape[:3], self.q.shape[-1])
            dq[:, :, rows] = multiply_heads(dscores, self.k[:, :, columns], part, self.scale)
            add_head_products(dscores, self.q[:, :, rows], dk[:, :, columns], self.scale)
        if into.k.dtype != wide:
            into.k.copy_(dk.transpose(0, 1))
        into.w.copy_(self.relations.gradient_of_keys(dw))

    def symbols_backward(self, g: Tensor, alpha: Tensor, rows: slice, columns: slice, dtable: Tensor) -> Tensor:
        """Gradient of a block's weights through the symbols; that of the symbols is added to ``dtable``."""
        dalpha = self.memory("dalpha", rows, columns)
        if self.pairs is not None:
            return self.pairs.backward_(g, alpha, rows, columns, dalpha)
        if self.index is None:
            add_head_products(alpha, g, dtable[:, :, columns])
            return multiply_heads(g, self.table[:, :, columns].transpose(-2, -1), dalpha)
        add_head_products(self.shared(alpha, rows, columns), g, dtable)
        shared = g.new_empty(*g.shape[:3], self.table.shape[-2])
        multiply_heads(g, self.table.transpose(-2, -1), shared)
        index = self.index_of(rows, columns)
        return torch.gather(shared, -1, index.expand(dalpha.shape), out=dalpha)


@dataclass
class _Gradients:
    """Where gradients of some examples go: of q, k, u and w in their types, sums of the others in a wide one."""

    q: Tensor
    k: Tensor
    u: Tensor
    w: Tensor
    table: Tensor
    bias: Tensor | None


def by_group(table: Tensor) -> Tensor:
    """A library of relative symbols ``(K, G, d_h)`` as ``(G, 1, K, d_h)``."""
    return table.transpose(0, 1)[:, None]


def add_reduced(total: Tensor, part: Tensor, rows: slice, columns: slice) -> None:
    """Add a block ``(B, H, C, J)`` to a tensor that broadcasts to ``(B, H, N, M)``, summed where it broadcasts."""
    over = [axis for axis in range(4) if total.shape[axis] == 1]
    narrow(total, rows, columns).add_(part.sum(over, keepdim=True) if over else part)


def side_by_side(x: Tensor, width: int) -> Tensor:
    """Empty, ``(B, H, N, width)``, with the heads of a token side by side in memory as in projections."""
    batch, heads, n, _ = x.shape
    return x.new_empty(batch, n, heads, width).transpose(1, 2)


def _some_examples_at_a_time(
    tensors: tuple[Tensor | None, ...], numbers: tuple[Any, ...], seed: Tensor | None, pairs: PairSymbols | None
) -> Iterator[tuple[slice, _Blocks]]:
    """Examples, as many as fill the processor's cache, and their part of a call."""
    q, k, u, w, table, index, *masks = tensors
    assert q is not None and k is not None and u is not None and w is not None and table is not None
    batch, heads, n, _ = q.shape
    sizes = (batch, heads, min(n, numbers[-1]), k.shape[2], *u.shape[2:])
    step = examples_at_a_time(*sizes, on_cpu=q.is_cpu)
    first, workspace = 0 if seed is None else int(seed), Workspace(q)
    for start in range(0, batch, step):
        some = slice(start, min(start + step, batch))
        of_table = table if index is not None else _of_examples(table, some)
        of_masks = [None if mask is None else _of_examples(mask, some) for mask in masks]
        parts: tuple[Any, ...] = (q[some], k[some], u[some], w[some], of_table, index, *of_masks)
        # Receivers of other examples draw other numbers.
        yield some, _Blocks(*parts, *numbers, seed=first + start * n, workspace=workspace, pairs=pairs)


def _of_examples(x: Tensor, some: slice) -> Tensor:
    """The part of a tensor that belongs to these examples; all of one that serves every example."""
    return x[some] if x.shape[0] > 1 else x


@torch.library.custom_op("dual_attention::linear_relational_attention", mutates_args=())
def _forward_op(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    table: Tensor,
    index: Tensor | None,
    bias: Tensor | None,
    seed: Tensor | None,
    attn_mask: Tensor | None,
    padding: Tensor | None,
    receiver_segments: Tensor | None,
    sender_segments: Tensor | None,
    causal: bool,
    window: int | None,
    offset: int,
    scale: float,
    rel_scale: float,
    dropout: float,
    block: int,
) -> tuple[Tensor, Tensor]:
    symbols, relations = side_by_side(q, table.shape[-1]), q.new_empty(*q.shape[:3], u.shape[2])
    tensors = (q, k, u, w, table, index, bias, attn_mask, padding, receiver_segments, sender_segments)
    numbers = (causal, window, offset, scale, rel_scale, dropout, block)
    pairs = pair_symbols(table, index, q.shape[2], k.shape[2], maps=q.shape[0] * q.shape[1])
    for examples, blocks in _some_examples_at_a_time(tensors, numbers, seed, pairs):
        blocks.forward(symbols[examples], relations[examples])
    return symbols, relations


@_forward_op.register_fake
def _(q: Tensor, k: Tensor, u: Tensor, w: Tensor, table: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return side_by_side(q, table.shape[-1]), q.new_empty(*q.shape[:3], u.shape[2])


@torch.library.custom_op("dual_attention::linear_relational_attention_backward", mutates_args=())
def _backward_op(
    grad_symbols: Tensor,
    grad_relations: Tensor,
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    table: Tensor,
    index: Tensor | None,
    bias: Tensor | None,
    seed: Tensor | None,
    attn_mask: Tensor | None,
    padding: Tensor | None,
    receiver_segments: Tensor | None,
    sender_segments: Tensor | None,
    causal: bool,
    window: int | None,
    offset: int,
    scale: float,
    rel_scale: float,
    dropout: float,
    block: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    tensors = (q, k, u, w, table, index, bias, attn_mask, padding, receiver_segments, sender_segments)
    numbers = (causal, window, offset, scale, rel_scale, dropout, block)
    wide = torch.promote_types(q.dtype, torch.float32)
    dq, dk = side_by_side(q, q.shape[-1]), side_by_side(k, k.shape[-1])
    du, dw = u.new_empty(u.shape), w.new_empty(w.shape)
    dtable = table.new_zeros(table.shape, dtype=wide)
    dbias = q.new_zeros(0 if bias is None else bias.shape, dtype=wide)
    pairs = pair_symbols(table, index, q.shape[2], k.shape[2], maps=q.shape[0] * q.shape[1])
    for some, blocks in _some_examples_at_a_time(tensors, numbers, seed, pairs):
        of_table = dtable if index is not None else _of_examples(dtable, some)
        of_bias = None if bias is None else _of_examples(dbias, some)
        into = _Gradients(dq[some], dk[some], du[some], dw[some], of_table, of_bias)
        blocks.backward(grad_symbols[some], grad_relations[some], into)
    if pairs is not None:
        dtable = pairs.table_gradient()
    return dq, dk, du, dw, dtable.to(table.dtype), dbias.to(q.dtype)


@_backward_op.register_fake
def _(*args: Any) -> tuple[Tensor, ...]:
    q, k, u, w, table, _, bias = args[2:9]
    empty = q.new_empty(0) if bias is None else q.new_empty(bias.shape)
    of_heads = (side_by_side(x, x.shape[-1]) for x in (q, k))
    return (*of_heads, *(x.new_empty(x.shape) for x in (u, w, table)), empty)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:12])
    ctx.numbers = inputs[12:]


def _backward(ctx: Any, grad_symbols: Tensor, grad_relations: Tensor) -> tuple[Tensor | None, ...]:
    *grads, dbias = _backward_op(grad_symbols, grad_relations, *ctx.saved_tensors, *ctx.numbers)
    return (*grads, None, dbias if ctx.needs_input_grad[6] else None, *[None] * 12)


_forward_op.register_autograd(_backward, setup_context=_setup_context)
