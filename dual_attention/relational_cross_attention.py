"""Relational cross-attention (RCA) and its disentangled form, the steps before relational attention.

Shapes: B batch, H heads, N receivers, M senders, d width of the model.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ._layers.cache import Cache
from ._layers.calls import typed_as
from ._layers.continuation import Masks, transactional
from ._layers.heads import merge_heads, split_heads
from ._layers.inputs import check_dropout
from ._layers.relational_heads import RelationalHeads
from ._layers.symbols import Symbols
from .attention import AttentionOutput, rotate
from .functional import RelationalAttentionOutput, disentangled_relational_cross_attention, relational_cross_attention
from .functional.activations import Activation, activation_function
from .functional.masks import MaskPattern, Segments

__all__ = ["DisentangledRelationalCrossAttention", "RelationalCrossAttention"]


class RelationalCrossAttention(RelationalHeads):
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
        super().__init__(d_model, n_heads, dropout, n_kv_heads, total_n_heads, use_relative_positional_symbols, window)
        activation_function(activation)
        self.activation = activation
        self.attn_scale = 1 / math.sqrt(self.head_dim)

        self.wq = nn.Linear(d_model, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=add_bias_kv)
        self.wv = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=add_bias_kv)
        self.wo = nn.Linear(n_heads * self.head_dim, n_heads * self.head_dim, bias=add_bias_out)
        self.resid_dropout = nn.Dropout(dropout if out_dropout is None else check_dropout("out_dropout", out_dropout))

    def _kept_keys(self) -> dict[str, tuple[int, ...]]:
        return {"k": (self.n_kv_heads, self.head_dim)}

    @transactional
    def forward(
        self,
        x: Tensor,
        symbols: Symbols,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        attn_mask: Tensor | MaskPattern | None = None,
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
        masks = Masks(attn_mask, padding_mask, is_causal, segments, attn_bias)
        received = self._receive(x, y, masks, cache, (freqs_cos, freqs_sin))
        y, past, pattern, bias = received
        q = rotate(split_heads(self.wq(x), self.n_heads), freqs_cos, freqs_sin, past.position)
        k = rotate(split_heads(self.wk(y), self.n_kv_heads), freqs_cos, freqs_sin, past.senders)
        (k,), sv = self._with_symbols(received, symbols, k=k)

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

    if TYPE_CHECKING:

        @typed_as(forward)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class DisentangledRelationalCrossAttention(RelationalHeads):
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
        super().__init__(d_model, n_heads, dropout, n_kv_heads, total_n_heads, use_relative_positional_symbols, window)
        activation_function(rel_activation)
        self.rel_activation = rel_activation
        self.attn_scale = 1 / math.sqrt(self.head_dim)

        width, kv_width = n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        self.wq_attn = nn.Linear(d_model, width, bias=False)
        self.wk_attn = nn.Linear(d_model, kv_width, bias=add_bias_kv)
        self.wq_rel = nn.Linear(d_model, width, bias=False)
        self.wk_rel = nn.Linear(d_model, kv_width, bias=add_bias_kv)
        self.wv = nn.Linear(d_model, kv_width, bias=add_bias_kv)
        self.wo = nn.Linear(width, width, bias=add_bias_out)
        self.resid_dropout = nn.Dropout(dropout if out_dropout is None else check_dropout("out_dropout", out_dropout))

    def _kept_keys(self) -> dict[str, tuple[int, ...]]:
        return {name: (self.n_kv_heads, self.head_dim) for name in ("k", "k_rel")}

    @transactional
    def forward(
        self,
        x: Tensor,
        symbols: Symbols,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        attn_mask: Tensor | MaskPattern | None = None,
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
        masks = Masks(attn_mask, padding_mask, is_causal, segments, attn_bias)
        received = self._receive(x, y, masks, cache, (freqs_cos, freqs_sin))
        y, past, pattern, bias = received
        q = rotate(split_heads(self.wq_attn(x), self.n_heads), freqs_cos, freqs_sin, past.position)
        k = rotate(split_heads(self.wk_attn(y), self.n_kv_heads), freqs_cos, freqs_sin, past.senders)
        (k, k_rel), sv = self._with_symbols(received, symbols, k=k, k_rel=split_heads(self.wk_rel(y), self.n_kv_heads))

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

    if TYPE_CHECKING:

        @typed_as(forward)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
