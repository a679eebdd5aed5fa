"""Sums over blocks of receivers that relational attention in linear memory is made of, forward and backward.

    senders j ->   0 . . . . . M
    receivers i    +-----------+
        0          | block     |    weights of one block, (H, B, C, J), are built, contracted with symbols and relations
        C          +-----------+    and dropped; order and windows cut columns that no receiver of the block may attend
        2 C        | block     |
        .          +-----------+

Shapes: as in :mod:`..reference`; in a block: C receivers, J senders.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import HALVES
from ..mask_patterns import MaskPattern, block_of
from .head_products import add_head_products, multiply_heads
from .pair_symbols import PairSymbols, pair_index
from .tiles import relations_under_weights, slices
from .whole import summed_by_symbol
from .workspace import Workspace


class LinearArguments(NamedTuple):
    """Arguments of the registered operation, flat as ``torch.library`` takes them.

    Attributes:
        q, k, u, w: as in :class:`.RelationalInputs`.
        table: shared symbols, or the library of relative ones.
        symbol_index: of relative symbols, ``(N, M)`` or along :attr:`.OffsetSymbols.diagonals`; None of shared ones.
        seed: of dropout, one integer, or None.
        attn_mask, padding, receiver_segments, sender_segments, causal, window, offset: of a :class:`.MaskPattern`.
        block: receivers handled at a time.
    """

    q: Tensor
    k: Tensor
    u: Tensor
    w: Tensor
    table: Tensor
    symbol_index: Tensor | None
    bias: Tensor | None
    seed: Tensor | None
    attn_mask: Tensor | None
    padding: Tensor | None
    receiver_segments: Tensor | None
    sender_segments: Tensor | None
    causal: bool
    window: int | None
    offset: int
    scale: float
    rel_scale: float
    dropout: float
    block: int

    @property
    def pattern(self) -> MaskPattern:
        masks = (self.attn_mask, self.padding, self.receiver_segments, self.sender_segments)
        return MaskPattern(self.q.shape[2], self.k.shape[2], *masks, self.causal, self.window, self.offset)

    def of_examples(self, some: slice) -> LinearArguments:
        """The part that belongs to some examples."""
        whole = {"symbol_index", "seed"} | ({"table"} if self.symbol_index is not None else set())
        tensors = {name: x for name, x in self._asdict().items() if isinstance(x, Tensor) and name not in whole}
        return self._replace(**{name: of_examples(x, some) for name, x in tensors.items()})


class Blocks:
    """One call's tensors, and the sums over blocks of receivers that forward and backward are made of.

    Heads come first here, before examples: products then take views of the tensors as they are, and weights of all
    examples or of all heads of a group lie in a row.
    """

    def __init__(self, x: LinearArguments, seed: int, workspace: Workspace, pairs: PairSymbols | None) -> None:
        self.batch, self.heads, self.n, _ = x.q.shape
        self.pattern, self.index, self.bias = x.pattern, x.symbol_index, x.bias
        self.q, self.k = x.q.transpose(0, 1), x.k.transpose(0, 1)
        self.scale, self.dropout, self.block = x.scale, x.dropout, x.block
        self.seed, self.workspace, self.pairs = seed, workspace, pairs
        self.relations = relations_under_weights(self.heads, x.u, x.w, x.rel_scale, workspace)
        # (G, 1, K, d_h), or shared symbols (G, B or 1, M, d_h)
        self.table = by_group(x.table) if x.symbol_index is not None else x.table.transpose(0, 1)
        self.wide = torch.promote_types(x.q.dtype, torch.float32)  # of softmax and of sums over blocks

    def spans(self) -> list[tuple[slice, slice]]:
        """Blocks of receivers with the senders that any may attend, last first: its memory serves the others."""
        blocks = reversed(slices(self.n if self.batch else 0, self.block))
        return [(rows, slice(*self.pattern.senders(rows.start, rows.stop))) for rows in blocks]

    def weights(self, rows: slice, columns: slice) -> Tensor:
        """Attention weights before dropout, ``(H, B, C, J)``; zero in rows that have nothing to attend."""
        scores = self.memory("scores", rows, columns)
        q, k = self.q[:, :, rows], self.k[:, :, columns].transpose(-2, -1)
        if q.dtype in HALVES:  # beyond which a score may lie, or which would round it
            q, k, scores = q.float(), k.float(), torch.empty_like(scores, dtype=self.wide)
        multiply_heads(q, k, scores, self.scale)
        if self.bias is not None:
            scores = scores.to(self.wide)
        by_example = scores.transpose(0, 1)
        if self.bias is not None:
            by_example += block_of(self.bias, rows, columns)
        self.pattern.hide_(by_example, rows, columns)
        into = self.memory("weights", rows, columns) if scores.dtype == self.q.dtype else None
        alpha = torch.softmax(scores, dim=-1, out=into)
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
        factors = torch.empty(shape, dtype=self.wide, device=self.q.device)
        return factors.bernoulli_(1.0 - self.dropout, generator=generator).div_(1.0 - self.dropout)

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

    def backward(self, grad_symbols: Tensor, grad_relations: Tensor, into: Gradients) -> None:
        """Write the gradients of q, k, u and w in their types; add those of table and bias in a wide one."""
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
            kind = probabilities.dtype
            kept = self.kept(rows, probabilities.shape)
            alpha = (probabilities if kept is None else probabilities * kept).to(self.q.dtype)
            g_s, g_a = grad_symbols[:, :, rows].contiguous(), grad_relations[:, :, rows].transpose(1, 2).contiguous()
            dalpha = self.symbols_backward(g_s, alpha, rows, columns, dtable)
            self.relations.backward_(g_a, alpha, rows, columns, dalpha, du[:, rows], dw)
            dalpha = dalpha.to(kind) if kept is None else dalpha.to(kind).mul_(kept)
            # Math: dS = alpha * (dalpha - <alpha, dalpha>)
            dscores = self.memory("scores", rows, columns) if kind == self.q.dtype else torch.empty_like(dalpha)
            torch.ops.aten._softmax_backward_data.out(dalpha, probabilities, -1, kind, grad_input=dscores)
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


class Gradients(NamedTuple):
    """Memory for gradients of the arguments of the same names. None is for no bias."""

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
    block_of(total, rows, columns).add_(part.sum(over, keepdim=True) if over else part)


def of_examples(x: Tensor, some: slice) -> Tensor:
    """The part of a tensor that belongs to these examples; all of one that serves every example."""
    return x if x.shape[0] == 1 else x[some]
