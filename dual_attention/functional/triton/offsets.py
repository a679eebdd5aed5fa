"""Tiles of symbols of clipped offsets.

A tile of I x J pairs has but I + J - 1 offsets, one for each diagonal, so that many rows of the table are all that it
reads. Far from the main diagonal clipping leaves one symbol for all pairs, and the tile's products become sums.

Shapes: I receivers, J senders, T diagonals (a power of two, at least I + J - 1). Places are among the senders: that of
receiver ``i`` is ``i + symbol_offset``, and ``first_place`` that of a tile's first.
"""

# Checkers see neither that a branch on a constexpr is taken at compile time, nor that reductions return tensors.
# pyright: reportPossiblyUnboundVariable=false, reportArgumentType=false

import triton
import triton.language as tl

from .tiles import load_rows, product


@triton.jit
def clip(offset, max_offset):
    """Row of the table for an offset."""
    return tl.minimum(tl.maximum(offset, -max_offset), max_offset) + max_offset


@triton.jit
def table_rows(first_place, first_j, max_offset, I: tl.constexpr, T: tl.constexpr):  # noqa: E741
    """Rows of the table that a tile reads: diagonal ``t`` holds the pairs with the offset
    ``first_j - first_place - (I - 1) + t``."""
    return clip(first_j - first_place - (I - 1) + tl.arange(0, T), max_offset)


@triton.jit
def onto_diagonals(tile, I: tl.constexpr, J: tl.constexpr, T: tl.constexpr):  # noqa: E741
    """Skew a tile ``(I, J)`` so that each column holds a diagonal: ``(I, T)``."""
    j = tl.arange(0, T)[None, :] + tl.arange(0, I)[:, None] - (I - 1)
    inside = (j >= 0) & (j < J)
    return tl.where(inside, tl.gather(tile, tl.where(inside, j, 0), 1), 0.0)


@triton.jit
def off_diagonals(tile, I: tl.constexpr, J: tl.constexpr):  # noqa: E741
    """Counterpart of :func:`onto_diagonals`: ``(I, T) -> (I, J)``."""
    return tl.gather(tile, tl.arange(0, J)[None, :] - tl.arange(0, I)[:, None] + (I - 1), 1)


@triton.jit
def is_far(first_place, first_j, max_offset, I: tl.constexpr, J: tl.constexpr):  # noqa: E741
    """Whether all pairs of a tile share the first symbol, or the last."""
    return (first_j + J - 1 - first_place <= -max_offset) | (first_j - first_place - I + 1 >= max_offset)


@triton.jit
def load_far(table, first_place, first_j, stride, max_offset, DH: tl.constexpr, DH_PAD: tl.constexpr):
    """The symbol that all pairs of a far tile share, ``(DH_PAD,)``, in float32."""
    columns = tl.arange(0, DH_PAD)
    row = clip(first_j - first_place, max_offset)
    return tl.load(table + row * stride + columns, mask=columns < DH, other=0.0).to(tl.float32)


@triton.jit
def attend_offsets(
    symbols,
    weights,
    table,
    first_place,
    first_j,
    stride,
    max_offset,
    DH: tl.constexpr,
    DH_PAD: tl.constexpr,
    I: tl.constexpr,  # noqa: E741
    J: tl.constexpr,
    T: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Add the symbols of a tile under its weights to ``symbols``, ``(I, DH_PAD)``.

    Math: sum_j alpha_ij T[clip(j - place_i)] = sum_t beta_it T_t,  beta_it the weight on diagonal t
    """
    if is_far(first_place, first_j, max_offset, I, J):
        symbol = load_far(table, first_place, first_j, stride, max_offset, DH, DH_PAD)
        symbols += tl.sum(weights, 1)[:, None] * symbol[None, :]
    else:
        rows = table_rows(first_place, first_j, max_offset, I, T)
        tile = load_rows(table, rows, stride, 2 * max_offset + 1, DH, DH_PAD)
        beta = onto_diagonals(weights, I, J, T).to(table.dtype.element_ty)
        symbols = product(beta, tile, symbols, PRECISION, WIDEN)
    return symbols


@triton.jit
def products_with_offsets(
    g,
    table,
    first_place,
    first_j,
    stride,
    max_offset,
    DH: tl.constexpr,
    DH_PAD: tl.constexpr,
    I: tl.constexpr,  # noqa: E741
    J: tl.constexpr,
    T: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Products of the receivers' rows ``g`` ``(I, DH_PAD)`` with the symbols of their pairs: ``(I, J)``.

    Math: <g_i, T[clip(j - place_i)]>
    """
    if is_far(first_place, first_j, max_offset, I, J):
        symbol = load_far(table, first_place, first_j, stride, max_offset, DH, DH_PAD)
        products = tl.zeros((I, J), tl.float32) + tl.sum(g.to(tl.float32) * symbol[None, :], 1)[:, None]
    else:
        rows = table_rows(first_place, first_j, max_offset, I, T)
        tile = load_rows(table, rows, stride, 2 * max_offset + 1, DH, DH_PAD)
        of_diagonals = product(g, tl.trans(tile), tl.zeros((I, T), tl.float32), PRECISION, WIDEN)
        products = off_diagonals(of_diagonals, I, J)
    return products
