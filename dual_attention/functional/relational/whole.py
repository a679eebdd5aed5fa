"""Sums over senders under weights that are built, with every derivative; shapes as in :mod:`..reference`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .. import reference
from ..checks import is_exporting, leaves_pytorch
from ..masks import MaskPattern
from ..symbols import RelativeSymbols
from .head_products import rows_of_groups, rows_of_heads
from .relative_symbols import attend_to_symbols


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
    observe: reference.Observe = reference.UNOBSERVED,
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """Symbols ``(B, H, N, d_h)``, if there are any, and relations ``(B, H, N, R)`` under attention weights.

    Args:
        alpha: ``(B, H, N, M)``.
        relate: builds the relations ``(B, N, M, R)``, which are the third result; None if they are inner products that
            nobody wants to see.
        symbol_per_pair: as :func:`attend_to_symbols`.
    """
    r = None if relate is None else observe("relations", relate())
    received = attend_to_relations(alpha, u, w, rel_scale) if r is None else torch.einsum("bhnm,bnmr->bhnr", alpha, r)
    if symbols is None:
        return None, received, r
    symbols = reference.symbol_values(observe, symbols, alpha.shape[1])
    return attend_to_symbols(alpha, symbols, symbol_per_pair=symbol_per_pair), received, r


def attention_weights(
    q: Tensor, k: Tensor, *, scale: float, mask: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """As :func:`.reference.attention_weights`, without a key for every head."""
    scores = rows_of_heads(reference.scores_for_softmax(rows_of_groups(q, k.shape[1]), k, scale), q.shape[1])
    visible = reference.without_hidden(mask, bias)
    return reference.softmax_over_senders(reference.add_bias(scores, bias), visible).to(q.dtype)


def attend_to_relations(alpha: Tensor, u: Tensor, w: Tensor, rel_scale: float) -> Tensor:
    """Relations ``(B, H, N, R)`` under weights ``(B, H, N, M)``: linear ones let the sum over senders move inside.

    Math: sum_j alpha^h_ij <u^l_i, w^l_j> = <u^l_i, sum_j alpha^h_ij w^l_j>
    """
    batch, heads, n, _ = alpha.shape
    # Relation keys are shared by all heads: stacking the heads' weights makes one product for each example.
    if is_exporting() or leaves_pytorch():  # which could not leave the sizes of stacked weights open
        keys = torch.einsum("bhnm,bmrp->bhnrp", alpha, w)
    else:
        keys = (alpha.flatten(1, 2) @ w.flatten(2)).view(batch, heads, n, *w.shape[2:])
    return (keys * (rel_scale * u)[:, None]).sum(dim=-1)
