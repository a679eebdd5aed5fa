"""Relational attention through library attention, for devices whose fused attention is at hand and Triton is not.

With the identity activation relational attention is one attention whose value at a sender is its symbol beside its
relation keys, followed by R inner products with the relation queries. A library call carries values of limited width,
so the relations are split into groups, and each group computes the weights again.

Shapes: as in :mod:`.linear`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..attention import attention
from ..masks import MaskPattern

COLUMNS = 256
"""Width of the values in one call, unless a symbol and one relation alone are wider."""


def sdpa_relational_attention(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor,
    *,
    scale: float,
    rel_scale: float,
    pattern: MaskPattern,
    bias: Tensor | None = None,
    columns: int = COLUMNS,
) -> tuple[Tensor, Tensor]:
    """Attended symbols and attended relations, for the identity activation.

    Math: c^h_i,l = sum_j alpha^h_ij w^l_j,   sum_j alpha^h_ij <u^l_i, w^l_j> = <u^l_i, c^h_i,l>

    Args:
        q: ``(B, H, N, D)``; k: ``(B, G, M, D)``; u: ``(B, N, R, p)``; w: ``(B, M, R, p)``.
        symbols: projected, ``(B or 1, G, M, d_h)``.
        pattern, bias: as in :func:`.attention.attention`.

    Returns:
        ``(B, H, N, d_h)`` and ``(B, H, N, R)``.
    """
    batch, groups, m, _ = k.shape
    n_relations, p = u.shape[2:]
    width = symbols.shape[-1]
    u = (rel_scale * u)[:, None]
    values, first, parts = [symbols.expand(batch, groups, m, width)], 0, []
    attended_symbols = None
    while first < n_relations:
        room = columns - (width if first == 0 else 0)
        last = min(first + max(1, room // p), n_relations)
        values.append(w[:, None, :, first:last].flatten(3).expand(batch, groups, m, -1))
        attended, _ = attention(q, k, torch.cat(values, dim=-1), scale=scale, mask=pattern, bias=bias)
        if first == 0:
            attended_symbols, attended = attended[..., :width], attended[..., width:]
        parts.append((attended.unflatten(-1, (last - first, p)) * u[..., first:last, :]).sum(-1))
        values, first = [], last
    assert attended_symbols is not None  # there is a relation at least
    return attended_symbols, torch.cat(parts, dim=-1)
