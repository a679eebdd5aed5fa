"""The Abstractor and its layers (Altabaa et al. 2024, arXiv 2304.00195).

Shapes: B batch, H heads, N objects, d width of objects and symbols.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from .._layers.calls import TypedBlock
from .._layers.inputs import check_boolean, check_choice, check_depth, check_positive, check_sequence
from .._layers.options import arguments_of
from .._models.inputs import count_positions
from .._models.retrievers import create_symbol_retriever, retrieve_symbols
from ..attention import Attention
from ..configs import NormType
from ..functional import MaskPattern, mask_pattern
from ..functional.activations import Activation
from ..functional.checks import MaybeNone
from ..functional.masks import Segments
from ..relational_cross_attention import RelationalCrossAttention
from ..transformer_blocks import Block, FeedForwardBlock, create_norm

AbstractorSymbols = Literal["positional_symbols", "symbolic_attention", "rel_sym_attn"]
"""Symbol mechanisms that give each object one symbol, which can then be a residual stream."""

ResidualStream = Literal["symbols", "objects"]
"""The stream to which the residual steps of relational cross-attention add."""


class AbstractorMaps(NamedTuple):
    """Attention maps of one layer, ``(B, H, N, N)``.

    Attributes:
        relations: map of relational cross-attention, how objects compare; None unless asked for.
        symbol_weights: map of the self-attention among symbols, or None.
    """

    relations: Tensor | MaybeNone
    symbol_weights: Tensor | MaybeNone


class AbstractorBlock(Block):
    """One layer of an Abstractor: objects decide, by their relations, which symbols are combined.

    Math: A <- A + SelfAttn(A);  A <- A + RCA(X, A);  A <- A + FF(A)
        RCA(X, A)_i = concat_h(sum_j act(<W_q x_i, W_k x_j> / sqrt(head width)) a_j W_v^h) W_o

    The residual stream is that of the symbols, so that nothing of the objects passes but their relations: the
    relational bottleneck. The paper's code normalises after each step (``norm_first=False``). With pre-norm, the inputs
    of a sublayer are normalised, objects by a normalisation of their own.

    Args:
        n_heads: H, of both attention steps.
        bias: biases in the feed-forward block and in the output projections of attention.
        symbol_self_attn: begin with self-attention among symbols, which is optional in the authors' code too.
        rel_activation: activation of the relations, softmax or an elementwise one.
        others: as :class:`~dual_attention.transformer_blocks.EncoderBlock`.

    >>> block = AbstractorBlock(d_model=32, n_heads=2)
    >>> symbols, maps = block(torch.randn(2, 9, 32), symbols=torch.randn(2, 9, 32), need_weights=True)
    >>> symbols.shape, maps.relations.shape
    (torch.Size([2, 9, 32]), torch.Size([2, 2, 9, 9]))
    """

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
        *,
        symbol_self_attn: bool = True,
        rel_activation: str | Activation = "softmax",
    ) -> None:
        check_boolean(bias=bias, symbol_self_attn=symbol_self_attn)
        super().__init__(dropout_rate, norm_first)
        self.d_model = d_model
        attn: dict[str, Any] = {"dropout": dropout_rate, "add_bias_out": bias}
        self.self_attn = Attention(d_model, n_heads, **attn) if symbol_self_attn else None
        self.rel_attn = RelationalCrossAttention(d_model, n_heads, activation=rel_activation, **attn)
        self.ff_block = FeedForwardBlock(d_model, dff, activation, use_bias=bias)
        self._add_norms(norm_type)

    def _add_norms(self, norm_type: NormType) -> None:
        self.norm_objects = create_norm(self.d_model, norm_type if self.norm_first else "none")
        self.norm1 = create_norm(self.d_model, "none" if self.self_attn is None else norm_type)
        self.norm2 = create_norm(self.d_model, norm_type)
        self.norm3 = create_norm(self.d_model, norm_type)

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
        """Output ``(B, N, d)`` for objects and their symbols, ``(B, N, d)`` each.

        Symbols may be the output of the layer before. With ``need_weights`` also the :class:`AbstractorMaps`. Masks are
        those of both attention steps, as :meth:`Attention.forward <dual_attention.attention.Attention.forward>`.
        """
        check_sequence("x", x, self.d_model)
        check_sequence("symbols", symbols, self.d_model, batch=(x.shape[0],))
        if symbols.shape[1] != x.shape[1]:
            raise ValueError(f"symbols: expected one for each of {x.shape[1]} objects, got {symbols.shape[1]}")
        batch, n, _ = x.shape
        heads = self.rel_attn.n_heads
        pattern = mask_pattern(attn_mask, padding_mask, segments=segments, batch=batch, heads=heads, n=n, m=n)
        weights = None
        if self.self_attn is not None:
            z = self.pre_norm(symbols, self.norm1)
            attended, weights = self.self_attn(z, z, z, need_weights=need_weights, attn_mask=pattern)
            symbols = self.residual_step(symbols, attended, self.norm1)
        output, relations = self._relate(x, symbols, need_weights=need_weights, attn_mask=pattern)
        return (output, AbstractorMaps(relations, weights)) if need_weights else output

    def _relate(self, x: Tensor, symbols: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
        """Residual steps of relational cross-attention and feed-forward, and the map of the former."""
        related, relations = self.rel_attn(self.norm_objects(x), self.pre_norm(symbols, self.norm2), **options)
        a = self.residual_step(symbols, related, self.norm2)
        return self.feed_forward(a, self.norm3), relations


class ObjectStreamAbstractorBlock(AbstractorBlock):
    """The layer that was run as the Abstractor in arXiv 2405.16727 (Figure 7).

    Math, pre-norm: S <- S + SelfAttn(norm_1(S));  Y = X + RCA(norm_1(X), S);  A = Y + FF(norm_2(Y))

    Relational cross-attention is added to the objects instead of the symbols, so that their features pass, and one
    normalisation serves both attention steps. Arguments as :class:`AbstractorBlock`, which is the one to build on.

    >>> ObjectStreamAbstractorBlock(d_model=32, n_heads=2)(torch.randn(2, 9, 32), symbols=torch.randn(2, 9, 32)).shape
    torch.Size([2, 9, 32])
    """

    def _add_norms(self, norm_type: NormType) -> None:
        self.norm1 = create_norm(self.d_model, norm_type)
        self.norm2 = create_norm(self.d_model, norm_type)

    def _relate(self, x: Tensor, symbols: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
        related, relations = self.rel_attn(self.pre_norm(x, self.norm1), symbols, **options)
        y = self.residual_step(x, related, self.norm1)
        return self.feed_forward(y, self.norm2), relations


class Abstractor(TypedBlock):
    """Abstractor: from objects to symbols that know the relations of their objects, and nothing else about them.

    Math: A^(0) = S, symbols for X;  A^(l) = layer l of (X, A^(l-1)), see :class:`AbstractorBlock`

    Args:
        d_model: d.
        n_layers: number of layers; all of them see the same objects.
        n_heads, dff, dropout_rate, activation, norm_first, norm_type, bias, symbol_self_attn, rel_activation: of the
            layers, see :class:`AbstractorBlock`.
        symbol_retrieval: ``"positional_symbols"``, ``"symbolic_attention"`` or ``"rel_sym_attn"``.
        symbol_retrieval_kwargs: arguments of that class of :mod:`dual_attention.symbol_retrieval`.
        residual: ``"symbols"``, as in the paper, or ``"objects"``, see :class:`ObjectStreamAbstractorBlock`.

    >>> symbols = {"d_model": 32, "n_heads": 2, "n_symbols": 8}
    >>> model = Abstractor(32, 1, 2, 64, 0.0, "relu", True, "symbolic_attention", symbols)
    >>> model(torch.randn(2, 9, 32)).shape
    torch.Size([2, 9, 32])
    """

    def __init__(
        self,
        d_model: int,
        n_layers: int,
        n_heads: int,
        dff: int | None,
        dropout_rate: float,
        activation: str,
        norm_first: bool,
        symbol_retrieval: AbstractorSymbols,
        symbol_retrieval_kwargs: Mapping[str, Any],
        norm_type: NormType = "layernorm",
        bias: bool = True,
        *,
        symbol_self_attn: bool = True,
        rel_activation: str | Activation = "softmax",
        residual: ResidualStream = "symbols",
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model)
        check_depth(n_layers=n_layers)
        check_choice("residual", residual, ResidualStream)
        self.d_model = d_model
        self.residual = residual
        self.symbol_retriever = create_symbol_retriever(symbol_retrieval, symbol_retrieval_kwargs, AbstractorSymbols)
        kind = AbstractorBlock if residual == "symbols" else ObjectStreamAbstractorBlock
        block = arguments_of(kind, locals())
        self.blocks = nn.ModuleList(kind(**block) for _ in range(n_layers))

    def forward(
        self,
        x: Tensor,
        need_weights: bool = False,
        *,
        attn_mask: Tensor | MaskPattern | None = None,
        padding_mask: Tensor | None = None,
        segments: Segments | None = None,
        positions: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, list[AbstractorMaps]]:
        """``(B, N, d) -> (B, N, d)``.

        Args:
            need_weights: also return the :class:`AbstractorMaps` of each layer.
            attn_mask, padding_mask, segments: of all attention steps, as :meth:`Attention.forward
                <dual_attention.attention.Attention.forward>`; True = may be attended.
            positions: integers ``(B or 1, N)``, for the symbols; by default the (real) objects of each segment are
                counted. ``"rel_sym_attn"`` that looks at later neighbours takes no padding and no segments, since those
                might be of others. Its neighbours are those by place: one that is absent between present ones is seen.
        """
        first: Any = self.blocks[0]
        check_sequence("x", x, self.d_model, layer=first.rel_attn.wq)
        batch, n, _ = x.shape
        heads = first.rel_attn.n_heads
        pattern = mask_pattern(attn_mask, padding_mask, segments=segments, batch=batch, heads=heads, n=n, m=n)
        if positions is None:
            positions = count_positions(pattern.padding, pattern.receiver_segments)
        symbols = retrieve_symbols(self.symbol_retriever, x, positions)
        assert isinstance(symbols, Tensor)  # as symbols of objects are
        a = symbols.expand(batch, -1, -1)
        maps = []
        for block in self.blocks:
            a = block(x, a, need_weights, attn_mask=pattern)
            if need_weights:
                a, of_layer = a
                maps.append(of_layer)
        return (a, maps) if need_weights else a
