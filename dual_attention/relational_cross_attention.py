"""Relational cross-attention (RCA) and its disentangled form, the steps before relational attention.

Shapes: B batch, H heads, N receivers, M senders, d width of the model.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from ._continuation import continue_from, leaves_cache_whole
from ._heads import check_dropout, check_positive, check_sequence, head_dim, merge_heads, split_heads
from ._symbols import Symbols, project_symbols, with_earlier
from .attention import AttentionOutput, Segments, rotate
from .cache import Cache, TokenCache
from .functional import (
    RelationalAttentionOutput,
    disentangled_relational_cross_attention,
    mask_pattern,
    relational_cross_attention,
)
from .functional.activations import Activation, activation_function
from .functional.checks import check_same_device
from .functional.masks import check_bias, last_columns

__all__ = ["DisentangledRelationalCrossAttention", "RelationalCrossAttention"]


class RelationalCrossAttention(nn.Module):
    """Relational cross-attention (RCA) of Abstractors: attention whose values are symbols.

    Math: a_i = concat_h(sum_j act(<W_q x_i, W_k y_j> / sqrt(head width)) s_j W_s^h) W_o  (arXiv 2304.00195)

    The scores are the relations: what is selected and what is compared are one. Relational attention parts the two.

    Args:
        d_model, n_heads, dropout, n_kv_heads, add_bias_kv, add_bias_out, total_n_heads,
        use_relative_positional_symbols, out_dropout, window: as
        :class:`~dual_attention.relational_attention.RelationalAttention`.
        activation: of the scores: softmax, or an elementwise one, under which masked pairs get the weight zero.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float = 0.0,
        n_kv_heads: int | None = None,
        activation: str | Activation = "softmax",
        add_bias_kv: bool = False,
        add_bias_out: bool = False,
        total_n_heads: int | None = None,
        use_relative_positional_symbols: bool = False,
        *,
        out_dropout: float | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim(d_model, n_heads, n_kv_heads, total_n_heads)
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        activation_function(activation)
        self.activation = activation
        self.use_relative_positional_symbols = use_relative_positional_symbols
        self.dropout = check_dropout("dropout", dropout)
        check_positive(window=1 if window is None else window)
        self.window = window
        self.attn_scale = 1 / math.sqrt(self.head_dim)

        self.wq = nn.Linear(d_model, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=add_bias_kv)
        self.wv = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=add_bias_kv)
        self.wo = nn.Linear(n_heads * self.head_dim, n_heads * self.head_dim, bias=add_bias_out)
        self.resid_dropout = nn.Dropout(dropout if out_dropout is None else check_dropout("out_dropout", out_dropout))

    def _kept(self) -> dict[str, tuple[int, ...]]:
        kept: dict[str, tuple[int, ...]] = {"k": (self.n_kv_heads, self.head_dim)}
        if not self.use_relative_positional_symbols:
            kept["symbols"] = (self.n_kv_heads, self.head_dim)
        return kept

    def new_cache(self, max_length: int | None = None) -> TokenCache:
        """An empty cache of keys (after RoPE) and projected symbols, unless these are relative.

        Args:
            max_length: most tokens to come; memory for them is reserved at once.
        """
        return TokenCache(self._kept(), window=self.window, max_length=max_length)

    @leaves_cache_whole
    def forward(
        self,
        x: Tensor,
        symbols: Symbols,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        y: Tensor | None = None,
        padding_mask: Tensor | None = None,
        segments: Segments | None = None,
        attn_bias: Tensor | None = None,
        need_weights: bool = False,
        cache: Cache | None = None,
    ) -> AttentionOutput:
        """Arguments as :meth:`RelationalAttention.forward
        <dual_attention.relational_attention.RelationalAttention.forward>`; returns ``(output, weights or None)``."""
        check_sequence("x", x, self.d_model, layer=self.wq)
        y = x if y is None else y
        check_sequence("y", y, self.d_model, batch=(x.shape[0],), layer=self.wk)
        check_same_device(x=x, attn_bias=attn_bias, freqs_cos=freqs_cos, freqs_sin=freqs_sin)
        past = continue_from(cache, self._kept(), window=self.window, is_causal=is_causal, segments=segments)
        batch, n, m = x.shape[0], x.shape[1], past.held + y.shape[1]
        sizes: dict[str, Any] = {"batch": batch, "heads": self.n_heads, "n": n, "m": past.senders + y.shape[1]}
        pattern = mask_pattern(
            attn_mask, padding_mask, is_causal, window=self.window, segments=segments, offset=past.senders, **sizes
        ).last_senders(m)
        bias = last_columns(check_bias(attn_bias, **sizes), m)

        q = rotate(split_heads(self.wq(x), self.n_heads), freqs_cos, freqs_sin, past.position)
        k = rotate(split_heads(self.wk(y), self.n_kv_heads), freqs_cos, freqs_sin, past.senders)
        relative = self.use_relative_positional_symbols
        sv = project_symbols(
            self.wv, symbols, self.n_kv_heads, batch=batch, n=n, m=y.shape[1], relative=relative, past=past
        )
        (k,), sv = with_earlier(past, batch, n, sv, k=k)

        attended, weights = relational_cross_attention(
            q,
            k,
            sv,
            scale=self.attn_scale,
            activation=self.activation,
            mask=pattern,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        output = self.resid_dropout(self.wo(merge_heads(attended)))
        return AttentionOutput(output, weights)


class DisentangledRelationalCrossAttention(nn.Module):
    """Disentangled RCA: attention selects, and one relation for each head scales the symbol that is carried.

    Math: a_i = concat_h(sum_j alpha^h_ij r^h_ij s_j W_s^h) W_o

    The step between RCA and relational attention, kept for ablations.

    Args:
        d_model, n_heads, dropout, n_kv_heads, rel_activation, add_bias_kv, add_bias_out, total_n_heads,
        use_relative_positional_symbols, out_dropout, window: as
        :class:`~dual_attention.relational_attention.RelationalAttention`; ``n_kv_heads`` groups the
        relation keys too.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float = 0.0,
        n_kv_heads: int | None = None,
        rel_activation: str | Activation = "identity",
        add_bias_kv: bool = False,
        add_bias_out: bool = False,
        total_n_heads: int | None = None,
        use_relative_positional_symbols: bool = False,
        *,
        out_dropout: float | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim(d_model, n_heads, n_kv_heads, total_n_heads)
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        activation_function(rel_activation)
        self.rel_activation = rel_activation
        self.use_relative_positional_symbols = use_relative_positional_symbols
        self.dropout = check_dropout("dropout", dropout)
        check_positive(window=1 if window is None else window)
        self.window = window
        self.attn_scale = 1 / math.sqrt(self.head_dim)

        width, kv_width = n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        self.wq_attn = nn.Linear(d_model, width, bias=False)
        self.wk_attn = nn.Linear(d_model, kv_width, bias=add_bias_kv)
        self.wq_rel = nn.Linear(d_model, width, bias=False)
        self.wk_rel = nn.Linear(d_model, kv_width, bias=add_bias_kv)
        self.wv = nn.Linear(d_model, kv_width, bias=add_bias_kv)
        self.wo = nn.Linear(width, width, bias=add_bias_out)
        self.resid_dropout = nn.Dropout(dropout if out_dropout is None else check_dropout("out_dropout", out_dropout))

    def _kept(self) -> dict[str, tuple[int, ...]]:
        kept: dict[str, tuple[int, ...]] = {name: (self.n_kv_heads, self.head_dim) for name in ("k", "k_rel")}
        if not self.use_relative_positional_symbols:
            kept["symbols"] = (self.n_kv_heads, self.head_dim)
        return kept

    def new_cache(self, max_length: int | None = None) -> TokenCache:
        """An empty cache of both kinds of keys and of projected symbols, unless these are relative.

        Args:
            max_length: most tokens to come; memory for them is reserved at once.
        """
        return TokenCache(self._kept(), window=self.window, max_length=max_length)

    @leaves_cache_whole
    def forward(
        self,
        x: Tensor,
        symbols: Symbols,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        y: Tensor | None = None,
        padding_mask: Tensor | None = None,
        segments: Segments | None = None,
        attn_bias: Tensor | None = None,
        need_weights: bool = False,
        cache: Cache | None = None,
    ) -> RelationalAttentionOutput:
        """Arguments as :meth:`RelationalCrossAttention.forward`; weights and relations are both ``(B, H, N, M)``."""
        check_sequence("x", x, self.d_model, layer=self.wq_attn)
        y = x if y is None else y
        check_sequence("y", y, self.d_model, batch=(x.shape[0],), layer=self.wk_attn)
        check_same_device(x=x, attn_bias=attn_bias, freqs_cos=freqs_cos, freqs_sin=freqs_sin)
        past = continue_from(cache, self._kept(), window=self.window, is_causal=is_causal, segments=segments)
        batch, n, m = x.shape[0], x.shape[1], past.held + y.shape[1]
        sizes: dict[str, Any] = {"batch": batch, "heads": self.n_heads, "n": n, "m": past.senders + y.shape[1]}
        pattern = mask_pattern(
            attn_mask, padding_mask, is_causal, window=self.window, segments=segments, offset=past.senders, **sizes
        ).last_senders(m)
        bias = last_columns(check_bias(attn_bias, **sizes), m)

        q = rotate(split_heads(self.wq_attn(x), self.n_heads), freqs_cos, freqs_sin, past.position)
        k = rotate(split_heads(self.wk_attn(y), self.n_kv_heads), freqs_cos, freqs_sin, past.senders)
        relative = self.use_relative_positional_symbols
        sv = project_symbols(
            self.wv, symbols, self.n_kv_heads, batch=batch, n=n, m=y.shape[1], relative=relative, past=past
        )
        k_rel = split_heads(self.wk_rel(y), self.n_kv_heads)
        (k, k_rel), sv = with_earlier(past, batch, n, sv, k=k, k_rel=k_rel)

        attended, weights, relations = disentangled_relational_cross_attention(
            q,
            k,
            split_heads(self.wq_rel(x), self.n_heads),
            k_rel,
            sv,
            scale=self.attn_scale,
            rel_activation=self.rel_activation,
            mask=pattern,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        output = self.resid_dropout(self.wo(merge_heads(attended)))
        return RelationalAttentionOutput(output, weights, relations)
