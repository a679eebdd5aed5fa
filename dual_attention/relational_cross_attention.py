"""Relational cross-attention (RCA) and its disentangled form, the steps before relational attention.

Shapes: B batch, H heads, N receivers, M senders, d width of the model.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from ._layers.heads import split_heads
from ._layers.inputs import check_boolean
from ._layers.relational_heads import RelationalHeads
from ._layers.symbols import Symbols
from ._layers.taps import Observer
from .attention import AttentionOutput
from .functional import RelationalAttentionOutput, disentangled_relational_cross_attention, relational_cross_attention
from .functional.activations import Activation, activation_function
from .functional.observed import observed_disentangled_relational_cross_attention, observed_relational_cross_attention

__all__ = ["DisentangledRelationalCrossAttention", "RelationalCrossAttention"]


class RelationalCrossAttention(RelationalHeads[AttentionOutput]):
    """Relational cross-attention (RCA) of Abstractors: attention whose values are symbols.

    Math: a_i = concat_h(sum_j act(<W_q x_i, W_k y_j> / sqrt(head width)) s_j W_s^h) W_o  (arXiv 2304.00195)

    The scores are the relations: what is selected and what is compared are one. Relational attention parts the two.

    Args:
        activation: of the scores: softmax, or an elementwise one, under which masked pairs get the weight zero.
        others: as :class:`~dual_attention.relational_attention.RelationalAttention`.
    """

    _output = AttentionOutput
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
    ) -> None:
        check_boolean(
            add_bias_kv=add_bias_kv,
            add_bias_out=add_bias_out,
            use_relative_positional_symbols=use_relative_positional_symbols,
        )
        super().__init__(d_model, n_heads, dropout, n_kv_heads, total_n_heads, window)
        self.use_relative_positional_symbols = use_relative_positional_symbols
        activation_function(activation)
        self.activation = activation
        self.wq = nn.Linear(d_model, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=add_bias_kv)
        self._add_output(add_bias_kv, add_bias_out, out_dropout)

    def selecting(self) -> tuple[nn.Linear, nn.Linear]:
        """The projections of the attention's queries and keys."""
        return self.wq, self.wk

    def _kept_keys(self) -> dict[str, tuple[int, ...]]:
        return {"k": (self.n_kv_heads, self.head_dim)}

    def _attend(
        self,
        x: Tensor,
        own: dict[str, Tensor],
        q: Tensor,
        keys: tuple[Tensor, ...],
        symbols: Symbols,
        offset: int,
        observe: Observer | None,
        **how: Any,
    ) -> tuple[Tensor, Tensor | None]:
        attend = (
            relational_cross_attention if observe is None else partial(observed_relational_cross_attention, observe)
        )
        return attend(q, keys[0], symbols, scale=self.attn_scale, activation=self.activation, **how)


class DisentangledRelationalCrossAttention(RelationalHeads[RelationalAttentionOutput]):
    """Disentangled RCA: attention selects, and one relation for each head scales the symbol that is carried.

    Math: a_i = concat_h(sum_j alpha^h_ij r^h_ij s_j W_s^h) W_o

    The step between RCA and relational attention, kept for ablations.

    Args:
        n_kv_heads: heads of symbols and of the keys of attention and relations; by default ``n_heads``.
        others: as :class:`~dual_attention.relational_attention.RelationalAttention`.
    """

    _output = RelationalAttentionOutput
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
    ) -> None:
        check_boolean(
            add_bias_kv=add_bias_kv,
            add_bias_out=add_bias_out,
            use_relative_positional_symbols=use_relative_positional_symbols,
        )
        super().__init__(d_model, n_heads, dropout, n_kv_heads, total_n_heads, window)
        self.use_relative_positional_symbols = use_relative_positional_symbols
        activation_function(rel_activation, "rel_activation")
        self.rel_activation = rel_activation
        width, kv_width = n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        self.wq_attn = nn.Linear(d_model, width, bias=False)
        self.wk_attn = nn.Linear(d_model, kv_width, bias=add_bias_kv)
        self.wq_rel = nn.Linear(d_model, width, bias=False)
        self.wk_rel = nn.Linear(d_model, kv_width, bias=add_bias_kv)
        self._add_output(add_bias_kv, add_bias_out, out_dropout)

    def _kept_keys(self) -> dict[str, tuple[int, ...]]:
        return {name: (self.n_kv_heads, self.head_dim) for name in ("k", "k_rel")}

    def _relation_keys(self, y: Tensor) -> dict[str, Tensor]:
        return {"k_rel": split_heads(self.wk_rel(y), self.n_kv_heads)}

    def _attend(
        self,
        x: Tensor,
        own: dict[str, Tensor],
        q: Tensor,
        keys: tuple[Tensor, ...],
        symbols: Symbols,
        offset: int,
        observe: Observer | None,
        **how: Any,
    ) -> tuple[Tensor | None, ...]:
        k, k_rel = keys
        q_rel = split_heads(self.wq_rel(x), self.n_heads)
        options = {"scale": self.attn_scale, "rel_activation": self.rel_activation, **how}
        attend = disentangled_relational_cross_attention
        if observe is not None:
            attend = partial(observed_disentangled_relational_cross_attention, observe)
        return attend(q, k, q_rel, k_rel, symbols, **options)
