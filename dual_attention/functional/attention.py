"""Sensory attention: fused when only the result is wanted, the reference when the weights are asked for.

Shapes: B batch, H heads, G key/value heads, N receivers (queries), M senders (keys), D width of a query or key head,
d_h width of a value head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from . import reference


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Sensory attention, ``sum_j softmax_j(scale <q_i, k_j> + bias_ij) v_j``.

    Args:
        q: ``(B, H, N, D)``; k: ``(B, G, M, D)``; v: ``(B, G, M, d_h)``. D and d_h may differ.
        mask: boolean, four-dimensional, broadcastable to ``(B, H, N, M)``; True = may be attended.
        bias: floating point, broadcastable likewise, added to the scaled scores.
        is_causal: receivers see no later sender; only without ``mask`` and ``bias`` (combine them otherwise).
        need_weights: also return the weights, which needs them to be built.

    Returns:
        Attended values ``(B, H, N, d_h)``; the weights ``(B, H, N, M)`` (after dropout), or None. Rows with nothing
        to attend are zero.
    """
    if need_weights:
        if is_causal:
            mask = _causal(q, k)
        return reference.attention(q, k, v, scale=scale, mask=mask, bias=bias, dropout=dropout)

    wide = max(q.shape[-1], v.shape[-1])
    value_width = v.shape[-1]
    if q.shape[-1] != value_width:  # fused kernels want one width; zeros change neither scores nor values
        q, k, v = (F.pad(t, (0, wide - t.shape[-1])) for t in (q, k, v))

    some = None
    if bias is not None:
        allowed = bias != -torch.inf
        mask = allowed if mask is None else mask & allowed
    if mask is not None:
        # A fused kernel may return NaN, or NaN gradients, for a row with nothing to attend: let such a row attend
        # everything and drop what it receives.
        some = mask.any(dim=-1, keepdim=True)
        mask = mask | ~some
        if bias is not None:
            bias = bias.masked_fill(bias == -torch.inf, 0.0)
            mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -torch.inf) + bias.to(q.dtype)
    out = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=k.shape[1] != q.shape[1],
    )
    if some is not None:
        out = out.masked_fill(~some, 0.0)
    return out[..., :value_width], None


def _causal(q: Tensor, k: Tensor) -> Tensor:
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()[None, None]
