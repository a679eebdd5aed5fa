"""Relative symbols written out for each pair, where that takes little memory.

Examples then share one product for each receiver. Where it takes more, the weights of the senders that share a symbol
are summed instead.

Shapes: as in :mod:`..reference`; in a block: C receivers, J senders.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ..symbols import lookup, on_diagonals

LARGEST_PAIRS = 2**22
"""Entries of all pairs together, at most: 16 MB of float32."""

SHARING = 2
"""Weights for each entry of a pair's symbols, at least. With as many, both ways take about the same time; with a
quarter of that, as with a single example, writing symbols out took twice to twenty times as long."""


class PairSymbols:
    """Symbols of a table ``(K, G, d_h)`` at an index ``(N, M)`` written out, for all examples of a call."""

    def __init__(self, table: Tensor, index: Tensor) -> None:
        self.table, self.index = table, index
        self.symbols = lookup(table, index).permute(2, 0, 1, 3).contiguous()  # (G, N, M, d_h)

    @cached_property
    def gradient(self) -> Tensor:
        """Gradient of the symbols, ``(G, N, M, d_h)``, in a type wide enough for sums over blocks and examples."""
        return torch.zeros_like(self.symbols, dtype=torch.promote_types(self.symbols.dtype, torch.float32))

    def attend(self, alpha: Tensor, rows: slice, columns: slice) -> Tensor:
        """Symbols of a block under weights ``(H, B, C, J)``, contiguous: ``(H, B, C, d_h)``."""
        attended = alpha.new_empty(*alpha.shape[:3], self.symbols.shape[-1])
        tensors = (*map(self.by_group, (attended, alpha)), self.symbols[:, rows, columns])
        for into, weights, symbols in zip(*tensors, strict=True):
            into.copy_(weights @ symbols)
        return attended

    def backward_(self, g: Tensor, alpha: Tensor, rows: slice, columns: slice, dalpha: Tensor) -> Tensor:
        """Write the gradient of a block's weights, from that of what they attend, and keep that of the symbols."""
        of_pairs = (x[:, rows, columns] for x in (self.symbols, self.gradient))
        tensors = (*map(self.by_group, (dalpha, g, alpha)), *of_pairs)
        for into, g_i, weights, symbols, gradient in zip(*tensors, strict=True):
            into.copy_(g_i @ symbols.transpose(1, 2))
            gradient += weights.transpose(1, 2) @ g_i
        return dalpha

    def by_group(self, x: Tensor) -> Tensor:
        """``(H, B, C, ...)`` as a matrix for each receiver of each group of heads, ``(G, C, H / G * B, ...)``."""
        return x.unflatten(0, (self.symbols.shape[0], -1)).flatten(1, 2).transpose(1, 2)

    def table_gradient(self) -> Tensor:
        """Gradient of the table, ``(K, G, d_h)``, in the type of :attr:`gradient`."""
        of_pairs = self.gradient.permute(1, 2, 0, 3).flatten(0, 1)  # (N * M, G, d_h)
        return of_pairs.new_zeros(self.table.shape).index_add_(0, self.index.flatten(), of_pairs)


def pair_symbols(table: Tensor, index: Tensor | None, n: int, m: int, *, maps: int) -> PairSymbols | None:
    """Relative symbols of N receivers and M senders, if writing them out is worth its memory for B H maps."""
    if index is None or not worth_writing_out(n * m, table[0].numel(), maps):
        return None
    return PairSymbols(table, pair_index(index, n, slice(0, n), slice(0, m)))


def pair_index(index: Tensor, n: int, rows: slice, columns: slice) -> Tensor:
    """Rows of the library for some pairs, ``(C, J)``, from those of all, ``(N, M)``, or of the N + M diagonals."""
    return index[rows, columns] if index.dim() == 2 else on_diagonals(index, n, rows, columns)


def worth_writing_out(pairs: int, entries: int, maps: int) -> bool:
    """Whether symbols of so many entries take little memory for all pairs, and enough weights share them."""
    return pairs * entries <= LARGEST_PAIRS and maps >= SHARING * entries
