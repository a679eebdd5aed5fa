"""Base of the image classifiers: patches, class token and positions before the blocks, the classifier after them.

Shapes: B batch, C channels, height and width of the image in pixels, T tokens (a class token and the patches), d width
of the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from einops.layers.torch import Rearrange
from torch import Tensor, nn

from .._layers.inputs import check_choice, check_depth, check_dropout, check_like, check_positive
from ..dual_attention import DualAttentionOutput
from ..functional import MaskPattern
from ..functional.checks import check_tensor
from ..transformer_blocks import create_norm
from .config import PatchPositions, Pool, VisionConfig
from .stack import BlockInputs, StackModel

PROJECTION = 2
"""Place of the linear layer among the parts of :func:`patch_embedding`."""


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
            f"image: patches of height {patch_height} and width {patch_width} do not tile one of {height} x {width}"
        )
    return height // patch_height, width // patch_width


def checked_sizes(name: str, given: Iterable[int], number: int) -> tuple[int, ...]:
    """So many positive sizes; ``TypeError`` or ``ValueError`` for others."""
    sizes = tuple(given) if isinstance(given, Iterable) and not isinstance(given, Tensor) else ()
    if len(sizes) != number:
        raise ValueError(f"{name}: expected {number} sizes, got {given!r}")
    for size in sizes:
        check_positive(**{name: size})
    return sizes


class VisionTrace(NamedTuple):
    """Everything that passed through the L blocks of an image classifier.

    Attributes:
        scores: of the classes, ``(B, num_classes)``.
        hidden: ``(B, T, d)``, the tokens that are pooled.
        states, maps: as :class:`~dual_attention.language_models.Trace`.
    """

    scores: Tensor
    hidden: Tensor
    states: tuple[Tensor, ...]
    maps: tuple[Tensor | DualAttentionOutput, ...]


class VisionModel(StackModel):
    """An image classifier; its subclasses fill ``encoder_blocks``."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        width, pool, pos_enc = config.d_model, config.pool, config.pos_enc
        check_depth(n_layers=config.n_layers)
        check_positive(d_model=width, num_classes=config.num_classes)
        self.image_channels, image_width, image_height = checked_sizes("image_shape", config.image_shape, 3)
        self.patch_width, self.patch_height = checked_sizes("patch_size", config.patch_size, 2)
        check_choice("pool", pool, Pool)
        check_choice("pos_enc", pos_enc, PatchPositions)
        self.pool = pool
        self.pos_enc = pos_enc
        self.d_model = width
        self.grid_size = patch_grid(image_height, image_width, self.patch_height, self.patch_width)
        self.to_patch_embedding = patch_embedding(
            self.patch_height, self.patch_width, channels=self.image_channels, d_model=width
        )
        self.pos_embedding = None
        if pos_enc != "none":
            self.pos_embedding = nn.Parameter(torch.randn(1, self.grid_size[0] * self.grid_size[1] + 1, width))
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.dropout = nn.Dropout(check_dropout("dropout_rate", config.dropout_rate))
        self.encoder_blocks: Any = nn.ModuleList()
        self.norm = create_norm(width, config.norm_type if config.final_norm else "none")
        self.final_out = nn.Linear(width, config.num_classes)

    def _stack(self) -> nn.ModuleList:
        return self.encoder_blocks

    def forward(self, x: Tensor) -> Tensor:
        """Class scores ``(B, num_classes)`` of images ``(B, C, height, width)``, floating point.

        ``ValueError`` if the patches do not tile the image, or the positions of the model do not allow its size.
        """
        return self.final_out(self.pooled(self.hidden(x)))

    def hidden(self, x: Tensor) -> Tensor:
        """Tokens ``(B, T, d)`` that are pooled, the class token first; ``x`` as :meth:`forward`."""
        return self.norm(self._pass(*self._enter(x)))

    def trace(self, x: Tensor) -> VisionTrace:
        """Scores, all hidden states, and the maps of all blocks, which are built for this; ``x`` as :meth:`forward`."""
        states, maps = self._record(*self._enter(x))
        hidden = self.norm(states[-1])
        return VisionTrace(self.final_out(self.pooled(hidden)), hidden, states, maps)

    def _enter(self, x: Tensor) -> tuple[Tensor, BlockInputs]:
        """Images as tokens with positions, and the inputs of every block."""
        check_tensor("x", x)
        if x.dim() != 4 or x.shape[1] != self.image_channels:
            raise ValueError(f"x: expected shape (batch, {self.image_channels}, height, width), got {tuple(x.shape)}")
        check_like("x", x, self.to_patch_embedding[1])
        grid_size = patch_grid(x.shape[2], x.shape[3], self.patch_height, self.patch_width)
        x = self.to_patch_embedding(x)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        arguments = {"attn_mask": MaskPattern(x.shape[1], x.shape[1])}
        return self.dropout(self._add_positions(x, grid_size)), BlockInputs(arguments, grid_size=grid_size)

    def pooled(self, hidden: Tensor) -> Tensor:
        """Tokens as one vector: ``(B, T, d) -> (B, d)``."""
        return hidden[:, 0] if self.pool == "cls" else hidden.mean(dim=1)

    def _add_positions(self, x: Tensor, grid_size: tuple[int, int]) -> Tensor:
        if self.pos_embedding is None:
            return x
        positions = self.pos_embedding
        if grid_size != self.grid_size:
            if self.pos_enc != "interpolated":
                raise ValueError(
                    f"x: expected a grid of {self.grid_size} patches, or pos_enc='interpolated', got {grid_size}"
                )
            grid = positions[:, 1:].unflatten(1, self.grid_size).permute(0, 3, 1, 2)
            grid = F.interpolate(grid, size=grid_size, mode="bicubic", align_corners=False)
            positions = torch.cat((positions[:, :1], grid.flatten(2).transpose(1, 2)), dim=1)
        return x + positions
