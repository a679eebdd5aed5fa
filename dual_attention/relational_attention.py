"""Relational attention; and by import the two forms of relational cross-attention that came before it.

Shapes: B batch, H heads, N receivers, M senders, d width of the model, R relations (the paper's d_r).
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._layers.cache import Cache
from ._layers.call import Given, HeadsCall, transaction
from ._layers.heads import split_heads
from ._layers.inputs import check_boolean, check_choice, check_positive
from ._layers.packed import are_plain
from ._layers.relation_size import initial_variation, wr_bound
from ._layers.symbols import SymbolHeads, Symbols, kept_symbols
from .configs import RelationInit, RelationScore
from .functional import (
    MaskPattern,
    RelationalAttentionOutput,
    reference,
    squared_distance_keys,
    squared_distance_queries,
)
from .functional.activations import Activation, activation_function
from .functional.alignments.common import require_rate
from .functional.checks import without_autocast
from .functional.masks import Segments
from .functional.reference import Observe
from .functional.relational.choice import run_chosen
from .functional.relational.inputs import RelationalInputs
from .functional.symbols import with_vectors
from .positional_encoding import RelativePositionalEncoding
from .relational_cross_attention import DisentangledRelationalCrossAttention, RelationalCrossAttention

__all__ = [
    "DisentangledRelationalCrossAttention",
    "RelationalAttention",
    "RelationalAttentionOutput",
    "RelationalCrossAttention",
]


class RelationalAttention(SymbolHeads):
    """Relational attention: select senders by attention, receive how they compare with the receiver.

    Math: a_i = concat_h(sum_j alpha^h_ij (W_r^h r(x_i, y_j) + s_j W_s^h)) W_o  (arXiv 2405.16727, Algorithm 1)

    Queries and keys of the attention choose whom to listen to; queries and keys of the relations say what is compared.
    A symbol names the sender, so that the receiver knows with whom a relation holds, whatever the sender's features.

    Squared distances cost as much as relations two features wider, so p - 2 is the better width for kernels that take
    powers of two; float16 and bfloat16 are computed in float32. They are at most 0 up to rounding, and 0 means equal.

    An initial size that is asked for sets the bound of the uniform ``W_r`` that gives it on average over initial
    weights, which is measured on random projections from a fixed seed: no generator moves and there is no new state.
    Under ``wr_init="large"``, R = 2 and p = d / 2 the size is 0.5 for symmetric relations, 0.2 for others, and 1 for
    symmetric squared distances.

    Args:
        d_model: width of the model, of receivers, senders and symbols.
        n_heads: H.
        dropout: rate on the attention weights, and on the output unless ``out_dropout`` is given.
        use_relative_positional_symbols: symbols belong to pairs (``RelativeSymbols``, or a tensor ``(N, M, d)``).
        others: the options that :class:`~dual_attention.RelationalConfig` explains; R is ``n_relations``, and p
            ``rel_proj_dim``.

    >>> layer = RelationalAttention(d_model=64, n_heads=4, n_relations=8)
    >>> layer(torch.randn(2, 9, 64), symbols=torch.randn(2, 9, 64), need_weights=True)
    RelationalAttentionOutput(output=Tensor(2, 9, 64), weights=Tensor(2, 4, 9, 9), relations=Tensor(2, 9, 9, 8))
    """

    rel_score: RelationScore = "dot"  # default for layers pickled before this argument existed
    rel_init_size: float | None = None  # likewise

    _observed = (
        "visible",
        "symbols",
        "weights",
        "relations",
        "relational_message",
        "symbol_values",
        "symbol_message",
        "head_output",
    )

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
        rel_score: RelationScore = "dot",
        wr_init: RelationInit = "published",
        rel_init_size: float | None = None,
        attn_scale: float | None = None,
        out_dropout: float | None = None,
        shaw_max_rel_pos: int | None = None,
        window: int | None = None,
        add_bias_q: bool = False,
        out_dim: int | None = None,
    ) -> None:
        check_boolean(add_bias_q=add_bias_q, add_bias_kv=add_bias_kv, add_bias_out=add_bias_out)
        check_boolean(symmetric_rels=symmetric_rels)
        sizes = d_model, n_heads, dropout, n_kv_heads, total_n_heads, window, key_dim, attn_scale
        super().__init__(use_relative_positional_symbols, *sizes)
        self.n_relations = n_heads if n_relations is None else n_relations
        check_positive(n_relations=self.n_relations)
        self.rel_proj_dim = self.head_dim * n_heads // self.n_relations if rel_proj_dim is None else rel_proj_dim
        if rel_proj_dim is None and self.rel_proj_dim == 0:
            most = self.head_dim * n_heads
            raise ValueError(f"n_relations: expected at most {most} without rel_proj_dim, got {self.n_relations}")
        check_positive(rel_proj_dim=self.rel_proj_dim)
        activation_function(rel_activation, "rel_activation")
        self.rel_activation = rel_activation
        self.symmetric_rels = symmetric_rels
        self.rel_scale = 1 / math.sqrt(self.rel_proj_dim)
        check_choice("rel_score", rel_score, RelationScore)
        if rel_score == "squared_distance" and rel_activation in ("relu", torch.relu, F.relu):
            raise ValueError(f"rel_activation: expected one that keeps negative relations, got {rel_activation!r}")
        self.rel_score = rel_score
        check_choice("wr_init", wr_init, RelationInit)
        self.wr_init = wr_init
        if rel_init_size is not None:
            require_rate("rel_init_size", rel_init_size)
        self.rel_init_size = rel_init_size

        self.wq_attn = nn.Linear(d_model, n_heads * self.key_dim, bias=add_bias_q)
        self.wk_attn = nn.Linear(d_model, self.n_kv_heads * self.key_dim, bias=add_bias_kv)
        self.wq_rel = nn.Linear(d_model, self.n_relations * self.rel_proj_dim, bias=False)
        self.wk_rel = self.wq_rel
        if not symmetric_rels:
            self.wk_rel = nn.Linear(d_model, self.n_relations * self.rel_proj_dim, bias=False)
        self.raw_rel_strength: nn.Parameter | None = None  # softplus of it is b
        if rel_score == "squared_distance":
            self.raw_rel_strength = nn.Parameter(torch.empty(self.n_relations))
        self.wr = nn.Parameter(torch.empty(n_heads, self.head_dim, self.n_relations))
        self._add_output(add_bias_kv, add_bias_out, out_dropout, out_dim)
        if shaw_max_rel_pos is not None:
            self.rel_pos_keys = RelativePositionalEncoding(self.key_dim, shaw_max_rel_pos)
        self.reset_relations()

    def reset_relations(self, projection_std: float | None = None) -> None:
        """Draw ``W_r`` anew, of its initial size; strengths of squared distances are 1 again.

        Args:
            projection_std: of the initial weights of relation queries and keys; by default that of ``nn.Linear``.
        """
        if self.rel_init_size is None or self.wr.is_meta:
            bound = 1 / math.sqrt(self.n_relations * (self.head_dim if self.wr_init == "published" else 1))
        else:
            std = 1 / math.sqrt(3 * self.d_model) if projection_std is None else projection_std
            kind: dict[str, Any] = {"activation": self.rel_activation, "rel_score": self.rel_score}
            variation = initial_variation(self.d_model, self.rel_proj_dim, std, symmetric=self.symmetric_rels, **kind)
            bound = wr_bound(self.rel_init_size, variation, self.n_relations)
        nn.init.uniform_(self.wr, -bound, bound)
        if self.rel_score == "squared_distance":
            assert self.raw_rel_strength is not None
            nn.init.constant_(self.raw_rel_strength, math.log(math.expm1(1)))

    def selecting(self) -> tuple[nn.Linear, nn.Linear]:
        """The projections of the attention's queries and keys."""
        return self.wq_attn, self.wk_attn

    def _kept(self) -> dict[str, tuple[int, ...]]:
        width = self.rel_proj_dim + (2 if self.rel_score == "squared_distance" else 0)
        return {
            "k": (self.n_kv_heads, self.key_dim),
            "w": (self.n_relations * width,),
            **kept_symbols(self.use_relative_positional_symbols, self.n_kv_heads, self.head_dim),
        }

    def _kept_wide(self) -> tuple[str, ...]:
        return ("w",) if self.rel_score == "squared_distance" else ()

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
        projected: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,
    ) -> RelationalAttentionOutput:
        """Attend from receivers ``x`` to senders ``y``.

        With a cache from ``new_cache``, ``x`` (and ``y``, if given) are new tokens, N = M, after t earlier ones;
        symbols are those of the new tokens, or relative ones ``(N, t + M, d)``. A call that fails leaves the cache as
        it was.

        Args:
            x: receivers, ``(B, N, d)``.
            symbols: names of the senders, ``(B or 1, M, d)``; with ``use_relative_positional_symbols``, of the pairs:
                :class:`RelativeSymbols` or a tensor ``(N, M, d)``.
            y: senders, ``(B, M, d)``; by default ``x``.
            freqs_cos, freqs_sin, attn_mask, is_causal, padding_mask, segments, attn_bias, cache: as for
                :meth:`dual_attention.attention.Attention.forward`; RoPE is applied to the attention, not to relations.
            projections: of the attention's queries and keys, in place of its own; those of other heads, say.
            projected: queries and keys of the attention, ``(B, heads, length, width)``, with RoPE, and those of the
                relations, ``(B, length, R * p)``, if they are there already, see :meth:`Attention.forward
                <dual_attention.attention.Attention.forward>`.
            need_weights: also return the maps, which are then built.

        Returns:
            ``(output, weights, relations)``: ``(B, N, H * head width)``, ``(B, H, N, M)`` and ``(B, N, M, R)``; the
            last two None unless ``need_weights``. Only the normaliser of softmax masks relations. With a window and a
            cache, M counts the senders that are still held.
        """
        given = Given(attn_mask, padding_mask, is_causal, segments, attn_bias, freqs_cos, freqs_sin)
        y, call = self._begin(x, y, given, cache)

        q, k, u, w = self._projections(x, y, call, projections) if projected is None else projected
        u, w = self._factors(u, w)

        with transaction(cache):
            # Who it is: s_j W_s^h
            s = self._project_symbols(symbols, call)
            if cache is not None:
                k, w, s = call.with_earlier(k=k, w=w.flatten(2), symbols=s)
                w = self._by_relation(w)

            # a^h_i = sum_j alpha^h_ij (W_r^h r_ij + s_j W_s^h)
            kind = self.attn_scale, self.rel_scale, self.rel_activation
            how = call.pattern, self._bias(call, q, u.dtype), call.dropout, need_weights
            seen = need_weights or call.observe is not None or self.symmetric_rels  # by whom padding may not be cleared
            owned = call.pattern.padding is not None and cache is None and not seen
            owned = owned and are_plain((projections or self.selecting())[1], self.wk_rel, self.wv)
            inputs = RelationalInputs(q, k, u, w, s, self.wr, *kind, *how, owned)
            if u.dtype == q.dtype:
                attended, weights, relations = run_chosen(inputs.agreeing(), observe=call.steps)
            else:
                attended, weights, relations = _run_like_u(inputs, call.steps)
            output = self._output(attended, call)
        return RelationalAttentionOutput(output, weights, relations)

    def _projections(
        self, x: Tensor, y: Tensor, call: HeadsCall, selecting: tuple[nn.Module, nn.Module] | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries and keys of the attention, ``(B, heads, length, width)``; of relations, ``(B, length, R * p)``."""
        # Whom to listen to: alpha^h_ij = softmax_j(<x_i W_q^h, y_j W_k^h> / sqrt(D))
        own: Any = self._modules  # which is faster than attributes
        wq_attn, wk_attn = (own["wq_attn"], own["wk_attn"]) if selecting is None else selecting
        q = call.rotate_receivers(split_heads(wq_attn(x), self.n_heads))
        k = call.rotate_senders(split_heads(wk_attn(y), self.n_kv_heads))

        # What is compared: r_ij,l = act(<x_i W_q,l^rel, y_j W_k,l^rel> / sqrt(p))
        wq_rel = own["wq_rel"]
        wk_rel = wq_rel if self.symmetric_rels else own["wk_rel"]  # the same, but an adapter may be in one's place
        w = wk_rel(y)
        return q, k, w if self.symmetric_rels and y is x else wq_rel(x), w

    def _factors(self, u: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Relation queries and keys by relation, ``(B, N, R, p)`` and ``(B, M, R, p)``, from their projections."""
        if self.rel_score == "dot":
            sizes = (self.n_relations, -1)
            return torch.unflatten(u, -1, sizes), torch.unflatten(w, -1, sizes)
        keys = self._strengthened(w)
        return squared_distance_queries(keys if u is w else self._strengthened(u)), squared_distance_keys(keys)

    def _strengthened(self, projected: Tensor) -> Tensor:
        """Projections by relation, each times the root of its strength, in float32 or better."""
        assert self.raw_rel_strength is not None
        wide = torch.promote_types(projected.dtype, torch.float32)
        return F.softplus(self.raw_rel_strength.to(wide)).sqrt()[:, None] * self._by_relation(projected).to(wide)

    def _by_relation(self, x: Tensor) -> Tensor:
        """``(B, L, R * p) -> (B, L, R, p)``."""
        return x.unflatten(-1, (self.n_relations, -1))

    def relations(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Only the relations r(x_i, y_j), without a mask: ``(B, N, M, R)``."""
        u, w = self.relation_factors(x, x if y is None else y)
        with nullcontext() if self.rel_score == "dot" else without_autocast(u):
            found = reference.relations(u, w, scale=self.rel_scale, activation=self.rel_activation)
        return found

    def relation_factors(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors whose inner products times ``rel_scale`` are the relations before their activation.

        ``(B, N, R, p)`` and ``(B, M, R, p)``; of squared distances with p + 2 features, in float32 or better.
        """
        wk_rel = self.wq_rel if self.symmetric_rels else self.wk_rel
        return self._factors(self.wq_rel(x), wk_rel(y))


def _run_like_u(x: RelationalInputs, observe: Observe | None) -> RelationalAttentionOutput:
    """Relational attention in the type of ``u``, float32 for squared distances of narrow types; results in that of k.

    Autocast would narrow them again.
    """
    narrow, wide = x.k.dtype, x.u.dtype
    with without_autocast(x.q):
        q, k, w_r, symbols = x.q.to(wide), x.k.to(wide), x.w_r.to(wide), with_vectors(x.symbols, lambda s: s.to(wide))
        output, *maps = run_chosen(x._replace(q=q, k=k, w_r=w_r, symbols=symbols).agreeing(), observe=observe)
    return RelationalAttentionOutput(output.to(narrow), *(None if x is None else x.to(narrow) for x in maps))
