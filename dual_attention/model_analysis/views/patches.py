"""Figure of the relations between the patches of an image (Figure 9 of the paper).

Shapes: C channels, N patches, R relations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..._base.colours import colour_bar, colour_map
from ..._base.extras import require
from ..._base.plots import empty_figure, house_style
from .matrices import largest_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_patch_relations(
    image: Tensor,
    relations: Tensor,
    patch: int | None,
    grid: tuple[int, int],
    *,
    titles: Sequence[str] | None = None,
    title: str = "",
    columns: int = 4,
) -> Figure:
    """A figure of an image with one patch outlined, and of each relation from that patch to all others.

    The scale of a map ends at the largest value of another patch; that of the patch itself may lie beyond.

    Args:
        image: ``(C, height, width)``, numbers in [0, 1] or of type uint8; one or three channels.
        relations: ``(N, N, R)``, receivers first, of patches only: without a class token. If no patch is the receiver
            ``(1, N, R)``.
        patch: the receiver, counted row by row; None if it is no patch.
        grid: rows and columns of patches.
        titles: R names; by default numbers.
        title: above all panels.
        columns: most heat maps in a row.

    >>> figure = draw_patch_relations(torch.rand(1, 16, 16), torch.randn(16, 16, 3), patch=5, grid=(4, 4))
    >>> figure.savefig("patches.png")
    """
    n = grid[0] * grid[1]
    receivers = n if patch is not None else 1
    if relations.dim() != 3 or relations.shape[:2] != (receivers, n):
        raise ValueError(f"relations: expected ({receivers}, {n}, R), no class token, got {tuple(relations.shape)}")
    if image.dim() != 3 or image.shape[0] not in (1, 3):
        raise ValueError(f"image: expected shape (1 or 3, height, width), got {tuple(image.shape)}")
    names = list(titles) if titles is not None else [f"relation {number}" for number in range(relations.shape[2])]
    if len(names) != relations.shape[2]:
        raise ValueError(f"titles: expected {relations.shape[2]}, got {len(names)}")
    if patch is not None and not 0 <= patch < len(relations):
        raise ValueError(f"patch: expected 0 to {len(relations) - 1}, got {patch}")
    count = len(names)
    values = relations[patch or 0].detach().float().cpu()
    wide = min(columns, count)
    down = math.ceil(count / wide)
    with house_style():
        height = 2.0 * max(down, 1.25) + (0.45 if title else 0.1)
        figure = empty_figure((2.0 * (wide + 1.25), height))
        layout = figure.add_gridspec(1, 2, width_ratios=[1.25, wide], wspace=0.06)
        shown = figure.add_subplot(layout[0])
        shown.set_anchor("C" if down == 1 else "N")
        _image(shown, image, patch, grid)
        panels = layout[1].subgridspec(down, wide, wspace=0.35, hspace=0.3)
        for number in range(count):
            axis = figure.add_subplot(panels[divmod(number, wide)])
            _heat(axis, values[:, number], patch, grid, names[number])
        if title:
            y = 0.88 + 0.3 / height
            figure.suptitle(title, fontsize=12, y=y, verticalalignment="bottom", parse_math=False)
    return figure


def _image(axis: Any, image: Tensor, patch: int | None, grid: tuple[int, int]) -> None:
    pixels = image.detach().cpu().permute(1, 2, 0)
    pixels = pixels.float() if pixels.is_floating_point() else pixels.float() / 255.0
    pixels = pixels.expand(-1, -1, 3).clamp(0, 1)
    height, width = pixels.shape[0] / grid[0], pixels.shape[1] / grid[1]
    axis.imshow(pixels.numpy(), interpolation="nearest")
    if patch is not None:
        row, column = divmod(patch, grid[1])
        _outline(axis, column * width - 0.5, row * height - 0.5, width, height)
    _bare(axis, "image" if patch is None else "image, and patch i")


def _heat(axis: Any, values: Tensor, patch: int | None, grid: tuple[int, int], name: str) -> None:
    # An object's relation to itself is often far larger than any other, which a scale to its size would hide.
    others = torch.ones(len(values), dtype=torch.bool) if patch is None else torch.arange(len(values)) != patch
    top = largest_of(values, others)
    options = {"cmap": colour_map(signed=True), "vmin": -top, "vmax": top, "interpolation": "nearest"}
    colour_bar(axis, axis.imshow(values.view(grid).numpy(), **options))
    if patch is not None:
        row, column = divmod(patch, grid[1])
        _outline(axis, column - 0.5, row - 0.5, 1.0, 1.0)
    _bare(axis, name)


def _outline(axis: Any, x: float, y: float, width: float, height: float) -> None:
    """A frame that is seen on dark and on light ground."""
    rectangle = require("matplotlib.patches", extra="train").Rectangle
    for colour, line in (("white", 3.4), ("black", 1.4)):
        axis.add_patch(rectangle((x, y), width, height, fill=False, edgecolor=colour, linewidth=line, clip_on=False))


def _bare(axis: Any, title: str) -> None:
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=9, parse_math=False)
    axis.grid(False)
    axis.spines[:].set_visible(False)
