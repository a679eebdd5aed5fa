"""Relational attention with all weights built at once, and relations only where they must be.

Shapes: as in :mod:`..reference`.
"""

from __future__ import annotations

from functools import partial

from .. import reference
from ..dropout import drop
from .inputs import RelationalAttentionOutput, RelationalInputs, messages
from .whole import attend, attention_weights


def dense_relational_attention(
    x: RelationalInputs, observe: reference.Observe = reference.UNOBSERVED
) -> RelationalAttentionOutput:
    """Relational attention, maps included if they are asked for; an observer may replace each step."""
    mask = reference.visible_pairs(observe, x.mask, x.bias, (x.n, x.m), x.q.device)
    weights = observe("weights", attention_weights(x.q, x.k, scale=x.scale, mask=mask, bias=x.bias))
    alpha = drop(weights, x.dropout)
    relate = None
    if x.activated or x.need_weights or observe.watches("relations"):
        relate = partial(
            reference.relations, x.u, x.w, scale=x.rel_scale, activation=x.rel_activation, mask=mask, bias=x.bias
        )
    symbols, received, r = attend(alpha, x.u, x.w, x.symbols, rel_scale=x.rel_scale, relate=relate, observe=observe)
    output = messages(symbols, received, x.w_r, observe)
    if r is None or not x.need_weights:
        return RelationalAttentionOutput(output)
    return RelationalAttentionOutput(output, alpha, x.with_padded(r))
