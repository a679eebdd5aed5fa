"""Tiles of symbols of clipped offsets.

A tile of I x J pairs has but I + J - 1 offsets, one for each diagonal, so that many rows of the table are all that it
reads. Far from the main diagonal clipping leaves one symbol for all pairs, and the tile's products become sums.

Shapes: I receivers, J senders, T diagonals (a power of two, at least I + J - 1). Places are among the senders: that of
receiver ``i`` is ``i + symbol_offset``, and ``first_place`` that of a tile's first. ``table`` points to the rows of a
group of heads; ``x`` and ``form`` are the :class:`.Operands` and the :class:`.Form` of the kernel.
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
def onto_diagonals(tile, form):
    """Skew a tile ``(I, J)`` so that each column holds a diagonal: ``(I, T)``."""
    j = tl.arange(0, form.T)[None, :] + tl.arange(0, form.I)[:, None] - (form.I - 1)
    inside = (j >= 0) & (j < form.J)
    return tl.where(inside, tl.gather(tile, tl.where(inside, j, 0), 1), 0.0)


@triton.jit
def off_diagonals(tile, form):
    """Counterpart of :func:`onto_diagonals`: ``(I, T) -> (I, J)``."""
    return tl.gather(tile, tl.arange(0, form.J)[None, :] - tl.arange(0, form.I)[:, None] + (form.I - 1), 1)


@triton.jit
def is_far(first_place, first_j, x, form):
    """Whether all pairs of a tile share the first symbol, or the last."""
    return (first_j + form.J - 1 - first_place <= -x.max_offset) | (first_j - first_place - form.I + 1 >= x.max_offset)


@triton.jit
def load_far(table, first_place, first_j, x, form):
    """The symbol that all pairs of a far tile share, ``(DH_PAD,)``, in float32."""
    columns = tl.arange(0, form.DH_PAD)
    row = clip(first_j - first_place, x.max_offset)
    return tl.load(table + row * x.s.row + columns, mask=columns < form.DH, other=0.0).to(tl.float32)


@triton.jit
def load_table(table, first_place, first_j, x, form):
    """The symbols of a tile, ``(T, DH_PAD)``: diagonal ``t`` holds the pairs with the offset
    ``first_j - first_place - (I - 1) + t``."""
    rows = clip(first_j - first_place - (form.I - 1) + tl.arange(0, form.T), x.max_offset)
    return load_rows(table, rows, x.s.row, 2 * x.max_offset + 1, form.DH, form.DH_PAD)


@triton.jit
def attend_offsets(symbols, weights, table, first_place, first_j, x, form):
    """Add the symbols of a tile under its weights to ``symbols``, ``(I, DH_PAD)``.

    Math: sum_j alpha_ij T[clip(j - place_i)] = sum_t beta_it T_t,  beta_it the weight on diagonal t
    """
    if is_far(first_place, first_j, x, form):
        symbol = load_far(table, first_place, first_j, x, form)
        symbols += tl.sum(weights, 1)[:, None] * symbol[None, :]
    else:
        tile = load_table(table, first_place, first_j, x, form)
        symbols = product(onto_diagonals(weights, form).to(tile.dtype), tile, symbols, form)
    return symbols


@triton.jit
def products_with_offsets(g, table, first_place, first_j, x, form):
    """Products of the receivers' rows ``g`` ``(I, DH_PAD)`` with the symbols of their pairs: ``(I, J)``.

    Math: <g_i, T[clip(j - place_i)]>
    """
    if is_far(first_place, first_j, x, form):
        symbol = load_far(table, first_place, first_j, x, form)
        products = tl.zeros((form.I, form.J), tl.float32) + tl.sum(g.to(tl.float32) * symbol[None, :], 1)[:, None]
    else:
        tile = load_table(table, first_place, first_j, x, form)
        of_diagonals = product(g, tl.trans(tile), tl.zeros((form.I, form.T), tl.float32), form)
        products = off_diagonals(of_diagonals, form)
    return products
