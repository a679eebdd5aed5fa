"""Relational attention through PyTorch's SDPA, for devices whose fused attention is at hand and Triton is not.

With the identity activation relational attention is one attention whose value at a sender is its symbol beside its
relation keys, followed by R inner products with the relation queries. One call carries values of limited width,
so the relations are split into groups, and each group computes the weights again:

    values of the calls    [ symbol | w^1 w^2 ]   [ w^3 w^4 w^5 ]   [ w^6 ]

Shapes: as in :mod:`..reference`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import reference
from ..activations import activation_name
from ..attention import attend_to_values
from ..checks import is_open
from ..padding import zero_padding
from ..symbols import RelativeSymbols, symbol_table
from .inputs import RelationalAttentionOutput, RelationalInputs
from .table import UNSUITED, Implementation, Verdict, register_implementation

COLUMNS = 256
"""Width of the values in one call, unless a symbol and one relation are already wider."""


def sdpa_relational_attention(x: RelationalInputs) -> RelationalAttentionOutput:
    """Relational attention for the identity activation, shared symbols and no dropout, without maps.

    Math: c^h_i,l = sum_j alpha^h_ij w^l_j,   sum_j alpha^h_ij <u^l_i, w^l_j> = <u^l_i, c^h_i,l>
    """
    symbols = symbol_table(x.symbols)
    batch, groups, m, _ = x.k.shape
    n_relations, p = x.u.shape[2:]
    width = symbols.shape[-1]
    u = reference.not_half(x.rel_scale * x.u)[:, None]
    (k,) = zero_padding(x.pattern, x.k, owned=x.owned)
    values: list[Tensor] = [symbols.expand(batch, groups, m, width)]
    first, relations, attended_symbols = 0, [], None
    while first < n_relations:
        room = COLUMNS - (width if first == 0 else 0)
        last = min(first + max(1, room // p), n_relations)
        values.append(x.w[:, None, :, first:last].flatten(3).expand(batch, groups, m, -1))
        (v,) = zero_padding(x.pattern, torch.cat(values, dim=-1), owned=True)
        attended, _ = attend_to_values(x.q, k, v, scale=x.scale, mask=x.pattern, bias=x.bias)
        if first == 0:
            attended_symbols, attended = attended[..., :width], attended[..., width:]
        relations.append((attended.unflatten(-1, (last - first, p)) * u[..., first:last, :]).sum(-1).to(x.u.dtype))
        values, first = [], last
    assert attended_symbols is not None  # there is a relation at least
    return x.output(attended_symbols, torch.cat(relations, dim=-1))


def _obstacle(x: RelationalInputs) -> str | None:
    if not (x.need_weights or x.dropout or x.activated() or isinstance(x.symbols, RelativeSymbols)):
        return None
    return (
        "needs need_weights=False, dropout=0 (its calls would draw different masks), relations with the activation "
        f"'identity' and shared symbols, got need_weights={x.need_weights}, dropout={x.dropout}, "
        f"{activation_name(x.rel_activation)!r} and {type(x.symbols).__name__}"
    )


def _suits(x: RelationalInputs) -> Verdict:
    causal_at_most = x.bias is None and (x.pattern.only_causal or x.pattern.hides_nothing)
    if not causal_at_most or is_open(x.n(), x.m()) or _obstacle(x) is not None:
        return UNSUITED
    return Verdict(True, "SDPA has a fused kernel for causal masks only")


SDPA = Implementation("sdpa", sdpa_relational_attention, _obstacle, _suits, 40, takes_padded=True, fused=True)
register_implementation(SDPA)
