"""The Abstractor (Altabaa et al. 2024, arXiv 2304.00195).

Shapes: B batch, N objects, d width of objects and symbols.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from torch import Tensor, nn

from .._layers.inputs import check_positive, check_sequence
from .._layers.options import NormType, SymbolOptions, arguments_of
from .._models.retrievers import create_symbol_retriever, retrieve_symbols
from ..functional import MaskPattern, mask_pattern, positions_from_padding
from ..functional.activations import Activation
from ..functional.masks import Segments
from .abstractor_blocks import AbstractorBlock, AbstractorMaps, ObjectStreamAbstractorBlock

__all__ = ["Abstractor", "AbstractorOptions", "AbstractorSymbols", "ResidualStream"]

AbstractorSymbols = Literal["positional_symbols", "symbolic_attention", "rel_sym_attn"]
"""Symbol mechanisms that give each object one symbol, which can then be a residual stream."""

ResidualStream = Literal["symbols", "objects"]
"""The stream to which the residual steps of relational cross-attention add."""


class AbstractorOptions(TypedDict, total=False):
    """Arguments of :class:`Abstractor` without ``d_model``: ``abstractor_kwargs``."""

    n_layers: int
    n_heads: int
    dff: int | None
    dropout_rate: float
    activation: str
    norm_first: bool
    norm_type: NormType
    bias: bool
    symbol_retrieval: AbstractorSymbols
    symbol_retrieval_kwargs: SymbolOptions
    symbol_self_attn: bool
    rel_activation: str | Activation
    residual: ResidualStream


class Abstractor(nn.Module):
    """Abstractor: turns objects into symbols that know the relations of their objects, and nothing else about them.

    Math: A^(0) = S, symbols for X;  A^(l) = layer l of (X, A^(l-1)), see
    :class:`~dual_attention.baselines.AbstractorBlock`

    Args:
        d_model: d.
        n_layers: layers; all of them see the same objects.
        n_heads, dff, dropout_rate, activation, norm_first, norm_type, bias, symbol_self_attn, rel_activation: of the
            layers, see :class:`~dual_attention.baselines.AbstractorBlock`.
        symbol_retrieval: ``"positional_symbols"``, ``"symbolic_attention"`` or ``"rel_sym_attn"``.
        symbol_retrieval_kwargs: arguments of that class of :mod:`dual_attention.symbol_retrieval`.
        residual: ``"symbols"``, as the paper defines it, or ``"objects"``, as in Figure 7 of arXiv 2405.16727, see
            :class:`~dual_attention.baselines.ObjectStreamAbstractorBlock`.
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
        symbol_retrieval_kwargs: SymbolOptions,
        norm_type: NormType = "layernorm",
        bias: bool = True,
        *,
        symbol_self_attn: bool = True,
        rel_activation: str | Activation = "softmax",
        residual: ResidualStream = "symbols",
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, n_layers=n_layers)
        if residual not in ("symbols", "objects"):
            raise ValueError(f"residual: expected 'symbols' or 'objects', got {residual!r}")
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
            need_weights: return also the :class:`AbstractorMaps` of each layer.
            attn_mask, padding_mask, segments: of all attention steps, as :meth:`Attention.forward
                <dual_attention.attention.Attention.forward>`; True = may be attended.
            positions: integers ``(B or 1, N)``, for the symbols; by default objects are counted, with a padding mask
                the real ones.

        Raises:
            ValueError, TypeError: if shapes disagree or a mask is not boolean; or if there is padding, and
                ``"rel_sym_attn"`` looks at later neighbours, which might be padding.
        """
        check_sequence("x", x, self.d_model)
        batch, n, _ = x.shape
        first: Any = self.blocks[0]
        heads = first.rel_attn.n_heads
        pattern = mask_pattern(attn_mask, padding_mask, segments=segments, batch=batch, heads=heads, n=n, m=n)
        if positions is None and pattern.padding is not None:
            positions = positions_from_padding(pattern.padding)
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
