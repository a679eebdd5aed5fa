"""Sensory attention: multi-head attention that carries the senders' features.

Shapes: B batch, H heads, N receivers (queries), M senders (keys), d width of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ._layers.cache import Cache, ContextCache
from ._layers.call import NO_PAST, Given, HeadsCall, continue_from, continue_to_attend, transaction
from ._layers.heads import Heads, split_heads
from ._layers.inputs import check_boolean, check_sequence
from ._layers.packed import are_plain
from .functional.activations import Activation, activation_function
from .functional.attention import attend_to_values, attention
from .functional.checks import MaybeNone, check_same_device
from .functional.masks import MaskPattern, Segments
from .functional.padding import zero_padding
from .positional_encoding import RelativePositionalEncoding

__all__ = ["Attention", "AttentionOutput"]


class AttentionOutput(NamedTuple):
    """Output of an attention layer.

    Attributes:
        output: ``(B, N, H * head width)``, or ``out_dim`` features.
        weights: ``(B, H, N, M)`` after dropout, or None if not asked for.

    >>> layer, x = Attention(d_model=64, n_heads=4), torch.randn(2, 9, 64)
    >>> output, weights = layer(x, x, x)
    >>> output.shape, weights
    (torch.Size([2, 9, 64]), None)
    """

    output: Tensor
    weights: Tensor | MaybeNone = None


class Attention(Heads):
    """Multi-head attention with grouped key/value heads (Vaswani et al. 2017; Ainslie et al. 2023).

    Args:
        d_model: width of the model.
        n_heads: query heads.
        dropout: rate on the attention weights, and on the output unless ``out_dropout`` is given.
        others: the options that :class:`~dual_attention.AttentionConfig` explains.

    >>> layer, x = Attention(d_model=64, n_heads=4), torch.randn(2, 9, 64)
    >>> out, weights = layer(x, x, x, is_causal=True, need_weights=True)
    >>> out.shape, weights.shape
    (torch.Size([2, 9, 64]), torch.Size([2, 4, 9, 9]))
    """

    _observed = "visible", "weights", "values", "head_output"

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float = 0.0,
        key_dim: int | None = None,
        n_kv_heads: int | None = None,
        add_bias_kv: bool = False,
        add_bias_out: bool = False,
        total_n_heads: int | None = None,
        *,
        attn_scale: float | None = None,
        out_dropout: float | None = None,
        shaw_max_rel_pos: int | None = None,
        shaw_values: bool = False,
        window: int | None = None,
        output_gate: str | Activation | None = None,
        add_bias_q: bool = False,
        out_dim: int | None = None,
    ) -> None:
        biases = {"add_bias_q": add_bias_q, "add_bias_kv": add_bias_kv, "add_bias_out": add_bias_out}
        check_boolean(**biases, shaw_values=shaw_values)
        super().__init__(d_model, n_heads, dropout, n_kv_heads, total_n_heads, window, key_dim, attn_scale)
        self.wq = nn.Linear(d_model, n_heads * self.key_dim, bias=add_bias_q)
        self.wk = nn.Linear(d_model, self.n_kv_heads * self.key_dim, bias=add_bias_kv)
        self._add_output(add_bias_kv, add_bias_out, out_dropout, out_dim)
        self.rel_pos_values = None
        if shaw_max_rel_pos is not None:
            self.rel_pos_keys = RelativePositionalEncoding(self.key_dim, shaw_max_rel_pos)
            if shaw_values:
                self.rel_pos_values = RelativePositionalEncoding(self.head_dim, shaw_max_rel_pos)
        elif shaw_values:
            raise ValueError("shaw_values: needs shaw_max_rel_pos")
        self._gate = None if output_gate is None else activation_function(output_gate, "output_gate")
        self.wg = None if output_gate is None else nn.Linear(d_model, n_heads * self.head_dim, bias=False)

    def _kept(self) -> dict[str, tuple[int, ...]]:
        return {"k": (self.n_kv_heads, self.key_dim), "v": (self.n_kv_heads, self.head_dim)}

    def new_context_cache(self) -> ContextCache:
        """An empty cache of the keys and values of a context, for cross-attention."""
        return ContextCache(self._kept())

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        attn_mask: Tensor | MaskPattern | None = None,
        is_causal: bool = False,
        need_weights: bool = False,
        *,
        padding_mask: Tensor | None = None,
        segments: Segments | None = None,
        attn_bias: Tensor | None = None,
        cache: Cache | None = None,
        projected: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> AttentionOutput:
        """Attend from each query to the keys.

        With a cache from ``new_cache``, ``query``, ``key`` and ``value`` are new tokens, N = M, after t earlier
        ones. They see those as well, in order: ``is_causal`` is needed, masks and biases cover the t + M senders, and
        RoPE tables have rows for all t + M tokens. With one from :meth:`new_context_cache`, keys and values are
        projected in the first call and kept; what later calls give for ``key`` and ``value`` is not read. A call that
        fails with a ``TypeError`` or ``ValueError`` leaves the cache as it was.

        Args:
            query: ``(B, N, d)``; key, value: ``(B, M, d)``.
            freqs_cos, freqs_sin: RoPE tables ``(length, key_dim / 2)``, see :class:`RotaryPositionalEncoding`, or
                ``(B, length, key_dim / 2)`` if positions differ between examples.
            attn_mask: boolean, ``(N, M)`` or broadcastable to ``(B, H, N, M)``; True = may be attended. Or a
                :class:`~dual_attention.functional.MaskPattern` built once for several layers.
            is_causal: receivers see no later sender; combined with the masks if they are given too.
            need_weights: also return the attention weights; they are then built rather than fused away. With a window
                and a cache, they are those of the senders still held.
            padding_mask: boolean, ``(B, M)``; True = a real sender.
            segments: integers ``(B or 1, N)`` of sequences packed into one, which do not see each other; with another
                sequence of senders, a pair of such tensors.
            attn_bias: floating point, broadcastable to ``(B, H, N, M)``, added to the scaled scores.
            cache: of earlier tokens or of a context; these tokens are appended.
            projected: queries, keys and values of the new tokens, ``(B, heads, length, width)``, with RoPE, if they are
                there already: :class:`~dual_attention.DualAttention` makes those of all heads at once.
        """
        given = Given(attn_mask, padding_mask, is_causal, segments, attn_bias, freqs_cos, freqs_sin)
        call = self._begin(query, key, value, given, cache)

        # alpha^h_ij = softmax_j(<x_i W_q^h, y_j W_k^h> / sqrt(D)),  e^h_i = sum_j alpha^h_ij y_j W_v^h
        new = {}
        if projected is not None:
            q, new["k"], new["v"] = projected
        else:
            q = call.rotate_receivers(split_heads(self.wq(query), self.n_heads))
        if projected is None and not _holds_context(cache):
            new["k"] = call.rotate_senders(split_heads(self.wk(key), self.n_kv_heads))
            new["v"] = split_heads(self.wv(value), self.n_kv_heads)
        with transaction(cache):
            k, v = new.values() if cache is None else call.past.append(call.batch, call.n, **new)
            # What stands in a projection's place, an adapter for instance, may return another type or width.
            alike = q.dtype == k.dtype == v.dtype and q.shape[3] == k.shape[3]
            if alike and call.pattern.padding is not None:
                owned = cache is None and are_plain(self.wk, self.wv)
                k, v = zero_padding(call.pattern, k, v, owned=owned)
            how = {**call.how(), "scale": self.attn_scale, "bias": self._bias(call, q, q.dtype)}
            builds = need_weights or self.rel_pos_values is not None
            attended, weights = (attend_to_values if alike else attention)(q, k, v, need_weights=builds, **how)
            if self.rel_pos_values is not None and weights is not None:
                # sum_j alpha_ij a_{clip(j - i)}
                vectors = self.rel_pos_values(*weights.shape[-2:], offset=call.past.offset())
                attended = attended + torch.einsum("bhnm,nmd->bhnd", weights, vectors)
            if self.wg is not None and self._gate is not None:
                attended = attended * split_heads(self._gate(self.wg(query)), self.n_heads)
            output = self._output(attended, call)
        return AttentionOutput(output, weights if need_weights else None)

    def _begin(self, query: Tensor, key: Tensor, value: Tensor, given: Given, cache: Cache | None) -> HeadsCall:
        """The state of a call, after all that it was given has been checked."""
        check_sequence("query", query, self.d_model, layer=self.wq)
        for name, x in (("key", key), ("value", value)):
            if x is not query:
                layer = None if _holds_context(cache) else self.wv
                check_sequence(name, x, self.d_model, batch=(query.shape[0],), layer=layer)
        *_, bias, cos, sin = given
        if not (bias is None and cos is None and sin is None):
            check_same_device(query=query, attn_bias=bias, freqs_cos=cos, freqs_sin=sin)
        if key.shape[1] != value.shape[1]:
            raise ValueError(f"value: expected {key.shape[1]} senders as in key, got {value.shape[1]}")
        past = NO_PAST
        if isinstance(cache, ContextCache):
            ordered = given.ordered() or self.window is not None
            past = continue_to_attend(cache, self._kept(), key, ordered=ordered)
        elif cache is not None:
            past = continue_from(cache, self._kept(), window=self.window, given=given)
        return self._call(query, key.shape[1], given, past, crosses=key is not query)


def _holds_context(cache: Cache | None) -> bool:
    """Whether the keys and values of a context are held, so that what is given for them is not read."""
    return isinstance(cache, ContextCache) and cache.filled
