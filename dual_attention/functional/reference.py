"""The paper's equations, one function each: the oracle that every faster form is held against.

Written to be read. Nothing here is blocked, fused or clever, and every tensor that an equation names is built. A
function that has a faster form outside of this module shares its name.

An observer sees each step by its name and may replace it:

============================  ==========================  =========================================================
name                          shape                       what is observed
============================  ==========================  =========================================================
``visible``                   ``(B|1, H|1, N, M)`` bool   pairs that may be attended
``weights``                   ``(B, H, N, M)``            alpha, before dropout
``values``                    ``(B, H, M, d_h)``          v of sensory heads, ``y_j W_v^h``
``relations``                 ``(B, N, M, R)``            r, unmasked; padded senders have relations of a zero key
``relational_message``        ``(B, H, N, d_h)``          ``W_r^h sum_j alpha^h_ij r_ij``
``symbol_values``             ``(B|1, H, M|K, d_h)``      ``s_j W_s^h``; of relative symbols the K rows of the library
``symbol_message``            ``(B, H, N, d_h)``          ``sum_j alpha^h_ij s_j W_s^h``
============================  ==========================  =========================================================

Equations are those of "Disentangling and Integrating Relational and Sensory Information in Transformer
Architectures" (Altabaa & Lafferty 2024, arXiv 2405.16727), Algorithm 1, unless another source is named.

Shapes: B batch, H heads, G key/value heads (H a multiple of G), N receivers, M senders, D width of an attention query
or key, d_h width of a head, R relations (the paper's d_r), p width of one relation's query or key, K rows of a library
of relative symbols.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from .activations import Activation, activation_function
from .checks import HALVES, is_autocast, without_autocast
from .symbols import RelativeSymbols
from .wide import wide_products


class Observe(Protocol):
    """An observer: given a name and a tensor, it returns that tensor or another in its place.

    >>> class Names:
    ...     def __call__(self, name, x):
    ...         print(name)
    ...         return x
    ...     def watches(self, *names):
    ...         return True
    >>> q = torch.randn(1, 1, 3, 8)
    >>> output = attention(q, q, q, scale=1.0, observe=Names())
    visible
    weights
    values
    """

    def __call__(self, name: str, x: Tensor, /) -> Tensor: ...

    def watches(self, *names: str) -> bool:
        """Whether anybody watches one of these names; others need not be computed."""
        ...


class Unobserved:
    """The observer that changes nothing and watches nothing.

    >>> Unobserved().watches("weights")
    False
    """

    def __call__(self, name: str, x: Tensor, /) -> Tensor:
        return x

    def watches(self, *names: str) -> bool:
        return False


UNOBSERVED = Unobserved()


def visible_pairs(
    observe: Observe, mask: Tensor | None, bias: Tensor | None, pairs: tuple[int, ...], device: torch.device
) -> Tensor | None:
    """The mask of pairs ``(N, M)``, as the observer leaves it; without pairs hidden by a bias, if anybody watches.

    >>> mask = torch.ones(1, 1, 3, 3, dtype=torch.bool).tril()
    >>> visible_pairs(UNOBSERVED, mask, None, (3, 3), torch.device("cpu")) is mask
    True
    """
    if not observe.watches("visible"):
        return mask
    shown = without_hidden(mask, bias)
    if shown is None:
        shown = torch.ones(1, 1, *pairs, dtype=torch.bool, device=device)
    return observe("visible", shown.expand(*shown.shape[:-2], *pairs))


def symbol_values(observe: Observe, symbols: Tensor | RelativeSymbols, heads: int) -> Tensor | RelativeSymbols:
    """Projected symbols; if anybody watches them those of every head, as the observer leaves them.

    >>> symbol_values(UNOBSERVED, torch.randn(2, 4, 5, 16), heads=4).shape
    torch.Size([2, 4, 5, 16])
    """
    if not observe.watches("symbol_values"):
        return symbols
    if isinstance(symbols, RelativeSymbols):
        library = repeat_heads(symbols.library.transpose(0, 1)[None], heads)
        return symbols.with_library(observe("symbol_values", library)[0].transpose(0, 1))
    return observe("symbol_values", repeat_heads(symbols, heads))


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat each of the G key/value heads for its ``heads / G`` query heads: ``(B, G, M, D) -> (B, H, M, D)``.

    >>> repeat_heads(torch.randn(2, 2, 5, 16), heads=4).shape
    torch.Size([2, 4, 5, 16])
    """
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def inner_products(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Scaled inner products of all pairs, ``(..., N, D)`` and ``(..., M, D)`` to ``(..., N, M)``.

    Math: scale <q_i, k_j>

    A factor below one comes first: in float16 the product of long vectors overflows long before the scaled one does.

    >>> inner_products(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]), scale=0.5)
    tensor([[5.5000, 1.0000]])
    """
    if abs(scale) < 1.0:
        return (scale * q) @ k.transpose(-2, -1)
    products = q @ k.transpose(-2, -1)
    return products if scale == 1.0 else scale * products


def scores_for_softmax(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """As :func:`inner_products`, but of float16 and bfloat16 in float32, and without autocast.

    A softmax of scores beyond float16 would be NaN, and one of scores rounded to bfloat16 some hundredths off.

    >>> q = torch.ones(1, 1, 2, 4, dtype=torch.float16)
    >>> scores_for_softmax(q, q, scale=1.0).dtype
    torch.float32
    """
    if q.dtype not in HALVES and not is_autocast(q):
        return inner_products(q, k, scale)
    with without_autocast(q):
        products = wide_products(q, k.transpose(-2, -1), scale) if q.dtype == k.dtype in HALVES else None
        wide = torch.promote_types(torch.promote_types(q.dtype, k.dtype), torch.float32)
        return inner_products(q.to(wide), k.to(wide), scale) if products is None else products


def not_half(x: Tensor) -> Tensor:
    """Factors of relations: in float32 for float16, in which a relation may be infinite whose mean is not.

    >>> not_half(torch.ones(2, dtype=torch.float16)).dtype
    torch.float32
    """
    return x.float() if x.dtype == torch.float16 else x


def without_hidden(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """The mask, less the pairs that a bias of minus infinity hides.

    >>> without_hidden(None, torch.tensor([0.0, -torch.inf]))
    tensor([ True, False])
    """
    if bias is None:
        return mask
    allowed = bias != -torch.inf
    return allowed if mask is None else mask & allowed


def seen_by_a_head(mask: Tensor | None) -> Tensor | None:
    """The pairs that at least one head may attend, ``(B, H, N, M) -> (B, 1, N, M)``.

    >>> seen_by_a_head(torch.tensor([[[[True, False]], [[False, False]]]]))
    tensor([[[[ True, False]]]])
    """
    return mask if mask is None or mask.shape[1] == 1 else mask.any(dim=1, keepdim=True)


def softmax_over_senders(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis of the entries that ``mask`` allows; a row with none is all zeros, never NaN.

    >>> softmax_over_senders(torch.zeros(2, 2), torch.tensor([[True, True], [False, False]]))
    tensor([[0.5000, 0.5000],
            [0.0000, 0.0000]])
    """
    if mask is None:
        return torch.softmax(scores, dim=-1)
    weights = torch.softmax(fill_hidden(scores, mask), dim=-1)
    return weights.masked_fill(~mask, 0.0)


def fill_hidden(scores: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Minus infinity where ``mask`` hides scores, below every finite one; zeros in a row that is hidden whole.

    A softmax of minus infinity alone would be NaN, and so would its gradients.

    >>> fill_hidden(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[True, False], [False, False]]))
    tensor([[1., -inf],
            [0., 0.]])
    """
    seen = mask.any(dim=dim, keepdim=True)
    return torch.where(mask, scores, torch.zeros_like(seen, dtype=scores.dtype).masked_fill(seen, -torch.inf))


def add_bias(scores: Tensor, bias: Tensor | None) -> Tensor:
    """Biased scores, none below the lowest finite number: as a bias, that hides nothing in a row of its like.

    >>> add_bias(torch.zeros(2), torch.tensor([1.0, -torch.inf]))
    tensor([ 1.0000e+00, -3.4028e+38])
    """
    return scores if bias is None else (scores + bias).clamp_min(torch.finfo(scores.dtype).min)


def attention_weights(
    q: Tensor, k: Tensor, *, scale: float, mask: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """Selection criterion of attention, sensory or relational.

    Math: alpha^h_ij = softmax_j(scale <q^h_i, k^h_j> + bias_ij), over the senders j that the mask allows

    Args:
        q: ``(B, H, N, D)``; k: ``(B, G, M, D)``.
        mask, bias: broadcastable to ``(B, H, N, M)``. A bias of minus infinity masks.

    Returns:
        ``(B, H, N, M)``.

    >>> attention_weights(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), scale=0.5)
    tensor([[[[0.5000, 0.5000],
              [0.5000, 0.5000]]]])
    """
    scores = add_bias(scores_for_softmax(q, repeat_heads(k, q.shape[1]), scale), bias)
    return softmax_over_senders(scores, without_hidden(mask, bias)).to(q.dtype)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    observe: Observe = UNOBSERVED,
) -> tuple[Tensor, Tensor]:
    """Sensory attention.

    Math: e^h_i = sum_j alpha^h_ij v^h_j

    Returns:
        Attended values ``(B, H, N, d_h)`` and weights ``(B, H, N, M)`` (after dropout).

    >>> q, k, v = torch.randn(2, 4, 9, 16), torch.randn(2, 4, 5, 16), torch.randn(2, 4, 5, 16)
    >>> output, weights = attention(q, k, v, scale=0.25)
    >>> output.shape, weights.shape
    (torch.Size([2, 4, 9, 16]), torch.Size([2, 4, 9, 5]))
    """
    mask = visible_pairs(observe, mask, bias, (q.shape[2], k.shape[2]), q.device)
    alpha = drop(observe("weights", attention_weights(q, k, scale=scale, mask=mask, bias=bias)), dropout)
    v = repeat_heads(v, q.shape[1])
    return alpha @ (observe("values", v) if observe.watches("values") else v), alpha


def relations(
    u: Tensor,
    w: Tensor,
    *,
    scale: float,
    activation: str | Activation = "identity",
    mask: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Relations between receivers and senders.

    Math: r_ij = (act(scale <u^l_i, w^l_j>))_l,  u^l = x W_q,l^rel,  w^l = y W_k,l^rel

    Args:
        u: relation queries, ``(B, N, R, p)``; w: relation keys, ``(B, M, R, p)``.
        activation: elementwise function or its name; ``"softmax"`` normalises over the senders.
        mask, bias: of the attention scores, broadcastable to ``(B, H, N, M)``; used by ``"softmax"`` only, since hidden
            senders would otherwise show through its normaliser. All heads share the relations, so it leaves out the
            senders that are hidden from every head, by the mask or by minus infinity.

    Returns:
        ``(B, N, M, R)``.

    >>> relations(torch.randn(2, 9, 8, 4), torch.randn(2, 5, 8, 4), scale=0.5).shape
    torch.Size([2, 9, 5, 8])
    """
    u, w = u.transpose(1, 2), w.transpose(1, 2)
    if activation == "softmax":
        seen = seen_by_a_head(without_hidden(mask, bias))
        values = softmax_over_senders(scores_for_softmax(u, w, scale), seen).to(u.dtype)
    else:
        values = activation_function(activation)(inner_products(u, w, scale))
    return values.permute(0, 2, 3, 1)


def attend_to_symbols(alpha: Tensor, symbols: Tensor | RelativeSymbols) -> Tensor:
    """Symbols of the senders, or of the pairs, under the attention weights.

    Math: sum_j alpha^h_ij (s_j W_s^h), or sum_j alpha^h_ij (s_ij W_s^h)

    Args:
        alpha: ``(B, H, N, M)``.
        symbols: projected symbols, ``(B or 1, G, M, d_h)``; or relative ones with a library of shape ``(K, G, d_h)``.

    Returns:
        ``(B, H, N, d_h)``.

    >>> attend_to_symbols(torch.rand(2, 4, 9, 5), torch.randn(2, 4, 5, 16)).shape
    torch.Size([2, 4, 9, 16])
    """
    heads = alpha.shape[1]
    if isinstance(symbols, RelativeSymbols):
        of_pairs = symbols.dense().repeat_interleave(heads // symbols.library.shape[1], dim=2)
        return torch.einsum("bhnm,nmhd->bhnd", alpha, of_pairs)
    return alpha @ repeat_heads(symbols, heads)


def relational_attention(
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
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    observe: Observe = UNOBSERVED,
) -> tuple[Tensor, Tensor, Tensor]:
    """Relational attention.

    Math: a^h_i = sum_j alpha^h_ij (W_r^h r_ij + s_j W_s^h)

    Args:
        q: ``(B, H, N, D)``; k: ``(B, G, M, D)``; u: ``(B, N, R, p)``; w: ``(B, M, R, p)``.
        symbols: as in :func:`attend_to_symbols`.
        w_r: ``(H, d_h, R)``.

    Returns:
        Attended messages ``(B, H, N, d_h)``, weights ``(B, H, N, M)`` (after dropout), relations ``(B, N, M, R)``.

    >>> q, symbols = torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)
    >>> u, w_r = torch.randn(2, 9, 8, 4), torch.randn(4, 16, 8)
    >>> output, weights, relations = relational_attention(q, q, u, u, symbols, w_r, scale=0.25, rel_scale=0.5)
    >>> output.shape, weights.shape, relations.shape
    (torch.Size([2, 4, 9, 16]), torch.Size([2, 4, 9, 9]), torch.Size([2, 9, 9, 8]))
    """
    mask = visible_pairs(observe, mask, bias, (q.shape[2], k.shape[2]), q.device)
    alpha = drop(observe("weights", attention_weights(q, k, scale=scale, mask=mask, bias=bias)), dropout)
    kind = {"scale": rel_scale, "activation": rel_activation}
    r = observe("relations", relations(not_half(u), not_half(w), **kind, mask=mask, bias=bias))
    messages = torch.einsum("bnmr,hdr->bhnmd", r, not_half(w_r))
    relational = torch.einsum("bhnm,bhnmd->bhnd", not_half(alpha), messages).to(alpha.dtype)
    relational = observe("relational_message", relational)
    symbols = symbol_values(observe, symbols, q.shape[1])
    return relational + observe("symbol_message", attend_to_symbols(alpha, symbols)), alpha, r.to(u.dtype)


def relational_cross_attention(
    q: Tensor,
    k: Tensor,
    symbols: Tensor | RelativeSymbols,
    *,
    scale: float,
    activation: str | Activation = "softmax",
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    observe: Observe = UNOBSERVED,
) -> tuple[Tensor, Tensor]:
    """Relational cross-attention (RCA) of Abstractors (Altabaa et al. 2024, arXiv 2304.00195).

    Math: a^h_i = sum_j act(scale <q^h_i, k^h_j> + bias_ij) s_j W_s^h

    The activated scores are the relations.

    Returns:
        Attended symbols ``(B, H, N, d_h)`` and weights ``(B, H, N, M)`` (after dropout).

    >>> q, symbols = torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)
    >>> output, weights = relational_cross_attention(q, q, symbols, scale=0.25)
    >>> output.shape, weights.shape
    (torch.Size([2, 4, 9, 16]), torch.Size([2, 4, 9, 9]))
    """
    mask = visible_pairs(observe, mask, bias, (q.shape[2], k.shape[2]), q.device)
    weights = observe("weights", activated_scores(q, k, scale=scale, activation=activation, mask=mask, bias=bias))
    weights = drop(weights, dropout)
    symbols = symbol_values(observe, symbols, q.shape[1])
    return observe("symbol_message", attend_to_symbols(weights, symbols)), weights


def activated_scores(
    q: Tensor,
    k: Tensor,
    *,
    scale: float,
    activation: str | Activation,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Weights of RCA, ``(B, H, N, M)``; under an elementwise activation those of masked pairs are zero.

    >>> q = torch.randn(2, 4, 9, 16)
    >>> activated_scores(q, q, scale=0.25, activation="relu").shape
    torch.Size([2, 4, 9, 9])
    """
    if activation == "softmax":
        return attention_weights(q, k, scale=scale, mask=mask, bias=bias)
    scores = inner_products(q, repeat_heads(k, q.shape[1]), scale)
    if bias is not None:
        # Not every activation of minus infinity has a gradient.
        scores = (scores + bias).masked_fill(bias == -torch.inf, 0.0)
        mask = without_hidden(mask, bias)
    weights = activation_function(activation)(scores)
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


def disentangled_relational_cross_attention(
    q: Tensor,
    k: Tensor,
    q_rel: Tensor,
    k_rel: Tensor,
    symbols: Tensor | RelativeSymbols,
    *,
    scale: float,
    rel_activation: str | Activation = "identity",
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    observe: Observe = UNOBSERVED,
) -> tuple[Tensor, Tensor, Tensor]:
    """Disentangled RCA: one relation for each head scales the symbol that the head selects.

    Math: a^h_i = sum_j alpha^h_ij r^h_ij s_j W_s^h,  r^h_ij = act(scale <q_rel^h_i, k_rel^h_j>)

    Args:
        q, q_rel: ``(B, H, N, d_h)``; k, k_rel: ``(B, G, M, d_h)``.

    Returns:
        Attended symbols ``(B, H, N, d_h)``, weights alpha and relations, both ``(B, H, N, M)``. Dropout acts on the
        product of the two, which is not returned. An observer sees the relations as ``(B, N, M, H)``.

    >>> q, symbols = torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)
    >>> output, weights, relations = disentangled_relational_cross_attention(q, q, q, q, symbols, scale=0.25)
    >>> output.shape, weights.shape, relations.shape
    (torch.Size([2, 4, 9, 16]), torch.Size([2, 4, 9, 9]), torch.Size([2, 4, 9, 9]))
    """
    mask = visible_pairs(observe, mask, bias, (q.shape[2], k.shape[2]), q.device)
    alpha = observe("weights", attention_weights(q, k, scale=scale, mask=mask, bias=bias))
    r = relations_of_heads(q_rel, k_rel, scale=scale, activation=rel_activation, mask=mask, bias=bias)
    r = observe("relations", r.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    symbols = symbol_values(observe, symbols, q.shape[1])
    return observe("symbol_message", attend_to_symbols(drop(alpha * r, dropout), symbols)), alpha, r


def relations_of_heads(
    q: Tensor,
    k: Tensor,
    *,
    scale: float,
    activation: str | Activation,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Relations of disentangled RCA, ``(B, H, N, M)``; one for each head; mask and bias as in :func:`relations`.

    >>> q = torch.randn(2, 4, 9, 16)
    >>> relations_of_heads(q, q, scale=0.25, activation="identity").shape
    torch.Size([2, 4, 9, 9])
    """
    if activation == "softmax":
        return attention_weights(q, k, scale=scale, mask=without_hidden(mask, bias))
    return activation_function(activation)(inner_products(q, repeat_heads(k, q.shape[1]), scale))
