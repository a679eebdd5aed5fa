"""Vision models: the Vision Transformer (ViT) and the Vision Dual Attention Transformer (ViDAT).

Shapes: C channels, T tokens (a class token, registers if there are any, and the patches), d width of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from ._layers.cache import Cache
from ._layers.options import options_dict
from ._layers.symbols import Symbols
from ._models.retrievers import check_symbols_fit, retrieve_symbols, retriever_of
from ._models.stack import BlockInputs
from ._models.vision import VisionModel, VisionTrace
from ._models.weights import ignore_weights
from .configs import ImagePool, NormType, PatchPositions, RelationalHeadType, SymbolRetrieval, VisionConfig
from .dual_attn_blocks import DualAttnEncoderBlock
from .language_models import configure_optimizers
from .symbol_retrieval import PositionRelativeSymbolRetriever2D
from .transformer_blocks import EncoderBlock

__all__ = ["VisionDualAttnTransformer", "VisionModel", "VisionTrace", "VisionTransformer", "configure_optimizers"]


class VisionTransformer(VisionModel):
    """Vision Transformer (Dosovitskiy et al. 2021, arXiv 2010.11929).

    Args:
        image_shape: (channels, width, height).
        patch_size: (width, height) of a patch, which must tile the image.
        num_classes: C of the classifier.
        d_model: width of the model.
        n_layers, n_heads, dff, dropout_rate, activation, norm_first, norm_type, bias: of the encoder blocks, see
            :class:`~dual_attention.transformer_blocks.EncoderBlock`; ``dropout_rate`` also acts on the embeddings.
        pool: classify the class token (``"cls"``), the mean of all tokens, the class token included (``"mean"``), or
            the mean of the patches (``"patches"``).
        final_norm: normalise before pooling. The published package does not; the paper's CIFAR runs did.
        pos_enc: ``"learned"`` positions, for images of ``image_shape`` only; ``"interpolated"``: learned, resized
            (bicubic) for other sizes; ``"RoPE"``, by row and column of the patches, for all sizes; ``"none"``.
        n_registers: learned tokens behind the class token, without positions, that the other tokens attend to and no
            pooling reads, ``"mean"`` included (Darcet et al. 2024, arXiv 2309.16588).

    >>> model = VisionTransformer((1, 16, 16), (4, 4), num_classes=10, d_model=32, n_layers=1, n_heads=2)
    >>> model(torch.randn(2, 1, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        patch_size: tuple[int, int],
        num_classes: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        dff: int | None = None,
        dropout_rate: float = 0.0,
        activation: str = "gelu",
        norm_first: bool = True,
        norm_type: NormType = "layernorm",
        bias: bool = True,
        pool: ImagePool = "cls",
        *,
        final_norm: bool = False,
        pos_enc: PatchPositions = "learned",
        n_registers: int = 0,
    ) -> None:
        config = VisionConfig.of(locals())
        super().__init__(config)
        self._add_blocks(EncoderBlock(**config.arguments_for(EncoderBlock)) for _ in range(n_layers))


class VisionDualAttnTransformer(VisionModel):
    """Vision Dual Attention Transformer (arXiv 2405.16727, section 4.3).

    Symbols are retrieved by one retriever, from the tokens as they enter a block.

    Args:
        n_heads_sa, n_heads_ra: sensory and relational heads; without relational ones no symbol retriever is built.
        symbol_retrieval: ``"symbolic_attention"``, ``"rel_sym_attn"``, ``"positional_symbols"``,
            ``"position_relative"`` (along the sequence of tokens) or ``"position_relative_2d"`` (rows and columns of
            patches).
        symbol_retrieval_kwargs: arguments of that class of :mod:`dual_attention.symbol_retrieval`; by default as
            :class:`~dual_attention.language_models.DualAttnTransformerLM`. ``n_prefix_tokens`` of the last kind is set
            by the model: the class token and registers are one kind of sender to it.
        ra_type, ra_kwargs, sa_kwargs: as :class:`~dual_attention.dual_attention.DualAttention`; the two
            position-relative retrievals need ``ra_kwargs={"use_relative_positional_symbols": True, ...}``.
        update_symbols_each_layer: retrieve symbols anew for each block, as the published package does, or only once.
        others: as :class:`VisionTransformer`.

    >>> model = VisionDualAttnTransformer((1, 16, 16), (4, 4), 10, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1)
    >>> model(torch.randn(2, 1, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        patch_size: tuple[int, int],
        num_classes: int,
        d_model: int,
        n_layers: int,
        n_heads_sa: int,
        n_heads_ra: int,
        dff: int | None = None,
        dropout_rate: float = 0.0,
        activation: str = "gelu",
        norm_first: bool = True,
        symbol_retrieval: SymbolRetrieval = "symbolic_attention",
        symbol_retrieval_kwargs: Mapping[str, Any] | None = None,
        ra_type: RelationalHeadType = "relational_attention",
        ra_kwargs: Mapping[str, Any] | None = None,
        sa_kwargs: Mapping[str, Any] | None = None,
        norm_type: NormType = "layernorm",
        bias: bool = True,
        pool: ImagePool = "cls",
        *,
        final_norm: bool = False,
        pos_enc: PatchPositions = "learned",
        update_symbols_each_layer: bool = True,
        n_registers: int = 0,
    ) -> None:
        config = VisionConfig.of(locals())
        super().__init__(config)
        self.update_symbols_each_layer = update_symbols_each_layer
        check_symbols_fit(symbol_retrieval, n_heads_ra, ra_kwargs)
        self.symbol_retriever: nn.Module | None = None
        if n_heads_ra:
            tokens = math.prod(self.grid_size) + self.num_prefix_tokens
            options = options_dict("symbol_retrieval_kwargs", symbol_retrieval_kwargs)
            if symbol_retrieval == "position_relative_2d":
                options = {"n_prefix_tokens": self.num_prefix_tokens} | options
            own = replace(config, symbol_retrieval_kwargs=options)
            self.symbol_retriever = retriever_of(own, tokens, SymbolRetrieval)
            if getattr(self.symbol_retriever, "n_prefix_tokens", self.num_prefix_tokens) != self.num_prefix_tokens:
                raise ValueError(
                    f"symbol_retrieval_kwargs: expected n_prefix_tokens={self.num_prefix_tokens}, a class token and "
                    f"{n_registers} registers, got {options['n_prefix_tokens']}"
                )
        else:
            ignore_weights(self, "symbol_retriever.")
        self._add_blocks(DualAttnEncoderBlock(**config.arguments_for(DualAttnEncoderBlock)) for _ in range(n_layers))

    def _retrieve(self, number: int, x: Tensor, inputs: BlockInputs, cache: Cache | None) -> Symbols:
        if self.symbol_retriever is None:
            return x  # not read
        if isinstance(self.symbol_retriever, PositionRelativeSymbolRetriever2D):
            return self.symbol_retriever(x, inputs.grid_size)
        return retrieve_symbols(self.symbol_retriever, x)
