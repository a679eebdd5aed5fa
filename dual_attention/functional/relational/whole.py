"""Sums over senders under weights that are built, with every derivative; shapes as in :mod:`..reference`."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import reference
from ..checks import is_certain, is_open, leaves_pytorch
from ..mask_patterns import MaskPattern
from ..symbols import RelativeSymbols
from .head_products import scaled_product

SENDERS_OF_SPLIT = 256
"""Senders that a program of a GPU sums over for a single receiver, where their number divides by it."""


def whole_sums(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    bias: Tensor | None = None,
    *,
    pattern: MaskPattern,
    scale: float,
    rel_scale: float,
    kept: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attended symbols ``(B, H, N, d_h)`` and attended relations ``(B, H, N, R)``, for the identity activation.

    Args:
        kept: factors of dropout, ``(B, H, N, M)``.
    """
    alpha = attention_weights(q, k, scale=scale, mask=pattern.dense(q.device), bias=bias)
    if kept is not None:
        alpha = (alpha * kept).to(alpha.dtype)
    return attend_to_symbols(alpha, symbols), attend_to_relations(alpha, u, w, rel_scale)


def attend(
    alpha: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols | None,
    *,
    rel_scale: float,
    relate: Callable[[], Tensor] | None = None,
    symbol_per_pair: bool | None = None,
    observe: reference.Observe | None = None,
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """Symbols ``(B, H, N, d_h)``, if there are any, and relations ``(B, H, N, R)`` under attention weights.

    Args:
        alpha: ``(B, H, N, M)``.
        relate: builds the relations ``(B, N, M, R)``, which are the third result; None if they are inner products that
            nobody wants to see.
        symbol_per_pair: as :func:`attend_to_symbols`.
    """
    r = None if relate is None else relate()
    if r is not None and observe is not None:
        r = observe("relations", r)
    if r is None:
        received = attend_to_relations(alpha, u, w, rel_scale)
    else:
        received = torch.einsum("bhnm,bnmr->bhnr", alpha.to(r.dtype), r).to(alpha.dtype)
    if symbols is None:
        return None, received, r
    if observe is not None:
        symbols = reference.symbol_values(observe, symbols, alpha.shape[1])
    return attend_to_symbols(alpha, symbols, symbol_per_pair=symbol_per_pair), received, r


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    opened: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """As :func:`.reference.attention_weights`, without a key for every head.

    Args:
        opened: in the place of a mask and a bias, what :func:`.attention.opened_mask` makes of the mask.
    """
    heads, groups = q.shape[1], k.shape[1]
    if groups == heads:
        scores = reference.scores_for_softmax(q, k, scale)
    else:
        scores = rows_of_heads(reference.scores_for_softmax(rows_of_groups(q, groups), k, scale), heads)
    if bias is not None:
        mask, scores = reference.without_hidden(mask, bias), reference.add_bias(scores, bias)
    if opened is not None:
        shown, nothing = opened
        weights = torch.softmax(scores + shown, dim=-1).masked_fill(nothing, 0.0)
    else:
        weights = reference.softmax_over_senders(scores, mask)
    return weights if weights.dtype == q.dtype else weights.to(q.dtype)


def attend_to_relations(alpha: Tensor, u: Tensor, w: Tensor, rel_scale: float) -> Tensor:
    """Relations ``(B, H, N, R)`` under weights ``(B, H, N, M)``: linear ones let the sum over senders move inside.

    Math: sum_j alpha^h_ij <u^l_i, w^l_j> = <u^l_i, sum_j alpha^h_ij w^l_j>
    """
    # Relation keys are shared by all heads: stacking the heads' weights makes one product for each example.
    if torch.compiler.is_exporting() or leaves_pytorch():  # which could not leave the sizes of stacked weights open
        keys = torch.einsum("bhnm,bmrp->bhnrp", alpha, w)
    else:
        (batch, heads, n, _), (r, p) = alpha.shape, w.shape[2:]
        keys = _sum_over_senders(alpha.flatten(1, 2), w.flatten(2), n).view(batch, heads, n, r, p)
        if not alpha.is_cpu and is_certain(n == 1):  # fewer launches for a decoded token
            compared = scaled_product(
                keys[:, :, 0].transpose(1, 2).flatten(0, 1), u.flatten(0, 2)[..., None], rel_scale
            )
            return compared.view(*u.shape[:3], -1).permute(0, 3, 1, 2)
    received = (reference.not_half(keys) * (rel_scale * u).unsqueeze(1)).sum(dim=-1)
    return received if received.dtype == alpha.dtype else received.to(alpha.dtype)


def sum_in_splits(weights: Tensor, values: Tensor, splits: int) -> Tensor:
    """``weights @ values``, ``(..., n, M)`` and ``(..., M, d)``, as the sum of products over so many parts of M.

    Few receivers make few programs on a GPU, each of which goes through all senders; parts are summed side by side.
    """
    size = -(-weights.shape[-1] // splits)
    if short := size * splits - weights.shape[-1]:
        weights, values = F.pad(weights, (0, short)), F.pad(values, (0, 0, 0, short))
    parts = weights.unflatten(-1, (splits, size)).transpose(-3, -2) @ values.unflatten(-2, (splits, size))
    return parts.sum(-3)


def _sum_over_senders(weights: Tensor, values: Tensor, receivers: int) -> Tensor:
    if not weights.is_cpu and is_certain(receivers == 1):
        senders = weights.shape[-1]
        if is_certain(senders % SENDERS_OF_SPLIT == 0) and is_certain(senders > SENDERS_OF_SPLIT):
            return sum_in_splits(weights, values, senders // SENDERS_OF_SPLIT)
    alike = weights.dim() == 3 and weights.shape[0] == values.shape[0]
    return torch.bmm(weights, values) if alike else weights @ values


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
    if not isinstance(symbols, RelativeSymbols):
        return grouped_matmul(alpha, symbols)
    if symbol_per_pair is None:
        symbol_per_pair = has_symbol_per_pair(symbols, *alpha.shape[2:])
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
    return is_open(rows) if is_open(n, m) else is_certain(rows > 2 * (n + m))


def symbols_of_block(
    symbols: Tensor | RelativeSymbols, table: Tensor, rows: slice, columns: slice
) -> Tensor | RelativeSymbols:
    """Symbols of a block of receivers and senders, from all and their :func:`.symbol_table`, which has gradients."""
    if isinstance(symbols, RelativeSymbols):
        return RelativeSymbols(table, symbols.index_of(rows, columns))
    return table[:, :, columns]


def messages(
    attended_symbols: Tensor | None, attended_relations: Tensor, w_r: Tensor, observe: reference.Observe | None = None
) -> Tensor:
    """Messages ``(B, H, N, d_h)`` from their two parts, ``(B, H, N, d_h)`` or None, and ``(B, H, N, R)``.

    Math: a^h_i = W_r^h (sum_j alpha^h_ij r_ij) + sum_j alpha^h_ij s_j W_s^h
    """
    alone = not attended_relations.is_cpu and is_certain(attended_relations.shape[2] == 1)  # one launch for both
    if alone and observe is None and attended_symbols is not None:
        symbols, relations = (x[:, :, 0].transpose(0, 1) for x in (attended_symbols, attended_relations))
        return torch.baddbmm(symbols, relations, w_r.transpose(-2, -1)).transpose(0, 1).unsqueeze(2)
    message = attended_relations @ w_r.transpose(-2, -1)
    if observe is not None:
        message = observe("relational_message", message)
    if attended_symbols is None:
        return message
    return message + (attended_symbols if observe is None else observe("symbol_message", attended_symbols))


def grouped_matmul(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` ``(B, H, n, m)`` of ``(B, H, n, k)`` and ``(B or 1, G, k, m)``, with every derivative.

    The heads of a group are rows of one matrix, and so are all examples where that copies less.
    """
    (batch, heads, n, _), groups = a.shape, b.shape[1]
    if b.shape[0] == 1 and not is_open(batch, n) and batch > 1 and is_certain(n < min(b.shape[2:])):
        rows = a.transpose(0, 1).reshape(groups, -1, a.shape[-1]) @ b[0]
        return rows.view(heads, batch, n, b.shape[-1]).transpose(0, 1)
    if groups == heads:
        return _sum_over_senders(a, b, n)
    return rows_of_heads(_sum_over_senders(rows_of_groups(a, groups), b, n), heads)


def rows_of_groups(x: Tensor, groups: int) -> Tensor:
    """The heads of a group as rows of one matrix: ``(B, H, n, k) -> (B, G, rep * n, k)``."""
    return x.unflatten(1, (groups, -1)).flatten(2, 3)


def rows_of_heads(x: Tensor, heads: int) -> Tensor:
    """The reverse: ``(B, G, rep * n, m) -> (B, H, n, m)``."""
    return x.unflatten(2, (heads // x.shape[1], -1)).flatten(1, 2)
