"""Relational attention; and by import the two forms of relational cross-attention that came before it.

Shapes: B batch, H heads, N receivers, M senders, d width of the model, R relations (the paper's d_r).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from ._layers.cache import Cache
from ._layers.calls import typed_as
from ._layers.continuation import Masks, transactional
from ._layers.heads import merge_heads, split_heads
from ._layers.inputs import check_dropout, check_positive
from ._layers.relational_heads import RelationalHeads
from ._layers.symbols import Symbols
from .attention import add_bias, rotate
from .functional import RelationalAttentionOutput, reference, relational_attention
from .functional.activations import Activation, activation_function
from .functional.masks import MaskPattern, Segments
from .positional_encoding import RelativePositionalEncoding
from .relational_cross_attention import DisentangledRelationalCrossAttention, RelationalCrossAttention

__all__ = [
    "DisentangledRelationalCrossAttention",
    "RelationalAttention",
    "RelationalAttentionOutput",
    "RelationalCrossAttention",
]


class RelationalAttention(RelationalHeads):
    """Relational attention: select senders by attention, receive how they compare with the receiver.

    Math: a_i = concat_h(sum_j alpha^h_ij (W_r^h r(x_i, y_j) + s_j W_s^h)) W_o  (arXiv 2405.16727, Algorithm 1)

    Queries and keys of the attention choose whom to listen to; queries and keys of the relations say what is compared.
    A symbol names the sender, so that the receiver knows with whom a relation holds, whatever the sender's features.

    Args:
        d_model: width of the model, of receivers, senders and symbols.
        n_heads: H.
        n_relations: R; by default ``n_heads``. All heads see the same relations, each through its own ``W_r``.
        dropout: rate on the attention weights, and on the output unless ``out_dropout`` is given.
        key_dim: width of one attention query/key head; by default the head width ``d_model / total_n_heads``.
        n_kv_heads: heads of attention keys and of symbols (grouped-query attention); by default ``n_heads``.
            Relations are not grouped.
        rel_activation: activation of the relations: identity, relu, sigmoid, tanh, gelu, silu, softmax (over the
            senders that the mask allows), or an elementwise function.
        rel_proj_dim: width of one relation's query and key; by default ``head width * n_heads // n_relations``.
        add_bias_kv: biases in the projections of attention keys and symbols.
        add_bias_out: bias in the output projection.
        total_n_heads: heads of the whole layer if these are only some of them (dual attention); the output width is
            ``n_heads * d_model / total_n_heads``.
        symmetric_rels: one projection for relation queries and keys, so that r(x, y) = r(y, x).
        use_relative_positional_symbols: symbols belong to pairs (``RelativeSymbols``, or a tensor ``(N, M, d)``).
        wr_init: scale of the initial ``W_r``: ``"published"``, uniform in ±1/sqrt(head width * R), as in the package
            of the paper's authors; ``"large"``, uniform in ±1/sqrt(R), as in the runs behind the paper's Relational
            Games curves, where it decides the sample efficiency.
        attn_scale: factor of the attention scores; by default ``1 / sqrt(key_dim)``.
        out_dropout: rate on the output; by default ``dropout``.
        shaw_max_rel_pos: add relative positions of Shaw et al. 2018 to the attention keys, clipped at this offset.
        window: sliding window: receiver ``i`` sees senders with ``|i - j| < window``.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_relations: int | None = None,
        dropout: float = 0.0,
        key_dim: int | None = None,
        n_kv_heads: int | None = None,
        rel_activation: str | Activation = "identity",
        rel_proj_dim: int | None = None,
        add_bias_kv: bool = False,
        add_bias_out: bool = False,
        total_n_heads: int | None = None,
        symmetric_rels: bool = False,
        use_relative_positional_symbols: bool = False,
        *,
        wr_init: Literal["published", "large"] = "published",
        attn_scale: float | None = None,
        out_dropout: float | None = None,
        shaw_max_rel_pos: int | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__(d_model, n_heads, dropout, n_kv_heads, total_n_heads, use_relative_positional_symbols, window)
        self.n_relations = n_heads if n_relations is None else n_relations
        self.key_dim = self.head_dim if key_dim is None else key_dim
        check_positive(n_relations=self.n_relations, key_dim=self.key_dim)
        self.rel_proj_dim = self.head_dim * n_heads // self.n_relations if rel_proj_dim is None else rel_proj_dim
        check_positive(rel_proj_dim=self.rel_proj_dim)
        activation_function(rel_activation)
        self.rel_activation = rel_activation
        self.symmetric_rels = symmetric_rels
        self.attn_scale = 1 / math.sqrt(self.key_dim) if attn_scale is None else attn_scale
        self.rel_scale = 1 / math.sqrt(self.rel_proj_dim)
        if wr_init not in ("published", "large"):
            raise ValueError(f"wr_init: expected 'published' or 'large', got {wr_init!r}")
        self.wr_init = wr_init

        self.wq_attn = nn.Linear(d_model, n_heads * self.key_dim, bias=False)
        self.wk_attn = nn.Linear(d_model, self.n_kv_heads * self.key_dim, bias=add_bias_kv)
        self.wq_rel = nn.Linear(d_model, self.n_relations * self.rel_proj_dim, bias=False)
        self.wk_rel = self.wq_rel
        if not symmetric_rels:
            self.wk_rel = nn.Linear(d_model, self.n_relations * self.rel_proj_dim, bias=False)
        self.wr = nn.Parameter(torch.empty(n_heads, self.head_dim, self.n_relations))
        self.wv = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=add_bias_kv)
        self.wo = nn.Linear(n_heads * self.head_dim, n_heads * self.head_dim, bias=add_bias_out)
        self.resid_dropout = nn.Dropout(dropout if out_dropout is None else check_dropout("out_dropout", out_dropout))
        self.rel_pos_keys = None
        if shaw_max_rel_pos is not None:
            self.rel_pos_keys = RelativePositionalEncoding(self.key_dim, shaw_max_rel_pos)
        self.reset_wr()

    def reset_wr(self) -> None:
        """Draw ``W_r`` anew, as ``wr_init`` says."""
        fan_in = self.n_relations * (self.head_dim if self.wr_init == "published" else 1)
        nn.init.uniform_(self.wr, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def _kept_keys(self) -> dict[str, tuple[int, ...]]:
        return {"k": (self.n_kv_heads, self.key_dim), "w": (self.n_relations * self.rel_proj_dim,)}

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
        """Relational attention of receivers ``x`` over senders ``y``.

        With a cache from :meth:`new_cache`, ``x`` (and ``y``, if given) are new tokens, N = M, after t earlier ones.
        They see those as well, in order: ``is_causal`` is needed, masks and biases cover the t + M senders, RoPE tables
        have rows for all t + M tokens, and symbols are those of the new tokens, or relative ones ``(N, t + M, d)``.

        Args:
            x: receivers, ``(B, N, d)``.
            symbols: names of the senders, ``(B or 1, M, d)``; with ``use_relative_positional_symbols``, of the pairs:
                :class:`RelativeSymbols` or a tensor ``(N, M, d)``.
            freqs_cos, freqs_sin: RoPE tables ``(length, key_dim / 2)``, or ``(B, length, key_dim / 2)`` if positions
                differ between examples; applied to the attention, not to relations.
            attn_mask: boolean, ``(N, M)`` or broadcastable to ``(B, H, N, M)``; True = may be attended. Or a
                :class:`~dual_attention.functional.MaskPattern` built once for several layers.
            is_causal: receivers see no later sender; combined with the masks if they are given too.
            y: senders, ``(B, M, d)``; by default ``x``.
            padding_mask: boolean, ``(B, M)``; True = a real sender.
            segments: integers ``(B or 1, N)`` of sequences packed into one, which do not see each other; with senders
                ``y``, a pair of such tensors.
            attn_bias: floating point, broadcastable to ``(B, H, N, M)``, added to the scaled attention scores.
            need_weights: also return attention weights and relations, which are then built.
            cache: of earlier tokens; these tokens are appended.

        Returns:
            ``(output, weights, relations)``: ``(B, N, H * head width)``, ``(B, H, N, M)`` and ``(B, N, M, R)``; the
            last two None unless ``need_weights``. Relations are not masked. With a window and a cache, M counts the
            senders that are still held.

        Raises:
            ValueError, TypeError: if shapes disagree, a mask is not boolean, symbols are of the wrong kind, or the
                cache is of another kind of layer or batch. The cache is then as it was.
        """
        masks = Masks(attn_mask, padding_mask, is_causal, segments, attn_bias)
        received = self._receive(x, y, masks, cache, (freqs_cos, freqs_sin))
        y, past, pattern, bias = received
        q = rotate(split_heads(self.wq_attn(x), self.n_heads), freqs_cos, freqs_sin, past.position)
        k = rotate(split_heads(self.wk_attn(y), self.n_kv_heads), freqs_cos, freqs_sin, past.senders)
        (k, w), sv = self._with_symbols(received, symbols, k=k, w=self._relation_keys(y))

        if self.rel_pos_keys is not None:
            bias = add_bias(bias, self.attn_scale * self.rel_pos_keys.scores(q, pattern.m, offset=past.offset))
        attended, weights, relations = relational_attention(
            q,
            k,
            self._relation_heads(self.wq_rel(x)),
            self._relation_heads(w),
            sv,
            self.wr,
            scale=self.attn_scale,
            rel_scale=self.rel_scale,
            rel_activation=self.rel_activation,
            mask=pattern,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        output = self.resid_dropout(self.wo(merge_heads(attended)))
        return RelationalAttentionOutput(output, weights, relations)

    def relations(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Only the relations r(x_i, y_j), without a mask: ``(B, N, M, R)``."""
        u, w = self._relation_heads(self.wq_rel(x)), self._relation_heads(self._relation_keys(x if y is None else y))
        return reference.relations(u, w, scale=self.rel_scale, activation=self.rel_activation)

    def _relation_keys(self, y: Tensor) -> Tensor:
        # `wk_rel` is `wq_rel` then, but for an adapter (LoRA, say) that has taken the place of the one.
        return self.wq_rel(y) if self.symmetric_rels else self.wk_rel(y)

    def _relation_heads(self, x: Tensor) -> Tensor:
        """``(B, L, R * p) -> (B, L, R, p)``."""
        return x.unflatten(-1, (self.n_relations, self.rel_proj_dim))

    if TYPE_CHECKING:

        @typed_as(forward)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
