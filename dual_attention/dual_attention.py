"""Dual attention: sensory heads and relational heads side by side.

::

                            objects x (B, N, d)                 symbols s (B, N, d)
                     ┌───────────────┴───────────────┐                   │
            H_sa sensory heads              H_ra relational heads ◀──────┘
            select by attention             select by attention
            receive what the                receive how the sender relates to the receiver,
            sender is:                      beside the symbol that names the sender:
            e_i = Σ_j α_ij v(x_j)           a_i = Σ_j α_ij (W_r r(x_i, x_j) + W_s s_j)
                     └───────── concat(e_i, a_i) ────┘
                              output (B, N, d)

If each kind writes into all d features (``out_dim``), they are added: output = e_i + a_i.

Both kinds see the same senders: what hides senders is put together once, in :meth:`DualAttention.forward` or by the
model around it, and handed to both.

Shapes: B batch, N objects, H_sa and H_ra heads of the two kinds, R relations, d width of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._base.words import repr_of_shapes
from ._layers.cache import Cache, CacheGroup
from ._layers.call import Given, cache_parts, checked_pattern, continue_from, rotate, transaction
from ._layers.calls import TypedModule
from ._layers.heads import split_heads
from ._layers.inputs import check_boolean, check_choice, check_no_values, check_not_negative, check_sequence
from ._layers.joined import join_weights, joined_weights
from ._layers.options import checked_options
from ._layers.packed import is_watched, project_at_once
from ._layers.symbols import Symbols
from .attention import Attention
from .configs import RelationalHeadType
from .functional.checks import MaybeNone, saves_launches
from .functional.masks import MaskPattern, Segments
from .relational_attention import DisentangledRelationalCrossAttention, RelationalAttention, RelationalCrossAttention

__all__ = ["RELATIONAL_HEADS", "DualAttention", "DualAttentionOutput", "RelationalHeadType"]

RELATIONAL_HEADS = {
    "relational_attention": RelationalAttention,
    "rca": RelationalCrossAttention,
    "disrca": DisentangledRelationalCrossAttention,
}
"""Classes of relational heads, by the name that ``ra_type`` gives them."""


class DualAttentionOutput(NamedTuple):
    """Output of dual attention.

    Attributes:
        output: ``(B, N, d)``.
        sa_weights: weights of the sensory heads, ``(B, H_sa, N, N)``; None if not asked for, or without such heads.
        ra_maps: maps of the relational heads, ``(weights, relations)`` (for RCA ``(weights,)``); None likewise.

    >>> layer = DualAttention(d_model=64, n_heads_sa=2, n_heads_ra=2)
    >>> out = layer(torch.randn(2, 9, 64), torch.randn(2, 9, 64), need_weights=True)
    >>> out.weights.shape
    torch.Size([2, 4, 9, 9])
    """

    output: Tensor
    sa_weights: Tensor | MaybeNone = None
    ra_maps: tuple[Tensor, ...] | MaybeNone = None

    __repr__ = repr_of_shapes

    @property
    def weights(self) -> Tensor | MaybeNone:
        """Weights of all heads, ``(B, H_sa + H_ra, N, N)``, sensory ones first; None if not asked for.

        While gradients are recorded the output depends on this tensor, so that it gets one; not where the layer is
        compiled.
        """
        kinds = self.sa_weights, None if self.ra_maps is None else self.ra_maps[0]
        found = [kind for kind in kinds if kind is not None]
        return joined_weights(found) if len(found) > 1 else found[0] if found else None


class DualAttention(TypedModule):
    """Dual attention: sensory and relational heads side by side.

    Math: concat(e_i, a_i), e_i from self-attention and a_i from relational attention (arXiv 2405.16727, Algorithm 1)

    Each kind has an output projection of its own; there is none after the concatenation. Zero heads of one kind are
    allowed: without relational heads this is standard multi-head attention. With ``"out_dim": d_model`` for both kinds,
    both write into all features and are added, as if one projection followed all heads.

    Args:
        d_model: width of the model.
        n_heads_sa, n_heads_ra: heads of the two kinds; head width is ``d_model / (n_heads_sa + n_heads_ra)``.
        dropout: rate on attention weights and on outputs.
        sa_kwargs: further arguments of :class:`~dual_attention.attention.Attention`, a dict or an
            :class:`~dual_attention.AttentionConfig`.
        ra_kwargs: those of the relational heads' class, a dict or a :class:`~dual_attention.RelationalConfig`.
        share_attn_params: one set of attention queries and keys for both kinds; needs as many heads of both.
        ra_type: ``"relational_attention"``, or for ablations ``"rca"`` or ``"disrca"``, see
            :mod:`dual_attention.relational_attention`.

    >>> x = torch.randn(2, 9, 64)
    >>> symbols = SymbolicAttention(d_model=64, n_heads=4, n_symbols=16)(x)
    >>> DualAttention(d_model=64, n_heads_sa=2, n_heads_ra=2)(x, symbols, need_weights=True)
    DualAttentionOutput(output=Tensor(2, 9, 64), sa_weights=Tensor(2, 2, 9, 9),
                        ra_maps=(Tensor(2, 2, 9, 9), Tensor(2, 9, 9, 2)))
    """

    _adds = False  # default for layers pickled before this attribute existed

    def __init__(
        self,
        d_model: int,
        n_heads_sa: int,
        n_heads_ra: int,
        dropout: float = 0.0,
        sa_kwargs: Mapping[str, Any] | None = None,
        ra_kwargs: Mapping[str, Any] | None = None,
        share_attn_params: bool = False,
        ra_type: RelationalHeadType = "relational_attention",
    ) -> None:
        super().__init__()
        check_boolean(share_attn_params=share_attn_params)
        check_not_negative(n_heads_sa=n_heads_sa, n_heads_ra=n_heads_ra)
        if n_heads_sa + n_heads_ra == 0:
            raise ValueError("n_heads_sa, n_heads_ra: expected at least one head, got none")
        check_choice("ra_type", ra_type, RelationalHeadType)
        self.d_model = d_model
        self.n_heads_sa = n_heads_sa
        self.n_heads_ra = n_heads_ra
        self.ra_type = ra_type
        self.share_attn_params = share_attn_params

        common = {"d_model": d_model, "total_n_heads": n_heads_sa + n_heads_ra, "dropout": dropout}
        self.self_attention = None
        self.relational_attention = None
        if n_heads_sa:
            own = checked_options("sa_kwargs", sa_kwargs, Attention, taken=("n_heads",))
            self.self_attention = Attention(n_heads=n_heads_sa, **{**common, **own})
        if n_heads_ra:
            heads = RELATIONAL_HEADS[ra_type]
            own = checked_options("ra_kwargs", ra_kwargs, heads, taken=("n_heads",))
            self.relational_attention = heads(n_heads=n_heads_ra, **{**common, **own})
        widths = [heads.wo.out_features for heads in self._heads().values()]
        self._adds = widths == [d_model, d_model]
        if not self._adds and sum(widths) != d_model:
            raise ValueError(
                f"sa_kwargs, ra_kwargs: expected outputs as wide together as d_model={d_model}, or each of that width, "
                f"got {' and '.join(map(str, widths))}"
            )
        if share_attn_params:
            self._share_attention_parameters()

    def _share_attention_parameters(self) -> None:
        sensory, relational = self.self_attention, self.relational_attention
        if sensory is None or relational is None:
            raise ValueError(f"share_attn_params: needs both kinds of head, got {self.n_heads_sa}, {self.n_heads_ra}")
        wq, wk = relational.selecting()
        for name, ours, theirs in (("queries", sensory.wq, wq), ("keys", sensory.wk, wk)):
            if ours.weight.shape != theirs.weight.shape or (ours.bias is None) != (theirs.bias is None):
                raise ValueError(f"share_attn_params: needs {name} projected alike, got {ours} and {theirs}")
        sensory.wq, sensory.wk = wq, wk

    def _heads(self) -> dict[str, Attention | RelationalAttention | RelationalCrossAttention]:
        kinds = {"self_attention": self.self_attention, "relational_attention": self.relational_attention}
        return {name: heads for name, heads in kinds.items() if heads is not None}

    def new_cache(self, max_length: int | None = None) -> CacheGroup:
        """An empty cache for causal decoding; ``max_length``: most tokens to come, reserved at once."""
        return CacheGroup({name: heads.new_cache(max_length) for name, heads in self._heads().items()})

    def forward(
        self,
        x: Tensor,
        symbols: Symbols | None = None,
        attn_mask: Tensor | MaskPattern | None = None,
        is_causal: bool = False,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        need_weights: bool = False,
        *,
        padding_mask: Tensor | None = None,
        segments: Segments | None = None,
        attn_bias: Tensor | None = None,
        cache: Cache | None = None,
    ) -> DualAttentionOutput:
        """Dual self-attention.

        Args:
            x: ``(B, N, d)``; with a cache only the new tokens.
            symbols: as in :meth:`RelationalAttention.forward`; not needed without relational heads.
            need_weights: also return the maps of both kinds.
            cache: of earlier tokens, from ``new_cache``; these tokens are appended.
            others: of both kinds of head, as in :meth:`Attention.forward <dual_attention.attention.Attention.forward>`.
        """
        with transaction(cache):
            caches = {} if cache is None else cache_parts(cache, tuple(self._heads()))
            if not isinstance(attn_mask, MaskPattern) or padding_mask is not None or segments is not None:
                attn_mask = self._pattern(x, Given(attn_mask, padding_mask, is_causal, segments), cache)
            sensory, relational = self._projected(x, freqs_cos, freqs_sin, caches) or (None, None)
            how: dict[str, Any] = {"freqs_cos": freqs_cos, "freqs_sin": freqs_sin, "attn_mask": attn_mask}
            how |= {"is_causal": is_causal, "attn_bias": attn_bias, "need_weights": need_weights}
            outputs, sa_weights, ra_maps = [], None, None
            if self.self_attention is not None:
                options: dict[str, Any] = {} if sensory is None else {"projected": sensory}
                output, sa_weights = self.self_attention(x, x, x, cache=caches.get("self_attention"), **options, **how)
                outputs.append(output)
            if self.relational_attention is not None:
                if symbols is None:
                    raise TypeError("symbols: expected a tensor or RelativeSymbols for the relational heads, got none")
                options = {"cache": caches.get("relational_attention")}
                if relational is not None:
                    options["projected"] = relational
                elif self.share_attn_params and self.self_attention is not None:
                    options["projections"] = (self.self_attention.wq, self.self_attention.wk)
                output, *maps = self.relational_attention(x, symbols, **options, **how)
                outputs.append(output)
                ra_maps = tuple(maps) if need_weights else None
            output = outputs[0] + outputs[1] if self._adds else torch.cat(outputs, dim=-1)
            if sa_weights is not None and ra_maps is not None:
                output, (sa_weights, ra_weights) = join_weights(output, (sa_weights, ra_maps[0]))
                ra_maps = ra_weights, *ra_maps[1:]
            return DualAttentionOutput(output, sa_weights, ra_maps)

    def _projected(
        self, x: Tensor, freqs_cos: Tensor | None, freqs_sin: Tensor | None, caches: Mapping[str, Cache | None]
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]] | None:
        """All projections of ``x`` for both kinds of head, by one product and one rotation; None if that gains nothing.

        With caches, which outlive a call but no change of weights, the joined weights are kept.
        """
        ours, theirs = self.self_attention, self.relational_attention
        if type(ours) is not Attention or type(theirs) is not RelationalAttention or not saves_launches(x):
            return None
        if ours.key_dim != theirs.key_dim or is_watched(ours) or is_watched(theirs):
            return None
        selecting = [ours.wq, ours.wk] if self.share_attn_params else [ours.wq, ours.wk, *theirs.selecting()]
        comparing = [theirs.wq_rel] if theirs.symmetric_rels else [theirs.wq_rel, theirs.wk_rel]
        past = continue_from(caches.get("self_attention"), ours._kept(), window=ours.window)
        packed = project_at_once(x, [*selecting, ours.wv, *comparing], lambda make: past.once(0, make))
        if packed is None:
            return None
        heads = [ours.n_heads, ours.n_kv_heads, theirs.n_heads, theirs.n_kv_heads][: len(selecting)]
        compared = theirs.n_relations * theirs.rel_proj_dim
        widths = [sum(heads) * ours.key_dim, ours.wv.out_features, *(compared for _ in comparing)]
        selected, v, *factors = packed.split(widths, dim=-1)
        turned = rotate(split_heads(selected, sum(heads)), freqs_cos, freqs_sin, past.position)
        parts = turned.transpose(1, 2).split(heads, dim=2)  # where heads lie side by side, so gradients are joined once
        qk = [part.transpose(1, 2) for part in parts]
        return (qk[0], qk[1], split_heads(v, ours.n_kv_heads)), (qk[-2], qk[-1], factors[0], factors[-1])

    def _pattern(self, x: Tensor, given: Given, cache: Cache | None) -> MaskPattern:
        """The pairs that may be attended, for both kinds of head; each narrows it by its window and its cache."""
        check_no_values("attn_mask", "a boolean mask", given.attn_mask, x)
        check_sequence("x", x, self.d_model, layer=next(iter(self._heads().values())).wv)
        if cache is not None:
            given.check_continued(cache)
        earlier = 0 if cache is None else cache.length
        return checked_pattern(given, x, heads=self.n_heads_sa or self.n_heads_ra, earlier=earlier, new=x.shape[1])
