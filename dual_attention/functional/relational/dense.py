"""Relational attention with all weights built at once, and relations only where they must be.

Shapes: as in :mod:`..reference`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import reference
from .inputs import RelationalAttentionOutput, RelationalInputs
from .relative_symbols import attend_to_symbols


def dense_relational_attention(x: RelationalInputs) -> RelationalAttentionOutput:
    """Relational attention, maps included if they are asked for."""
    mask = x.mask
    weights = reference.attention_weights(x.q, x.k, scale=x.scale, mask=mask, bias=x.bias)
    alpha = F.dropout(weights, x.dropout)
    r = None
    if x.activated or x.need_weights:
        r = reference.relations(x.u, x.w, scale=x.rel_scale, activation=x.rel_activation, mask=mask, bias=x.bias)
        attended_relations = torch.einsum("bhnm,bnmr->bhnr", alpha, r)
    else:
        attended_relations = attend_to_relations(alpha, x.u, x.w, x.rel_scale)
    result = x.output(attend_to_symbols(alpha, x.symbols), attended_relations)
    return result._replace(weights=alpha, relations=r) if x.need_weights else result


def attend_to_relations(alpha: Tensor, u: Tensor, w: Tensor, rel_scale: float) -> Tensor:
    """Relations under the attention weights, for the identity activation.

    The relation is linear in the sender's key, so the sum over senders moves inside the inner product:

    Math: sum_j alpha^h_ij <u^l_i, w^l_j> = <u^l_i, sum_j alpha^h_ij w^l_j>

    Takes ``(B, H, N, M)``, ``(B, N, R, p)`` and ``(B, M, R, p)``; returns ``(B, H, N, R)``.
    """
    batch, heads, n, _ = alpha.shape
    # Relation keys are shared by all heads: stacking the heads' weights makes one product for each example.
    keys = (alpha.flatten(1, 2) @ w.flatten(2)).view(batch, heads, n, *w.shape[2:])
    return (keys * (rel_scale * u)[:, None]).sum(dim=-1)
