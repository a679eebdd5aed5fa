"""The layers of Abstractors (Altabaa et al. 2024, arXiv 2304.00195).

Shapes: B batch, H heads, N objects, d width of objects and symbols.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor, nn

from .._layers.inputs import check_sequence
from .._layers.options import NormType
from ..attention import Attention
from ..functional.activations import Activation
from ..functional.masks import MaskPattern, Segments, mask_pattern
from ..relational_cross_attention import RelationalCrossAttention
from ..transformer_blocks import Block, FeedForwardBlock, create_norm

__all__ = ["AbstractorBlock", "AbstractorMaps", "ObjectStreamAbstractorBlock"]


class AbstractorMaps(NamedTuple):
    """The attention maps of one layer, ``(B, H, N, N)``.

    Attributes:
        relations: of relational cross-attention: how objects compare; None unless asked for.
        symbol_weights: of the self-attention among symbols, or None.
    """

    relations: Tensor | None
    symbol_weights: Tensor | None


class _AbstractorBlock(Block, ABC):
    """Sublayers and checks that both forms share."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dff: int | None,
        dropout_rate: float,
        activation: str,
        norm_first: bool,
        norm_type: NormType = "layernorm",
        bias: bool = True,
        *,
        symbol_self_attn: bool = True,
        rel_activation: str | Activation = "softmax",
    ) -> None:
        super().__init__(dropout_rate, norm_first)
        self.d_model = d_model
        attn: dict[str, Any] = {"dropout": dropout_rate, "add_bias_out": bias}
        self.self_attn = Attention(d_model, n_heads, **attn) if symbol_self_attn else None
        self.rel_attn = RelationalCrossAttention(d_model, n_heads, activation=rel_activation, **attn)
        self.ff_block = FeedForwardBlock(d_model, dff, activation, use_bias=bias)
        self._add_norms(norm_type)

    @abstractmethod
    def _add_norms(self, norm_type: NormType) -> None:
        """Register the normalisations, by which the two forms differ."""

    def forward(
        self,
        x: Tensor,
        symbols: Tensor,
        need_weights: bool = False,
        *,
        attn_mask: Tensor | MaskPattern | None = None,
        padding_mask: Tensor | None = None,
        segments: Segments | None = None,
    ) -> Tensor | tuple[Tensor, AbstractorMaps]:
        """Output ``(B, N, d)`` for objects and the symbols that stand for them, ``(B, N, d)`` each.

        Symbols may be the output of the layer before. With ``need_weights`` also the :class:`AbstractorMaps`; masks are
        those of both attention steps, as :meth:`Attention.forward <dual_attention.attention.Attention.forward>`.

        Raises:
            ValueError, TypeError: if shapes disagree or a mask is not boolean.
        """
        check_sequence("x", x, self.d_model)
        check_sequence("symbols", symbols, self.d_model, batch=(x.shape[0],))
        if symbols.shape[1] != x.shape[1]:
            raise ValueError(f"symbols: expected one for each of {x.shape[1]} objects, got {symbols.shape[1]}")
        batch, n, _ = x.shape
        heads = self.rel_attn.n_heads
        pattern = mask_pattern(attn_mask, padding_mask, segments=segments, batch=batch, heads=heads, n=n, m=n)
        output, maps = self._steps(x, symbols, need_weights, pattern)
        return (output, maps) if need_weights else output

    @abstractmethod
    def _steps(
        self, x: Tensor, symbols: Tensor, need_weights: bool, pattern: MaskPattern
    ) -> tuple[Tensor, AbstractorMaps]:
        """The steps of the layer."""

    def _attend_to_symbols(
        self, symbols: Tensor, norm: nn.Module, need_weights: bool, pattern: MaskPattern
    ) -> tuple[Tensor, Tensor | None]:
        """The residual step of self-attention among symbols, if there is one, and its weights."""
        if self.self_attn is None:
            return symbols, None
        z = self.pre_norm(symbols, norm)
        attended, weights = self.self_attn(z, z, z, need_weights=need_weights, attn_mask=pattern)
        return self.residual_step(symbols, attended, norm), weights


class AbstractorBlock(_AbstractorBlock):
    """One layer of an Abstractor: objects decide, by their relations, which symbols are combined.

    Math: A <- A + SelfAttn(A);  A <- A + RCA(X, A);  A <- A + FF(A)
        RCA(X, A)_i = concat_h(sum_j act(<W_q x_i, W_k x_j> / sqrt(head width)) a_j W_v^h) W_o

    The residual stream is that of the symbols, so that nothing of the objects but their relations passes: the
    relational bottleneck. The paper's code normalises after each step (``norm_first=False``). With pre-norm, whatever
    enters a sublayer is normalised, objects by a normalisation of their own.

    Args:
        n_heads: H, of both attention steps.
        bias: biases in the feed-forward block and in the output projections of attention.
        symbol_self_attn: begin with self-attention among symbols, which the authors' code may leave out, too.
        rel_activation: of the relations: softmax, or an elementwise one.
        others: as :class:`~dual_attention.transformer_blocks.EncoderBlock`.
    """

    def _add_norms(self, norm_type: NormType) -> None:
        self.norm_objects = create_norm(self.d_model, norm_type if self.norm_first else "none")
        self.norm1 = create_norm(self.d_model, "none" if self.self_attn is None else norm_type)
        self.norm2 = create_norm(self.d_model, norm_type)
        self.norm3 = create_norm(self.d_model, norm_type)

    def _steps(
        self, x: Tensor, symbols: Tensor, need_weights: bool, pattern: MaskPattern
    ) -> tuple[Tensor, AbstractorMaps]:
        a, weights = self._attend_to_symbols(symbols, self.norm1, need_weights, pattern)
        related, relations = self.rel_attn(
            self.norm_objects(x), self.pre_norm(a, self.norm2), need_weights=need_weights, attn_mask=pattern
        )
        a = self.residual_step(a, related, self.norm2)
        a = self.residual_step(a, self.ff_block(self.pre_norm(a, self.norm3)), self.norm3)
        return a, AbstractorMaps(relations, weights)


class ObjectStreamAbstractorBlock(_AbstractorBlock):
    """The layer that was run under the name of the Abstractor in arXiv 2405.16727 (Figure 7).

    Math, pre-norm: S <- S + SelfAttn(norm_1(S));  Y = X + RCA(norm_1(X), S);  A = Y + FF(norm_2(Y))

    Relational cross-attention is added to the objects instead of the symbols, so that their features pass, and one
    normalisation serves both attention steps. To build on Abstractors, use :class:`AbstractorBlock`.

    Arguments as :class:`AbstractorBlock`.
    """

    def _add_norms(self, norm_type: NormType) -> None:
        self.norm1 = create_norm(self.d_model, norm_type)
        self.norm2 = create_norm(self.d_model, norm_type)

    def _steps(
        self, x: Tensor, symbols: Tensor, need_weights: bool, pattern: MaskPattern
    ) -> tuple[Tensor, AbstractorMaps]:
        s, weights = self._attend_to_symbols(symbols, self.norm1, need_weights, pattern)
        related, relations = self.rel_attn(
            self.pre_norm(x, self.norm1), s, need_weights=need_weights, attn_mask=pattern
        )
        y = self.residual_step(x, related, self.norm1)
        a = self.residual_step(y, self.ff_block(self.pre_norm(y, self.norm2)), self.norm2)
        return a, AbstractorMaps(relations, weights)
