"""Encoder and decoder blocks of the Dual Attention Transformer (arXiv 2405.16727, Algorithms 2 and 3).

Shapes: B batch, N length of the sequence, M length of the context, d width of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ._layers.cache import Cache
from ._layers.call import cache_parts, transaction
from ._layers.inputs import check_boolean
from ._layers.options import arguments_of, checked_options
from ._layers.symbols import Symbols
from .attention import Attention
from .configs import NormType, RelationalHeadType
from .dual_attention import DualAttention, DualAttentionOutput
from .functional.masks import MaskPattern, Segments
from .transformer_blocks import DecoderSteps, EncoderSteps, FeedForwardBlock, create_norm

__all__ = ["DualAttnDecoderBlock", "DualAttnEncoderBlock"]


class DualAttnEncoderBlock(EncoderSteps):
    """Encoder block with dual attention: dual attention and feed-forward, each in a residual step.

    Args:
        n_heads_sa, n_heads_ra: sensory and relational heads.
        sa_kwargs, ra_kwargs, ra_type, share_attn_params: as :class:`~dual_attention.dual_attention.DualAttention`.
        bias: biases in the feed-forward block. Dual attention has none unless ``sa_kwargs`` and ``ra_kwargs`` say so.
        others: as :class:`~dual_attention.transformer_blocks.EncoderBlock`.

    >>> x, symbols = torch.randn(2, 9, 64), torch.randn(2, 9, 64)
    >>> DualAttnEncoderBlock(d_model=64, n_heads_sa=2, n_heads_ra=2)(x, symbols).shape
    torch.Size([2, 9, 64])
    """

    _attention = "dual_attn"

    def __init__(
        self,
        d_model: int,
        n_heads_sa: int,
        n_heads_ra: int,
        dff: int | None = None,
        activation: str = "gelu",
        dropout_rate: float = 0.0,
        norm_first: bool = True,
        norm_type: NormType = "layernorm",
        sa_kwargs: Mapping[str, Any] | None = None,
        ra_kwargs: Mapping[str, Any] | None = None,
        ra_type: RelationalHeadType = "relational_attention",
        share_attn_params: bool = False,
        bias: bool = True,
        causal: bool = False,
        *,
        post_norm_dropout: bool = True,
    ) -> None:
        check_boolean(bias=bias, post_norm_dropout=post_norm_dropout)
        super().__init__(dropout_rate, norm_first, causal)
        self.post_norm_dropout = post_norm_dropout
        self.norm1 = create_norm(d_model, norm_type)
        self.dual_attn = DualAttention(dropout=dropout_rate, **arguments_of(DualAttention, locals()))
        self.norm2 = create_norm(d_model, norm_type)
        self.ff_block = FeedForwardBlock(d_model, dff, activation, use_bias=bias)

    def forward(
        self,
        x: Tensor,
        symbols: Symbols | None = None,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        *,
        need_weights: bool = False,
        attn_mask: Tensor | MaskPattern | None = None,
        padding_mask: Tensor | None = None,
        segments: Segments | None = None,
        attn_bias: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor | tuple[Tensor, DualAttentionOutput]:
        """``(B, N, d)`` and symbols to ``(B, N, d)``; relational heads alone need symbols.

        With ``need_weights`` the pair of that and the :class:`DualAttentionOutput` that holds the maps. The other
        arguments are those of :meth:`DualAttention.forward <dual_attention.dual_attention.DualAttention.forward>`. With
        a cache from ``new_cache``, ``x`` and symbols are only those of new tokens.
        """
        with transaction(cache):
            z = self.pre_norm(x, self.norm1)
            how: dict[str, Any] = {"padding_mask": padding_mask, "segments": segments, "attn_bias": attn_bias}
            how |= {"freqs_cos": freqs_cos, "freqs_sin": freqs_sin, "attn_mask": attn_mask, "is_causal": self.causal}
            attended = self.dual_attn(z, symbols, need_weights=need_weights, cache=cache, **how)
            x = self._finish(x, attended.output)
            return (x, attended) if need_weights else x


class DualAttnDecoderBlock(DecoderSteps):
    """Decoder block with dual attention: dual attention, cross-attention to a context, and feed-forward.

    Args:
        n_heads_cross: heads of the cross-attention, which is sensory.
        cross_kwargs: further arguments of the cross-attention.
        ff_dropout: drop the feed-forward block's output; the published package does not.
        others: as :class:`DualAttnEncoderBlock`.

    >>> block = DualAttnDecoderBlock(d_model=64, n_heads_sa=2, n_heads_ra=2, n_heads_cross=4)
    >>> x, context, symbols = torch.randn(2, 9, 64), torch.randn(2, 5, 64), torch.randn(2, 9, 64)
    >>> block(x, context, symbols).shape
    torch.Size([2, 9, 64])
    """

    cache_names = "dual_attn", "cross_attn"

    def __init__(
        self,
        d_model: int,
        n_heads_sa: int,
        n_heads_ra: int,
        n_heads_cross: int,
        dff: int | None = None,
        activation: str = "gelu",
        dropout_rate: float = 0.0,
        norm_first: bool = True,
        norm_type: NormType = "layernorm",
        sa_kwargs: Mapping[str, Any] | None = None,
        ra_kwargs: Mapping[str, Any] | None = None,
        cross_kwargs: Mapping[str, Any] | None = None,
        ra_type: RelationalHeadType = "relational_attention",
        share_attn_params: bool = False,
        bias: bool = True,
        causal: bool = True,
        *,
        ff_dropout: bool = False,
    ) -> None:
        check_boolean(bias=bias, ff_dropout=ff_dropout)
        super().__init__(dropout_rate, norm_first, causal)
        self.ff_dropout = ff_dropout
        self.norm1 = create_norm(d_model, norm_type)
        self.dual_attn = DualAttention(dropout=dropout_rate, **arguments_of(DualAttention, locals()))
        self.norm2 = create_norm(d_model, norm_type)
        cross = checked_options("cross_kwargs", cross_kwargs, Attention, taken=("d_model", "n_heads"))
        self.cross_attn = Attention(d_model, n_heads_cross, **{"dropout": dropout_rate, **cross})
        self.norm3 = create_norm(d_model, norm_type)
        self.ff_block = FeedForwardBlock(d_model, dff, activation, use_bias=bias)

    def forward(
        self,
        x: Tensor,
        context: Tensor,
        symbols: Symbols | None = None,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        *,
        context_mask: Tensor | MaskPattern | None = None,
        context_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | MaskPattern | None = None,
        padding_mask: Tensor | None = None,
        segments: Segments | None = None,
        attn_bias: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor | tuple[Tensor, DualAttentionOutput, Tensor]:
        """``(B, N, d)``, a context ``(B, M, d)`` and symbols to ``(B, N, d)``.

        Arguments as :meth:`DecoderBlock.forward <dual_attention.transformer_blocks.DecoderBlock.forward>`. With
        ``need_weights`` also the :class:`DualAttentionOutput` that holds the maps of dual attention, and the weights of
        the cross-attention ``(B, n_heads_cross, N, M)``.
        """
        with transaction(cache):
            caches = cache_parts(cache, self.cache_names)
            z = self.pre_norm(x, self.norm1)
            how: dict[str, Any] = {"padding_mask": padding_mask, "segments": segments, "attn_bias": attn_bias}
            how |= {"freqs_cos": freqs_cos, "freqs_sin": freqs_sin, "attn_mask": attn_mask, "is_causal": self.causal}
            attended = self.dual_attn(z, symbols, need_weights=need_weights, cache=caches["dual_attn"], **how)
            cross = {"attn_mask": context_mask, "padding_mask": context_padding_mask, "need_weights": need_weights}
            x, cross_weights = self._finish(x, attended.output, context, cache=caches["cross_attn"], **cross)
            return (x, attended, cross_weights) if need_weights else x
