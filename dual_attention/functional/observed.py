"""Attention by readable steps, each of which an observer sees and may replace.

The operations are those of the same names without ``observed_``, and agree with them to rounding. They build the
weights, and relations if anybody watches them or they are activated.

Shapes: as in :mod:`.reference`.

============================  ==========================  =========================================================
name                          shape                       what is observed
============================  ==========================  =========================================================
``visible``                   ``(B|1, H|1, N, M)`` bool   pairs that may be attended
``weights``                   ``(B, H, N, M)``            alpha, before dropout
``relations``                 ``(B, N, M, R)``            r, unmasked; padded senders have relations of a zero key
``relational_message``        ``(B, H, N, d_h)``          ``W_r^h sum_j alpha^h_ij r_ij``
``symbol_values``             ``(B|1, H, M|K, d_h)``      ``s_j W_s^h``; of relative symbols the K rows of the library
``symbol_message``            ``(B, H, N, d_h)``          ``sum_j alpha^h_ij s_j W_s^h``
============================  ==========================  =========================================================
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from . import reference
from .activations import Activation, activation_function
from .attention import checked_attention
from .masks import MaskPattern
from .padding import zero_padding
from .relational.inputs import RelationalAttentionOutput, check_inputs
from .relational.relative_symbols import attend_to_symbols
from .relational.whole import attend_to_relations, attention_weights
from .relational_cross import checked_relational_cross
from .symbols import RelativeSymbols


class Observe(Protocol):
    """An observer: given a name and a tensor, it returns that tensor or another in its place."""

    def __call__(self, name: str, x: Tensor, /) -> Tensor: ...

    def watches(self, *names: str) -> bool:
        """Whether anybody watches one of these names; others need not be computed."""
        ...


def observed_attention(
    observe: Observe,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Tensor | MaskPattern | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """As :func:`.attention.attention`; ``visible`` and ``weights`` are observed."""
    pattern, bias = checked_attention(q, k, v, mask, bias, scale, dropout)
    k, v = zero_padding(pattern, k, v)
    visible = _visible(observe, pattern, bias, q)
    alpha = drop(observe("weights", attention_weights(q, k, scale=scale, mask=visible, bias=bias)), dropout)
    return alpha @ reference.repeat_heads(v, q.shape[1]), alpha if need_weights else None


def observed_relational_attention(
    observe: Observe,
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    w_r: Tensor,
    *,
    scale: float,
    rel_scale: float,
    rel_activation: str | Activation = "identity",
    mask: Tensor | MaskPattern | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> RelationalAttentionOutput:
    """As :func:`.relational.api.relational_attention`; all names are observed."""
    x = check_inputs(
        q, k, u, w, symbols, w_r, scale, rel_scale, rel_activation, mask, bias, dropout, need_weights
    ).zeroed()
    visible = _visible(observe, x.pattern, x.bias, q)
    alpha = drop(observe("weights", attention_weights(q, x.k, scale=scale, mask=visible, bias=x.bias)), dropout)
    r = None
    if x.activated or need_weights or observe.watches("relations"):
        how = {"scale": rel_scale, "activation": x.rel_activation, "mask": visible, "bias": x.bias}
        r = observe("relations", reference.relations(u, x.w, **how))
        received = torch.einsum("bhnm,bnmr->bhnr", alpha, r)
    else:
        received = attend_to_relations(alpha, u, x.w, rel_scale)
    relational = observe("relational_message", received @ w_r.transpose(-2, -1))
    attended = relational + observed_symbol_message(observe, alpha, x.symbols)
    if r is None or not need_weights:
        return RelationalAttentionOutput(attended)
    return RelationalAttentionOutput(attended, alpha, _with_padded(x.pattern, r, x.with_padded(r), axis=2))


def observed_relational_cross_attention(
    observe: Observe,
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
) -> tuple[Tensor, Tensor | None]:
    """As :func:`.relational_cross.relational_cross_attention`; there are no relations beside the weights."""
    pattern, bias = checked_relational_cross((q,), (k,), symbols, mask, bias, scale, dropout)
    (k,) = zero_padding(pattern, k)
    visible = _visible(observe, pattern, bias, q)
    weights = reference.activated_scores(q, k, scale=scale, activation=activation, mask=visible, bias=bias)
    weights = drop(observe("weights", weights), dropout)
    return observed_symbol_message(observe, weights, _real(pattern, symbols)), weights if need_weights else None


def observed_disentangled_relational_cross_attention(
    observe: Observe,
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
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """As :func:`.relational_cross.disentangled_relational_cross_attention`.

    Relations, one for each head, are observed as ``(B, N, M, H)``; the symbol message is all that is carried.
    """
    pattern, bias = checked_relational_cross((q, q_rel), (k, k_rel), symbols, mask, bias, scale, dropout)
    if rel_activation != "softmax":
        rel_activation = activation_function(rel_activation, "rel_activation")
    k, real_keys = zero_padding(pattern, k, k_rel)
    visible = _visible(observe, pattern, bias, q)
    alpha = observe("weights", reference.attention_weights(q, k, scale=scale, mask=visible, bias=bias))
    how = {"scale": scale, "activation": rel_activation, "mask": visible, "bias": bias}
    r = reference.relations_of_heads(q_rel, real_keys, **how)
    r = observe("relations", r.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    attended = observed_symbol_message(observe, drop(alpha * r, dropout), _real(pattern, symbols))
    if not need_weights:
        return attended, None, None
    return attended, alpha, _with_padded(pattern, r, reference.relations_of_heads(q_rel, k_rel, **how), axis=3)


def _visible(observe: Observe, pattern: MaskPattern, bias: Tensor | None, q: Tensor) -> Tensor | None:
    return observed_visible(observe, pattern.dense(q.device), bias, (pattern.n, pattern.m), q.device)


def observed_visible(
    observe: Observe, mask: Tensor | None, bias: Tensor | None, pairs: tuple[int, ...], device: torch.device
) -> Tensor | None:
    """The mask of pairs ``(N, M)``, as the observer leaves it; without pairs hidden by a bias, if anybody watches."""
    if not observe.watches("visible"):
        return mask
    shown = reference.without_hidden(mask, bias)
    if shown is None:
        shown = torch.ones(1, 1, *pairs, dtype=torch.bool, device=device)
    return observe("visible", shown.expand(*shown.shape[:-2], *pairs))


def observed_symbol_message(observe: Observe, weights: Tensor, symbols: Tensor | RelativeSymbols) -> Tensor:
    """Symbols under weights ``(B, H, N, M)``, with every head's own projected symbols; both are observed."""
    heads = weights.shape[1]
    if isinstance(symbols, RelativeSymbols):
        library = reference.repeat_heads(symbols.library.transpose(0, 1)[None], heads)
        of_heads: Tensor | RelativeSymbols = symbols.with_library(observe("symbol_values", library)[0].transpose(0, 1))
    else:
        of_heads = observe("symbol_values", reference.repeat_heads(symbols, heads))
    return observe("symbol_message", attend_to_symbols(weights, of_heads))


def _with_padded(pattern: MaskPattern, relations: Tensor, given: Tensor, axis: int) -> Tensor:
    """Relations as the operations return them: those of padded senders, on this axis, as they were given."""
    if pattern.padding is None:
        return relations
    shape = [1] * relations.dim()
    shape[0], shape[axis] = pattern.padding.shape
    return relations.where(pattern.padding.view(shape), given)


def _real(pattern: MaskPattern, symbols: Tensor | RelativeSymbols) -> Tensor | RelativeSymbols:
    """Symbols with zeros for padded senders."""
    return zero_padding(pattern, symbols)[0] if isinstance(symbols, Tensor) else symbols
