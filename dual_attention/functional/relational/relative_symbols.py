"""Relative symbols under weights, without one for every pair; shapes as in :mod:`..reference`."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import reference
from ..checks import is_open
from ..symbols import RelativeSymbols
from .head_products import grouped_matmul


def attend_to_symbols(
    alpha: Tensor, symbols: Tensor | RelativeSymbols, *, symbol_per_pair: bool | None = None
) -> Tensor:
    """As :func:`.reference.attend_to_symbols`, without a symbol for every pair where the library is small.

    Relative symbols are few, so the weights of the pairs that share one are summed first:

    Math: sum_j alpha_ij T[index_ij] = sum_k beta_ik T_k,  beta_ik = sum_{j: index_ij = k} alpha_ij

    Args:
        alpha: ``(B, H, N, M)``; symbols: projected, ``(B or 1, G, M, d_h)``, or a library ``(K, G, d_h)``.
        symbol_per_pair: whether each pair has a symbol of its own; by default :func:`has_symbol_per_pair` of these.
    """
    if symbol_per_pair is None:
        symbol_per_pair = has_symbol_per_pair(symbols, *alpha.shape[2:])
    if not isinstance(symbols, RelativeSymbols):
        return grouped_matmul(alpha, symbols)
    if symbol_per_pair:
        return reference.attend_to_symbols(alpha, symbols)
    beta = summed_by_symbol(alpha, symbols.index, symbols.library.shape[0])
    return grouped_matmul(beta, symbols.library.transpose(0, 1)[None])


def summed_by_symbol(alpha: Tensor, index: Tensor, rows: int) -> Tensor:
    """Weights ``(B, H, N, M)`` summed over the senders that have the same symbol, ``(B, H, N, K)``.

    In float32 at least: clipping may give one symbol to all but a few senders, whose weights would vanish beside a
    sum in bfloat16.
    """
    wide = torch.promote_types(alpha.dtype, torch.float32)
    beta = torch.zeros(*alpha.shape[:-1], rows, dtype=wide, device=alpha.device)
    return beta.scatter_add(-1, index.long().expand(alpha.shape), alpha.to(wide)).to(alpha.dtype)


def has_symbol_per_pair(symbols: Tensor | RelativeSymbols, n: int, m: int) -> bool:
    """Whether relative symbols have so many rows that hardly any two pairs share one."""
    if not isinstance(symbols, RelativeSymbols):
        return False
    rows = symbols.library.shape[0]
    # While an export leaves lengths open, rows that are open too are those of pairs.
    return is_open(rows) if is_open(n, m) else rows > 2 * (n + m)


def symbols_of_block(
    symbols: Tensor | RelativeSymbols, table: Tensor, rows: slice, columns: slice
) -> Tensor | RelativeSymbols:
    """Symbols of a block of receivers and senders, from all and their :func:`.symbol_table`, which has gradients."""
    if isinstance(symbols, RelativeSymbols):
        return RelativeSymbols(table, symbols.index_of(rows, columns))
    return table[:, :, columns]
