"""Relational cross-attention (RCA) and its disentangled form, without the weights of all pairs at once.

RCA under softmax is an attention whose values are symbols, so fused attention computes it. The rest, which has no such
form, is computed for a block of receivers at a time, and again in the backward pass (checkpointing).

Shapes: as in :mod:`.reference`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from . import reference
from .activations import Activation, activation_function
from .attention import attention
from .checks import (
    check_axes,
    check_dropout,
    check_finite,
    check_key_heads,
    check_same_device,
    check_same_dtype,
    check_shapes,
    is_open,
)
from .derivatives import needs_plain
from .mask_patterns import MaskPattern, block_of
from .masks import pattern_and_bias
from .padding import zero_padding
from .relational.tiles import slices
from .relational.whole import attend_to_symbols, has_symbol_per_pair, symbols_of_block
from .symbols import RelativeSymbols, check_index, checked_table, symbol_table

Tensors = tuple[Tensor, ...]

LARGEST_WHOLE = 256 * 256
"""Pairs (receivers times senders) up to which all weights are built at once.

Where an export leaves lengths open, they always are."""

BLOCK = 128
"""Receivers in a block."""


def relational_cross_attention(
    q: Tensor,
    k: Tensor,
    symbols: Tensor | RelativeSymbols,
    *,
    scale: float,
    activation: str | Activation = "softmax",
    mask: Tensor | MaskPattern | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
    observe: reference.Observe | None = None,
) -> tuple[Tensor, Tensor | None]:
    """RCA of Abstractors (Altabaa et al. 2024, arXiv 2304.00195).

    Math: a^h_i = sum_j act(scale <q^h_i, k^h_j> + bias_ij) s_j W_s^h

    Args:
        q: ``(B, H, N, d_h)``; k: ``(B, G, M, d_h)``.
        symbols: projected, ``(B or 1, G, M, d_h)``; or relative with a library ``(K, G, d_h)``.
        activation: ``"softmax"`` over the senders, or elementwise.
        mask, bias, dropout, need_weights, observe: as :func:`dual_attention.functional.attention`, with the steps of
            :func:`.reference.relational_cross_attention`.

    Returns:
        Attended symbols ``(B, H, N, d_h)``; the weights ``(B, H, N, M)`` (after dropout), or None.

    >>> q, symbols = torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)
    >>> output, relations = relational_cross_attention(q, q, symbols, scale=0.25, need_weights=True)
    >>> output.shape, relations.shape
    (torch.Size([2, 4, 9, 16]), torch.Size([2, 4, 9, 9]))
    """
    mask, bias = checked_relational_cross((q,), (k,), symbols, mask, bias, scale, dropout)
    if activation == "softmax" and not need_weights and observe is None and isinstance(symbols, Tensor):
        symbols = symbols.expand(k.shape[0], -1, -1, -1)
        return attention(q, k, symbols, scale=scale, mask=mask, bias=bias, dropout=dropout)

    def weigh(q: Tensor, k: Tensor, **masks: Tensor | None) -> Tensors:
        weights = reference.activated_scores(q, k, scale=scale, activation=activation, **masks)
        weights = F.dropout(weights if observe is None else observe("weights", weights), dropout)
        return weights, weights

    attended, weights = _attend(weigh, (q,), (k,), symbols, mask, bias, need_weights, observe)[:2]
    return attended, weights if need_weights else None


def disentangled_relational_cross_attention(
    q: Tensor,
    k: Tensor,
    q_rel: Tensor,
    k_rel: Tensor,
    symbols: Tensor | RelativeSymbols,
    *,
    scale: float,
    rel_activation: str | Activation = "identity",
    mask: Tensor | MaskPattern | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
    observe: reference.Observe | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Disentangled RCA: one relation for each head scales the symbol that the head selects.

    Math: a^h_i = sum_j alpha^h_ij r^h_ij s_j W_s^h,  r^h_ij = act(scale <q_rel^h_i, k_rel^h_j>)

    Args:
        q, q_rel: ``(B, H, N, d_h)``; k, k_rel: ``(B, G, M, d_h)``.
        symbols, mask, bias: as :func:`relational_cross_attention`.
        dropout: rate on the product of weight and relation.
        need_weights: also return weights and relations.
        observe: sees the steps of :func:`.reference.disentangled_relational_cross_attention` and may replace them.

    Returns:
        Attended symbols ``(B, H, N, d_h)``; weights and relations, both ``(B, H, N, M)``, or None twice.

    >>> q, symbols = torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)
    >>> output, _, _ = disentangled_relational_cross_attention(q, q, q, q, symbols, scale=0.25)
    >>> output.shape
    torch.Size([2, 4, 9, 16])
    """
    mask, bias = checked_relational_cross((q, q_rel), (k, k_rel), symbols, mask, bias, scale, dropout)
    if rel_activation != "softmax":
        rel_activation = activation_function(rel_activation, "rel_activation")

    def weigh(q: Tensor, q_rel: Tensor, k: Tensor, k_rel: Tensor, **masks: Tensor | None) -> Tensors:
        alpha = reference.attention_weights(q, k, scale=scale, **masks)
        r = reference.relations_of_heads(q_rel, k_rel, scale=scale, activation=rel_activation, **masks)
        if observe is not None:
            alpha = observe("weights", alpha)
            r = observe("relations", r.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return F.dropout(alpha * r, dropout), alpha, r

    attended, weights, relations = _attend(weigh, (q, q_rel), (k, k_rel), symbols, mask, bias, need_weights, observe)
    if not need_weights:
        return attended, None, None
    if mask.padding is not None:  # what was summed has zeros for padded senders
        given = reference.relations_of_heads(
            q_rel, k_rel, scale=scale, activation=rel_activation, mask=mask.dense(q.device), bias=bias
        )
        relations = relations.where(mask.padding[:, None, None], given)
    return attended, weights, relations


def checked_relational_cross(
    queries: Tensors,
    keys: Tensors,
    symbols: Tensor | RelativeSymbols,
    mask: Tensor | MaskPattern | None,
    bias: Tensor | None,
    scale: float,
    dropout: float,
) -> tuple[MaskPattern, Tensor | None]:
    """The mask and the bias, in the type of the queries, after all arguments have been checked."""
    table = checked_table(symbols)
    names = (*("q", "q_rel")[: len(queries)], *("k", "k_rel")[: len(keys)])
    tensors = dict(zip(names, (*queries, *keys), strict=True))
    check_axes(**{name: (tensor, 4) for name, tensor in tensors.items()})
    q, k = queries[0], keys[0]
    (batch, heads, n, width), (groups, m) = q.shape, k.shape[1:3]
    shapes = {name: tuple(q.shape) if "q" in name else (batch, groups, m, width) for name in tensors}
    of_shared = (1 if symbols.shape[0] == 1 else batch, groups, m)
    of_symbols = (n, m, groups) if isinstance(symbols, RelativeSymbols) else of_shared
    shapes["symbols"] = (*of_symbols, symbols.shape[-1])
    check_shapes(q, **{name: (x, shapes[name]) for name, x in {**tensors, "symbols": symbols}.items()})
    check_key_heads(heads, groups)
    check_same_device(**tensors, symbols=table, bias=bias)
    check_index(q, symbols)
    check_same_dtype(**tensors, symbols=table)
    check_dropout("dropout", dropout)
    check_finite(scale=scale)
    return pattern_and_bias(mask, bias, q=q, m=m)


def _attend(
    weigh: Callable[..., Tensors],
    queries: Tensors,
    keys: Tensors,
    symbols: Tensor | RelativeSymbols,
    pattern: MaskPattern,
    bias: Tensor | None,
    need_weights: bool,
    observe: reference.Observe | None,
) -> tuple[Any, ...]:
    """Symbols under the first weights of ``weigh``, ``(B, H, N, d_h)``, and its other results.

    Of many pairs the symbols only, a block of receivers at a time.
    """
    keys = zero_padding(pattern, *keys)
    if isinstance(symbols, Tensor):
        (symbols,) = zero_padding(pattern, symbols)
    table, n, m = symbol_table(symbols), queries[0].shape[2], keys[0].shape[2]
    symbol_per_pair = has_symbol_per_pair(symbols, n, m)
    few = is_open(n, m) or n * m <= LARGEST_WHOLE
    if observe is not None or need_weights or few or needs_plain(*queries, *keys, table, bias):
        observe = observe or reference.UNOBSERVED
        mask = reference.visible_pairs(observe, pattern.dense(table.device), bias, (n, m), table.device)
        weights, *maps = weigh(*queries, *keys, mask=mask, bias=bias)
        symbols = reference.symbol_values(observe, symbols, weights.shape[1])
        attended = attend_to_symbols(weights, symbols, symbol_per_pair=symbol_per_pair)
        return observe("symbol_message", attended), *maps

    def block(rows: slice, queries: Tensors, keys: Tensors, table: Tensor, bias: Tensor | None) -> Tensor:
        columns = slice(*pattern.senders(rows.start, rows.stop))
        weights, *_ = weigh(
            *(query[:, :, rows] for query in queries),
            *(key[:, :, columns] for key in keys),
            mask=pattern.block(rows, columns, table.device),
            bias=None if bias is None else block_of(bias, rows, columns),
        )
        of_block = symbols_of_block(symbols, table, rows, columns)
        return attend_to_symbols(weights, of_block, symbol_per_pair=symbol_per_pair)

    blocks = [checkpoint(block, rows, queries, keys, table, bias, use_reentrant=False) for rows in slices(n, BLOCK)]
    return torch.cat(blocks, dim=2), None, None
