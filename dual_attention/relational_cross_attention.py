"""Relational cross-attention (RCA) and its disentangled form, the steps before relational attention.

Shapes: B batch, H heads, N receivers, M senders, d width of the model.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ._layers.cache import Cache
from ._layers.call import Given, transaction
from ._layers.heads import split_heads
from ._layers.inputs import check_boolean
from ._layers.symbols import SymbolHeads, Symbols, kept_symbols
from .attention import AttentionOutput
from .functional import (
    MaskPattern,
    RelationalAttentionOutput,
    disentangled_relational_cross_attention,
    relational_cross_attention,
)
from .functional.activations import Activation, activation_function
from .functional.masks import Segments

__all__ = ["DisentangledRelationalCrossAttention", "RelationalCrossAttention"]


class RelationalCrossAttention(SymbolHeads):
    """Relational cross-attention (RCA) of Abstractors: attention whose values are symbols.

    Math: a_i = concat_h(sum_j act(<W_q x_i, W_k y_j> / sqrt(head width)) s_j W_s^h) W_o  (arXiv 2304.00195)

    The scores are the relations: what is selected and what is compared are one. Relational attention parts the two.

    Args:
        activation: of the scores: softmax, or an elementwise one, under which masked pairs get the weight zero.
        others: as :class:`~dual_attention.relational_attention.RelationalAttention`.

    >>> layer = RelationalCrossAttention(d_model=64, n_heads=4)
    >>> layer(torch.randn(2, 9, 64), symbols=torch.randn(2, 9, 64)).output.shape
    torch.Size([2, 9, 64])
    """

    _observed = "visible", "symbols", "weights", "symbol_values", "symbol_message", "head_output"

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
        add_bias_q: bool = False,
        out_dim: int | None = None,
    ) -> None:
        check_boolean(add_bias_q=add_bias_q, add_bias_kv=add_bias_kv, add_bias_out=add_bias_out)
        relative = use_relative_positional_symbols
        super().__init__(relative, d_model, n_heads, dropout, n_kv_heads, total_n_heads, window)
        activation_function(activation)
        self.activation = activation
        self.wq = nn.Linear(d_model, n_heads * self.head_dim, bias=add_bias_q)
        self.wk = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=add_bias_kv)
        self._add_output(add_bias_kv, add_bias_out, out_dropout, out_dim)

    def selecting(self) -> tuple[nn.Linear, nn.Linear]:
        """The projections of the attention's queries and keys."""
        return self.wq, self.wk

    def _kept(self) -> dict[str, tuple[int, ...]]:
        keys = {"k": (self.n_kv_heads, self.head_dim)}
        return keys | kept_symbols(self.use_relative_positional_symbols, self.n_kv_heads, self.head_dim)

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
        projections: tuple[nn.Module, nn.Module] | None = None,
    ) -> AttentionOutput:
        """Attend from receivers ``x`` to senders ``y``; arguments and errors as :meth:`.RelationalAttention.forward`.

        Returns:
            ``(output, weights)``: ``(B, N, H * head width)`` and ``(B, H, N, M)``, None unless ``need_weights``.
        """
        given = Given(attn_mask, padding_mask, is_causal, segments, attn_bias, freqs_cos, freqs_sin)
        y, call = self._begin(x, y, given, cache)

        # Whom to listen to and what is compared are one: r^h_ij = act(<x_i W_q^h, y_j W_k^h> / sqrt(head width))
        wq, wk = (self.wq, self.wk) if projections is None else projections
        q = call.rotate_receivers(split_heads(wq(x), self.n_heads))
        k = call.rotate_senders(split_heads(wk(y), self.n_kv_heads))

        with transaction(cache):
            # Who it is: s_j W_s^h
            s = self._project_symbols(symbols, call)
            k, s = call.with_earlier(k=k, symbols=s)

            # a^h_i = sum_j r^h_ij s_j W_s^h
            kind: dict[str, Any] = {"scale": self.attn_scale, "activation": self.activation}
            attended, weights = relational_cross_attention(q, k, s, need_weights=need_weights, **kind, **call.how())
            output = self._output(attended, call)
        return AttentionOutput(output, weights)


class DisentangledRelationalCrossAttention(SymbolHeads):
    """Disentangled RCA: attention selects, and one relation for each head scales the symbol that is carried.

    Math: a_i = concat_h(sum_j alpha^h_ij r^h_ij s_j W_s^h) W_o

    The step between RCA and relational attention, kept for ablations.

    Args:
        n_kv_heads: heads of symbols and of the keys of attention and relations; by default ``n_heads``.
        others: as :class:`~dual_attention.relational_attention.RelationalAttention`.

    >>> layer = DisentangledRelationalCrossAttention(d_model=64, n_heads=4)
    >>> layer(torch.randn(2, 9, 64), symbols=torch.randn(2, 9, 64), need_weights=True)
    RelationalAttentionOutput(output=Tensor(2, 9, 64), weights=Tensor(2, 4, 9, 9), relations=Tensor(2, 4, 9, 9))
    """

    _observed = "visible", "symbols", "weights", "relations", "symbol_values", "symbol_message", "head_output"

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
        add_bias_q: bool = False,
        out_dim: int | None = None,
    ) -> None:
        check_boolean(add_bias_q=add_bias_q, add_bias_kv=add_bias_kv, add_bias_out=add_bias_out)
        relative = use_relative_positional_symbols
        super().__init__(relative, d_model, n_heads, dropout, n_kv_heads, total_n_heads, window)
        activation_function(rel_activation, "rel_activation")
        self.rel_activation = rel_activation
        width, kv_width = n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        self.wq_attn = nn.Linear(d_model, width, bias=add_bias_q)
        self.wk_attn = nn.Linear(d_model, kv_width, bias=add_bias_kv)
        self.wq_rel = nn.Linear(d_model, width, bias=False)
        self.wk_rel = nn.Linear(d_model, kv_width, bias=add_bias_kv)
        self._add_output(add_bias_kv, add_bias_out, out_dropout, out_dim)

    def selecting(self) -> tuple[nn.Linear, nn.Linear]:
        """The projections of the attention's queries and keys."""
        return self.wq_attn, self.wk_attn

    def _kept(self) -> dict[str, tuple[int, ...]]:
        keys = {name: (self.n_kv_heads, self.head_dim) for name in ("k", "k_rel")}
        return keys | kept_symbols(self.use_relative_positional_symbols, self.n_kv_heads, self.head_dim)

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
        projections: tuple[nn.Module, nn.Module] | None = None,
    ) -> RelationalAttentionOutput:
        """Attend from receivers ``x`` to senders ``y``; arguments and errors as :meth:`.RelationalAttention.forward`.

        Returns:
            ``(output, weights, relations)``: ``(B, N, H * head width)``, and both maps ``(B, H, N, M)`` or None.
        """
        given = Given(attn_mask, padding_mask, is_causal, segments, attn_bias, freqs_cos, freqs_sin)
        y, call = self._begin(x, y, given, cache)

        # Whom to listen to: alpha^h_ij = softmax_j(<x_i W_q^h, y_j W_k^h> / sqrt(head width))
        wq_attn, wk_attn = (self.wq_attn, self.wk_attn) if projections is None else projections
        q = call.rotate_receivers(split_heads(wq_attn(x), self.n_heads))
        k = call.rotate_senders(split_heads(wk_attn(y), self.n_kv_heads))

        # What is compared: r^h_ij = act(<x_i W_q^rel,h, y_j W_k^rel,h> / sqrt(head width))
        q_rel = split_heads(self.wq_rel(x), self.n_heads)
        k_rel = split_heads(self.wk_rel(y), self.n_kv_heads)

        with transaction(cache):
            # Who it is: s_j W_s^h
            s = self._project_symbols(symbols, call)
            k, k_rel, s = call.with_earlier(k=k, k_rel=k_rel, symbols=s)

            # a^h_i = sum_j alpha^h_ij r^h_ij s_j W_s^h
            kind: dict[str, Any] = {"scale": self.attn_scale, "rel_activation": self.rel_activation}
            attended, weights, relations = disentangled_relational_cross_attention(
                q, k, q_rel, k_rel, s, need_weights=need_weights, **kind, **call.how()
            )
            output = self._output(attended, call)
        return RelationalAttentionOutput(output, weights, relations)
