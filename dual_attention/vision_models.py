"""Vision models: the Vision Transformer (ViT) and the Vision Dual Attention Transformer (ViDAT).

Shapes: B batch, C channels, height and width of the image in pixels, T tokens (a class token and the patches), d width
of the model.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from einops.layers.torch import Rearrange
from torch import Tensor, nn

from ._layers.calls import typed_call
from ._layers.config import SymbolRetrieval, arguments_for, config_of
from ._layers.inputs import check_dropout
from ._layers.options import AttentionOptions, NormType, RelationalHeadType, RelationalOptions, SymbolOptions
from ._models.config import PatchPositions, Pool, VisionConfig
from ._models.passing import Step, apply_blocks, trace_blocks
from ._models.retrievers import check_symbols_fit, create_symbol_retriever
from .dual_attention import DualAttentionOutput
from .dual_attn_blocks import DualAttnEncoderBlock
from .functional import MaskPattern
from .language_models import configure_optimizers
from .relational_attention import Symbols
from .symbol_retrieval import PositionalSymbolRetriever, PositionRelativeSymbolRetriever2D
from .transformer_blocks import EncoderBlock, create_norm

__all__ = ["VisionDualAttnTransformer", "VisionModel", "VisionTrace", "VisionTransformer", "configure_optimizers"]


def patch_embedding(height: int, width: int, channels: int, d_model: int) -> nn.Sequential:
    """Patches of images as vectors: ``(B, C, rows * height, columns * width) -> (B, rows * columns, d_model)``."""
    patch_dim = height * width * channels
    return nn.Sequential(
        Rearrange("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=height, p2=width),
        nn.LayerNorm(patch_dim),
        nn.Linear(patch_dim, d_model),
        nn.LayerNorm(d_model),
    )


def patch_grid(height: int, width: int, patch_height: int, patch_width: int) -> tuple[int, int]:
    """Rows and columns of patches; ``ValueError`` if they do not tile the image."""
    if height % patch_height or width % patch_width or not height or not width:
        raise ValueError(
            f"image: patches of height {patch_height} and width {patch_width} do not tile an image of "
            f"height {height} and width {width}"
        )
    return height // patch_height, width // patch_width


class VisionTrace(NamedTuple):
    """Everything that passed through the L blocks of an image classifier.

    Attributes:
        scores: of the classes, ``(B, num_classes)``.
        hidden: ``(B, T, d)``, the tokens that are pooled.
        states: L + 1 tensors ``(B, T, d)``: the input of each block, and the output of the last, before the last norm.
        maps: of each block its attention weights ``(B, H, T, T)``, or its
            :class:`~dual_attention.dual_attention.DualAttentionOutput`.
    """

    scores: Tensor
    hidden: Tensor
    states: tuple[Tensor, ...]
    maps: tuple[Tensor | DualAttentionOutput, ...]


class GridInputs(NamedTuple):
    """Inputs of every block beside its tokens: rows and columns of patches, and the pairs that may be attended, all."""

    grid_size: tuple[int, int]
    pattern: MaskPattern


class VisionModel(nn.Module):
    """Patches, class token and positions before the blocks; pooling and classifier after them.

    Subclasses fill ``encoder_blocks`` and say how one is applied.
    """

    gradient_checkpointing: bool = False
    """Whether blocks keep only their inputs for the backward pass, and are computed again there."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        width, pool, pos_enc = config.d_model, config.pool, config.pos_enc
        self.image_channels, image_width, image_height = config.image_shape
        self.patch_width, self.patch_height = config.patch_size
        if pool not in ("cls", "mean"):
            raise ValueError(f"pool: expected 'cls' or 'mean', got {pool!r}")
        if pos_enc not in ("learned", "interpolated", "none"):
            raise ValueError(f"pos_enc: expected 'learned', 'interpolated' or 'none', got {pos_enc!r}")
        self.pool = pool
        self.pos_enc = pos_enc
        self.d_model = width
        self.grid_size = self._grid_of(image_height, image_width)
        self.to_patch_embedding = patch_embedding(
            self.patch_height, self.patch_width, channels=self.image_channels, d_model=width
        )
        self.pos_embedding = None
        if pos_enc != "none":
            self.pos_embedding = nn.Parameter(torch.randn(1, self.grid_size[0] * self.grid_size[1] + 1, width))
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.dropout = nn.Dropout(check_dropout("dropout_rate", config.dropout_rate))
        self.encoder_blocks = nn.ModuleList()
        self.norm = create_norm(width, config.norm_type if config.final_norm else "none")
        self.final_out = nn.Linear(width, config.num_classes)

    @abstractmethod
    def _block(
        self, number: int, x: Tensor, symbols: Symbols | None, inputs: GridInputs, need_weights: bool = False
    ) -> tuple[Any, Symbols | None]:
        """One block on the tokens of a grid of patches, see :class:`~dual_attention._models.passing.Step`."""

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of images.

        Args:
            x: ``(B, C, height, width)``, floating point.

        Returns:
            ``(B, num_classes)``.

        Raises:
            ValueError: if the number of channels is wrong, the patches do not tile the image, or the positions of the
                model do not allow its size.
        """
        x, grid_size = self._enter(x)
        return self._classify(self.norm(self.apply_blocks(x, grid_size)))

    def trace(self, x: Tensor) -> VisionTrace:
        """Scores, all hidden states, and the maps of all blocks, which are built for this; ``x`` as :meth:`forward`."""
        x, grid_size = self._enter(x)
        states, maps = trace_blocks(self._step(x, grid_size), len(self.encoder_blocks), x)
        hidden = self.norm(states[-1])
        return VisionTrace(self._classify(hidden), hidden, states, maps)

    def apply_blocks(self, x: Tensor, grid_size: tuple[int, int]) -> Tensor:
        """All encoder blocks on the tokens ``(B, T, d)`` of a grid of patches."""
        step, depth = self._step(x, grid_size), len(self.encoder_blocks)
        return apply_blocks(step, depth, x, recompute=self.gradient_checkpointing)

    def _step(self, x: Tensor, grid_size: tuple[int, int]) -> Step:
        """How each block is applied to the tokens ``(B, T, d)`` of a grid."""
        inputs = GridInputs(grid_size, MaskPattern(x.shape[1], x.shape[1]))

        def step(number: int, x: Tensor, symbols: Symbols | None, need_weights: bool = False) -> tuple[Any, Any]:
            return self._block(number, x, symbols, inputs, need_weights)

        return step

    def _enter(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images as tokens with positions, and the grid of their patches."""
        if x.dim() != 4 or x.shape[1] != self.image_channels:
            raise ValueError(f"x: expected shape (batch, {self.image_channels}, height, width), got {tuple(x.shape)}")
        grid_size = self._grid_of(x.shape[2], x.shape[3])
        x = self.to_patch_embedding(x)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        return self.dropout(self._add_positions(x, grid_size)), grid_size

    def _classify(self, hidden: Tensor) -> Tensor:
        return self.final_out(hidden[:, 0] if self.pool == "cls" else hidden.mean(dim=1))

    def _grid_of(self, height: int, width: int) -> tuple[int, int]:
        return patch_grid(height, width, self.patch_height, self.patch_width)

    def _add_positions(self, x: Tensor, grid_size: tuple[int, int]) -> Tensor:
        if self.pos_embedding is None:
            return x
        positions = self.pos_embedding
        if grid_size != self.grid_size:
            if self.pos_enc != "interpolated":
                raise ValueError(
                    f"x: this model has learned positions for a grid of {self.grid_size} patches (rows, columns), got "
                    f"{grid_size}; other image sizes need pos_enc='interpolated' or pos_enc='none'"
                )
            grid = positions[:, 1:].unflatten(1, self.grid_size).permute(0, 3, 1, 2)
            grid = F.interpolate(grid, size=grid_size, mode="bicubic", align_corners=False)
            positions = torch.cat((positions[:, :1], grid.flatten(2).transpose(1, 2)), dim=1)
        return x + positions

    __call__ = typed_call(forward)


class VisionTransformer(VisionModel):
    """Vision Transformer (Dosovitskiy et al. 2021, arXiv 2010.11929).

    Args:
        image_shape: (channels, width, height).
        patch_size: (width, height) of a patch, which must tile the image.
        num_classes: C of the classifier.
        d_model: width of the model.
        n_layers, n_heads, dff, dropout_rate, activation, norm_first, norm_type, bias: of the encoder blocks, see
            :class:`~dual_attention.transformer_blocks.EncoderBlock`; ``dropout_rate`` also acts on the embeddings.
        pool: classify the class token (``"cls"``) or the mean of all tokens, the class token included (``"mean"``).
        final_norm: normalise before pooling. The published package does not; the paper's CIFAR runs did.
        pos_enc: ``"learned"`` positions, for images of ``image_shape`` only; ``"interpolated"``: learned, resized
            (bicubic) for other sizes; ``"none"``.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        patch_size: tuple[int, int],
        num_classes: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        dff: int | None,
        dropout_rate: float,
        activation: str,
        norm_first: bool,
        norm_type: NormType = "layernorm",
        bias: bool = True,
        pool: Pool = "cls",
        *,
        final_norm: bool = False,
        pos_enc: PatchPositions = "learned",
    ) -> None:
        config = config_of(VisionConfig, locals())
        super().__init__(config)
        for _ in range(n_layers):
            self.encoder_blocks.append(EncoderBlock(**arguments_for(EncoderBlock, config)))

    def _block(
        self, number: int, x: Tensor, symbols: Symbols | None, inputs: GridInputs, need_weights: bool = False
    ) -> tuple[Any, Symbols | None]:
        return self.encoder_blocks[number](x, need_weights=need_weights, attn_mask=inputs.pattern), None


class VisionDualAttnTransformer(VisionModel):
    """Vision Dual Attention Transformer (arXiv 2405.16727, section 4.3).

    Symbols are retrieved by one retriever, from the tokens as they enter a block.

    Args:
        n_heads_sa, n_heads_ra: sensory and relational heads.
        symbol_retrieval: ``"symbolic_attention"``, ``"rel_sym_attn"``, ``"positional_symbols"``,
            ``"position_relative"`` (along the sequence of tokens) or ``"position_relative_2d"`` (rows and columns of
            patches).
        symbol_retrieval_kwargs: arguments of that class of :mod:`dual_attention.symbol_retrieval`.
        ra_type, ra_kwargs, sa_kwargs: as :class:`~dual_attention.dual_attention.DualAttention`; the two
            position-relative retrievals need ``ra_kwargs={"use_relative_positional_symbols": True, ...}``.
        update_symbols_each_layer: retrieve symbols anew for each block, as the published package does; otherwise once,
            for the first.
        image_shape, patch_size, num_classes, d_model, n_layers, dff, dropout_rate, activation, norm_first, norm_type,
        bias, pool, final_norm, pos_enc: as :class:`VisionTransformer`.
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
        dff: int | None,
        dropout_rate: float,
        activation: str,
        norm_first: bool,
        symbol_retrieval: SymbolRetrieval,
        symbol_retrieval_kwargs: SymbolOptions,
        ra_type: RelationalHeadType = "relational_attention",
        ra_kwargs: RelationalOptions | None = None,
        sa_kwargs: AttentionOptions | None = None,
        norm_type: NormType = "layernorm",
        bias: bool = True,
        pool: Pool = "cls",
        *,
        final_norm: bool = False,
        pos_enc: PatchPositions = "learned",
        update_symbols_each_layer: bool = True,
    ) -> None:
        config = config_of(VisionConfig, locals())
        super().__init__(config)
        self.update_symbols_each_layer = update_symbols_each_layer
        self.symbol_retriever = create_symbol_retriever(symbol_retrieval, symbol_retrieval_kwargs, SymbolRetrieval)
        check_symbols_fit(symbol_retrieval, n_heads_ra, ra_kwargs)
        for _ in range(n_layers):
            self.encoder_blocks.append(DualAttnEncoderBlock(**arguments_for(DualAttnEncoderBlock, config)))

    def _block(
        self, number: int, x: Tensor, symbols: Symbols | None, inputs: GridInputs, need_weights: bool = False
    ) -> tuple[Any, Symbols | None]:
        if symbols is None:
            symbols = self.symbols(x, inputs.grid_size)
        out = self.encoder_blocks[number](x, symbols, need_weights=need_weights, attn_mask=inputs.pattern)
        return out, None if self.update_symbols_each_layer else symbols

    def symbols(self, x: Tensor, grid_size: tuple[int, int]) -> Symbols:
        """Symbols for the tokens ``x`` ``(B, T, d)`` of a grid of (rows, columns) patches."""
        retriever = self.symbol_retriever
        if isinstance(retriever, PositionRelativeSymbolRetriever2D):
            return retriever(x, grid_size)
        if isinstance(retriever, PositionalSymbolRetriever):
            return retriever(x[:1])  # the same in every example: projected once
        return retriever(x)
