"""Transformer encoder and decoder blocks, and the parts that all blocks share.

Shapes: B batch, N length of the sequence, M length of the context, d width of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._layers.cache import Cache, CacheGroup
from ._layers.call import cache_parts, transaction
from ._layers.calls import TypedBlock, TypedModule
from ._layers.inputs import check_boolean, check_choice, check_dropout, check_features, check_positive, check_sequence
from ._layers.options import checked_options
from .attention import Attention
from .configs import NormType
from .functional import activation_function
from .functional.checks import MaybeNone, check_finite, check_same_device
from .functional.masks import MaskPattern, Segments

__all__ = ["DecoderBlock", "EncoderBlock", "FeedForwardBlock", "NormType", "RMSNorm", "create_norm"]


class FeedForwardBlock(TypedModule):
    """Two layers with an activation between, or the gated SwiGLU (Shazeer 2020, arXiv 2002.05202).

    Math: W_2 act(W_1 x), or W_2 (silu(W_1 x) * W_3 x)

    Args:
        embed_dim: width of input and output.
        dff: width within; by default ``4 * embed_dim``, for SwiGLU two thirds of that.
        activation: relu, gelu (tanh form), silu, ..., or swiglu.
        use_bias: biases in all layers.

    >>> FeedForwardBlock(64, activation="swiglu")(torch.randn(2, 9, 64)).shape
    torch.Size([2, 9, 64])
    """

    def __init__(
        self, embed_dim: int, dff: int | None = None, activation: str = "relu", use_bias: bool = False
    ) -> None:
        super().__init__()
        check_boolean(use_bias=use_bias)
        check_positive(embed_dim=embed_dim, dff=1 if dff is None else dff)
        gated = activation == "swiglu"
        if dff is None:
            dff = int(2 / 3 * 4 * embed_dim) if gated else 4 * embed_dim
        self.embed_dim = embed_dim
        self.activation = activation
        self._activate = F.silu if gated else activation_function(activation, besides=("swiglu",))
        self.linear1 = nn.Linear(embed_dim, dff, bias=use_bias)
        self.linear2 = nn.Linear(dff, embed_dim, bias=use_bias)
        self.linear3 = nn.Linear(embed_dim, dff, bias=use_bias) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        """``(..., embed_dim) -> (..., embed_dim)``."""
        check_features("x", x, self.embed_dim, self.linear1)
        hidden = self._activate(self.linear1(x))
        if self.linear3 is not None:
            hidden = hidden * self.linear3(x)
        return self.linear2(hidden)


class RMSNorm(TypedModule):
    """Root-mean-square normalisation (Zhang & Sennrich 2019, arXiv 1910.07467), computed in float32 or wider.

    As in the published package, the result is rounded to the dtype of ``x`` before it is multiplied by the weights:
    :class:`torch.nn.RMSNorm` rounds once, after that, so in half precision checkpoints would give other logits.

    Args:
        dim: width of the last axis.
        eps: added to the mean square.

    >>> RMSNorm(4)(torch.tensor([2.0, 2.0, -2.0, -2.0]))
    tensor([ 1.0000,  1.0000, -1.0000, -1.0000], grad_fn=<MulBackward0>)
    """

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        check_positive(dim=dim)
        check_finite(eps=eps)
        self.dim = dim
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def reset_parameters(self) -> None:
        """Set the weights to one."""
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """``(..., dim) -> (..., dim)``."""
        check_features("x", x, self.dim)
        check_same_device(weight=self.weight, x=x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normed = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return normed.type_as(x) * self.weight


def create_norm(d_model: int, norm_type: NormType = "layernorm") -> nn.Module:
    """The normalisation of that name: ``layernorm``, ``rmsnorm`` or ``none``.

    >>> create_norm(64, "rmsnorm"), create_norm(64, "none")
    (RMSNorm(), Identity())
    """
    check_positive(d_model=d_model)
    norms = {"layernorm": nn.LayerNorm, "rmsnorm": RMSNorm, "none": nn.Identity}
    check_choice("norm_type", norm_type, norms)
    return norms[norm_type](d_model)


class Block(TypedBlock):
    """Base of encoder and decoder blocks: residual steps with normalisation before or after.

    Subclasses register their normalisations and sublayers themselves, under the names of the published state dicts.
    """

    norm1: nn.Module
    norm2: nn.Module
    ff_block: FeedForwardBlock

    def __init__(self, dropout_rate: float, norm_first: bool, causal: bool = False) -> None:
        check_boolean(norm_first=norm_first, causal=causal)
        super().__init__()
        self.norm_first = norm_first
        self.causal = causal
        self.dropout = nn.Dropout(check_dropout("dropout_rate", dropout_rate))

    def pre_norm(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Input of a sublayer: with pre-norm normalised, otherwise as it is."""
        if not self.norm_first:
            return x
        if isinstance(norm, (nn.LayerNorm, RMSNorm)):  # no union: torch 2.7 cannot trace it
            width = norm.dim if isinstance(norm, RMSNorm) else norm.normalized_shape[0]
            check_sequence("x", x, width, layer=norm)
        return norm(x)

    def residual_step(self, x: Tensor, change: Tensor, norm: nn.Module, *, drop: bool = True) -> Tensor:
        """Sum of a sublayer's input and output; with post-norm normalised."""
        x = x + (self.dropout(change) if drop else change)
        return x if self.norm_first else norm(x)

    def feed_forward(self, x: Tensor, norm: nn.Module, *, drop: bool = True) -> Tensor:
        """The residual step of the feed-forward block."""
        return self.residual_step(x, self.ff_block(self.pre_norm(x, norm)), norm, drop=drop)


class EncoderSteps(Block):
    """The common part of encoder blocks, whatever their attention is."""

    post_norm_dropout: bool

    _attention: str

    @property
    def attention(self) -> Any:
        """The attention of the tokens to each other."""
        return getattr(self, self._attention)

    def new_cache(self, max_length: int | None = None) -> Any:
        """An empty cache for causal decoding; ``max_length``: most tokens to come, reserved at once."""
        return self.attention.new_cache(max_length)

    def _finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Add what attention brought, then feed forward."""
        x = self.residual_step(x, attended, self.norm1)
        if self.post_norm_dropout and not self.norm_first:
            x = self.dropout(x)
        return self.feed_forward(x, self.norm2)


class DecoderSteps(Block):
    """The common part of decoder blocks, whatever their attention to earlier tokens is."""

    norm3: nn.Module
    cross_attn: Attention
    ff_dropout: bool
    cache_names: tuple[str, str]

    @property
    def attention(self) -> Any:
        """The attention of the tokens to each other."""
        return getattr(self, self.cache_names[0])

    def new_cache(self, max_length: int | None = None) -> CacheGroup:
        """An empty cache for causal decoding; ``max_length``: most tokens to come, reserved at once."""
        caches = self.attention.new_cache(max_length), self.cross_attn.new_context_cache()
        return CacheGroup(dict(zip(self.cache_names, caches, strict=True)))

    def _finish(self, x: Tensor, attended: Tensor, context: Tensor, **how: Any) -> tuple[Tensor, Tensor | MaybeNone]:
        """Add what attention brought, attend to the context, then feed forward; also the weights on the context."""
        x = self.residual_step(x, attended, self.norm1)
        attended, weights = self.cross_attn(self.pre_norm(x, self.norm2), context, context, **how)
        x = self.residual_step(x, attended, self.norm2)
        return self.feed_forward(x, self.norm3, drop=self.ff_dropout), weights


class EncoderBlock(EncoderSteps):
    """Transformer encoder block: self-attention and feed-forward, each in a residual step.

    Args:
        d_model: width of the model.
        n_heads: attention heads.
        dff: width within the feed-forward block; None for its default.
        dropout_rate: rate in attention and on both residual steps.
        activation: of the feed-forward block.
        norm_first: pre-norm, otherwise post-norm.
        norm_type: layernorm, rmsnorm or none.
        bias: biases in the feed-forward block and in the attention's output projection.
        causal: no position sees a later one.
        attn_kwargs: further arguments of :class:`~dual_attention.attention.Attention`.
        post_norm_dropout: with post-norm, drop once more between the two steps, as the published package does.

    >>> EncoderBlock(d_model=64, n_heads=4)(torch.randn(2, 9, 64)).shape
    torch.Size([2, 9, 64])
    """

    _attention = "self_attn"

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dff: int | None = None,
        dropout_rate: float = 0.0,
        activation: str = "gelu",
        norm_first: bool = True,
        norm_type: NormType = "layernorm",
        bias: bool = True,
        causal: bool = False,
        attn_kwargs: Mapping[str, Any] | None = None,
        *,
        post_norm_dropout: bool = True,
    ) -> None:
        check_boolean(bias=bias, post_norm_dropout=post_norm_dropout)
        super().__init__(dropout_rate, norm_first, causal)
        self.post_norm_dropout = post_norm_dropout
        self.norm1 = create_norm(d_model, norm_type)
        attn: dict[str, Any] = {"dropout": dropout_rate, "add_bias_out": bias}
        own = checked_options("attn_kwargs", attn_kwargs, Attention, taken=("d_model", "n_heads"))
        self.self_attn = Attention(d_model, n_heads, **{**attn, **own})
        self.norm2 = create_norm(d_model, norm_type)
        self.ff_block = FeedForwardBlock(d_model, dff, activation, use_bias=bias)

    def forward(
        self,
        x: Tensor,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        need_weights: bool = False,
        *,
        attn_mask: Tensor | MaskPattern | None = None,
        padding_mask: Tensor | None = None,
        segments: Segments | None = None,
        attn_bias: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """``(B, N, d) -> (B, N, d)``; with ``need_weights`` the pair of that and the weights ``(B, H, N, N)``.

        The other arguments are those of :meth:`Attention.forward <dual_attention.attention.Attention.forward>`. With a
        cache from ``new_cache``, ``x`` holds only new tokens.
        """
        with transaction(cache):
            z = self.pre_norm(x, self.norm1)
            how: dict[str, Any] = {"padding_mask": padding_mask, "segments": segments, "attn_bias": attn_bias}
            how |= {"freqs_cos": freqs_cos, "freqs_sin": freqs_sin, "attn_mask": attn_mask, "is_causal": self.causal}
            attended, weights = self.self_attn(z, z, z, need_weights=need_weights, cache=cache, **how)
            x = self._finish(x, attended)
            return (x, weights) if need_weights else x


class DecoderBlock(DecoderSteps):
    """Transformer decoder block: self-attention, cross-attention to a context, and feed-forward.

    Args:
        n_heads, n_heads_cross: heads of self-attention and of cross-attention.
        cross_kwargs: further arguments of the cross-attention.
        ff_dropout: drop the feed-forward block's output; the published package does not.
        others: as :class:`EncoderBlock`.

    >>> DecoderBlock(d_model=64, n_heads=4, n_heads_cross=4)(torch.randn(2, 9, 64), torch.randn(2, 5, 64)).shape
    torch.Size([2, 9, 64])
    """

    cache_names = "self_attn", "cross_attn"

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_heads_cross: int,
        dff: int | None = None,
        dropout_rate: float = 0.0,
        activation: str = "gelu",
        norm_first: bool = True,
        norm_type: NormType = "layernorm",
        bias: bool = True,
        causal: bool = False,
        *,
        attn_kwargs: Mapping[str, Any] | None = None,
        cross_kwargs: Mapping[str, Any] | None = None,
        ff_dropout: bool = False,
    ) -> None:
        check_boolean(bias=bias, ff_dropout=ff_dropout)
        super().__init__(dropout_rate, norm_first, causal)
        self.ff_dropout = ff_dropout
        attn: dict[str, Any] = {"dropout": dropout_rate, "add_bias_out": bias}
        self.norm1 = create_norm(d_model, norm_type)
        own = checked_options("attn_kwargs", attn_kwargs, Attention, taken=("d_model", "n_heads"))
        self.self_attn = Attention(d_model, n_heads, **{**attn, **own})
        self.norm2 = create_norm(d_model, norm_type)
        own = checked_options("cross_kwargs", cross_kwargs, Attention, taken=("d_model", "n_heads"))
        self.cross_attn = Attention(d_model, n_heads_cross, **{**attn, **own})
        self.norm3 = create_norm(d_model, norm_type)
        self.ff_block = FeedForwardBlock(d_model, dff, activation, use_bias=bias)

    def forward(
        self,
        x: Tensor,
        context: Tensor,
        freqs_cos: Tensor | None = None,
        freqs_sin: Tensor | None = None,
        need_weights: bool = False,
        *,
        context_mask: Tensor | MaskPattern | None = None,
        context_padding_mask: Tensor | None = None,
        attn_mask: Tensor | MaskPattern | None = None,
        padding_mask: Tensor | None = None,
        segments: Segments | None = None,
        attn_bias: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """``(B, N, d)`` and a context ``(B, M, d)`` to ``(B, N, d)``.

        Args:
            context_mask: boolean, ``(N, M)`` or broadcastable to ``(B, H', N, M)``, H' heads of the cross-attention;
                True = may be attended. Or a :class:`~dual_attention.functional.MaskPattern`.
            context_padding_mask: boolean, ``(B, M)``; True = a real position of the context.
            cache: from ``new_cache``; ``x`` then holds only new tokens, and the context is read in the first
                call, which keeps its keys and values: later ones must give one of the same shape.
            freqs_cos, freqs_sin, attn_mask, padding_mask, segments, attn_bias: of the self-attention.
            need_weights: return also the weights of self-attention ``(B, H, N, N)`` and of cross-attention
                ``(B, H', N, M)``.
        """
        with transaction(cache):
            caches = cache_parts(cache, self.cache_names)
            z = self.pre_norm(x, self.norm1)
            how: dict[str, Any] = {"padding_mask": padding_mask, "segments": segments, "attn_bias": attn_bias}
            how |= {"freqs_cos": freqs_cos, "freqs_sin": freqs_sin, "attn_mask": attn_mask, "is_causal": self.causal}
            attended, weights = self.self_attn(z, z, z, need_weights=need_weights, cache=caches["self_attn"], **how)
            cross = {"attn_mask": context_mask, "padding_mask": context_padding_mask, "need_weights": need_weights}
            x, cross_weights = self._finish(x, attended, context, cache=caches["cross_attn"], **cross)
            return (x, weights, cross_weights) if need_weights else x
