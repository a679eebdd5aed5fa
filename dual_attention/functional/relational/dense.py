"""All weights built at once, and relations only where they must be; shapes as in :mod:`..reference`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from .. import reference
from ..attention import opened_once
from ..checks import is_certain, is_open
from .inputs import RelationalAttentionOutput, RelationalInputs
from .table import UNSUITED, Implementation, Verdict, register_implementation
from .tiles import multiplies_bfloat16, prefers_tiles
from .whole import attend, attention_weights, has_symbol_per_pair, messages

LARGEST_DENSE = 256 * 256
"""Pairs (receivers times senders) up to which ``impl="auto"`` may build all weights at once.

On a CPU it does so only while they are few (:data:`MOST_WEIGHTS`; :data:`FEWEST_WEIGHTS` where tiles of relations save
much, :func:`.tiles.prefers_tiles`), or in a step of decoding (:data:`FEWEST_RECEIVERS`). Measured forward and backward
on two cores, 16 to 256 objects: where tiles save much, dense was 1.0 to 1.8 times as fast with fewer weights than
``FEWEST_WEIGHTS``, linear 0.9 to 2.8 times with more; elsewhere dense was 1.0 to 2.1 times as fast with fewer than
``MOST_WEIGHTS``, linear 1.0 to 3.2 times with more. ``benchmarks/run.py --suite crossing`` measures it anew.
"""

MOST_WEIGHTS = 2**22
"""Weights of all examples and heads, about: 16 MB of float32."""

FEWEST_WEIGHTS = 2**17
"""The same where tiles of relations save much."""

FEWEST_RECEIVERS = 16
"""Receivers of which fewer are a step of decoding."""


def dense_relational_attention(
    x: RelationalInputs, observe: reference.Observe | None = None
) -> RelationalAttentionOutput:
    """Relational attention, maps included if they are asked for; an observer may replace each step."""
    mask = x.pattern.dense(x.q.device)
    if observe is not None:
        mask = reference.visible_pairs(observe, mask, x.bias, (x.n(), x.m()), x.q.device)
    how: dict[str, Any] = {"mask": mask, "bias": x.bias}
    if mask is not None and x.bias is None and observe is None and not x.q.is_cpu and is_certain(x.n() == 1):
        how = {"opened": opened_once(x.pattern, x.q)}
    alpha = attention_weights(x.q, x.k, scale=x.scale, **how)
    if observe is not None:
        alpha = observe("weights", alpha)
    if x.dropout:
        alpha = F.dropout(alpha, x.dropout)
    relate = None
    if x.activated() or x.need_weights or (observe is not None and observe.watches("relations")):
        u, w = map(reference.not_half, (x.u, x.w))
        relate = partial(
            reference.relations, u, w, scale=x.rel_scale, activation=x.rel_activation, mask=mask, bias=x.bias
        )
    symbols, received, r = attend(alpha, x.u, x.w, x.symbols, rel_scale=x.rel_scale, relate=relate, observe=observe)
    output = messages(symbols, received, x.w_r, observe)
    if r is None or not x.need_weights:
        return RelationalAttentionOutput(output)
    return RelationalAttentionOutput(output, alpha, x.with_padded(r.to(x.u.dtype)))


def reason_for_dense(x: RelationalInputs, *, in_bfloat16: bool) -> str | None:
    """Why to build all weights at once; None if it is better not to. Also while an export leaves sizes open."""
    if x.need_weights:
        return "weights and relations were asked for, and are built whole"
    (batch, heads, n, _), m = x.q.shape, x.k.shape[2]
    if is_open(n, m):
        few = "an export leaves lengths open, and relations are activated" if x.activated() else None
    else:
        known, p = 1 if isinstance(batch, torch.SymInt) else batch, x.u.shape[3]
        few = few_pairs(known, heads, n, m, p, on_cpu=x.q.is_cpu, activated=x.activated(), in_bfloat16=in_bfloat16)
    if few is None and has_symbol_per_pair(x.symbols, n, m):
        return "relative symbols have about a row for each pair"
    return few


def few_pairs(
    batch: int, heads: int, n: int, m: int, p: int, *, on_cpu: bool, activated: bool, in_bfloat16: bool = False
) -> str | None:
    """Why there are so few pairs that it is best to build all weights at once, see :data:`LARGEST_DENSE`; or None."""
    if n * m > LARGEST_DENSE:
        return None
    if activated:
        return f"there are at most {LARGEST_DENSE} pairs, whose activated relations are fastest built at once"
    if not on_cpu:
        return f"there are at most {LARGEST_DENSE} pairs"
    if n < FEWEST_RECEIVERS:
        return f"a step of decoding has fewer than {FEWEST_RECEIVERS} receivers"
    most = FEWEST_WEIGHTS if prefers_tiles(heads, p, in_bfloat16=in_bfloat16) else MOST_WEIGHTS
    return f"there are fewer than {most} weights" if batch * heads * n * m < most else None


def _suits(x: RelationalInputs) -> Verdict:
    few = reason_for_dense(x, in_bfloat16=x.u.dtype == torch.bfloat16 and multiplies_bfloat16(x.u))
    return UNSUITED if few is None else Verdict(True, few)


register_implementation(
    Implementation("dense", dense_relational_attention, lambda x: None, _suits, priority=60, observed=True)
)
