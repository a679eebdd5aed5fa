"""Figure of how much each head or relation of each layer matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..._base.colours import HIDDEN, colour_map
from ..._base.plots import house_style, matplotlib_figure
from .matrices import largest_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_importance(
    values: Tensor,
    half_widths: Tensor | None = None,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "",
    unit: str = "",
) -> Figure:
    """A figure of effects, a row for each layer and a column for each head or relation.

    Args:
        values: ``(layers, columns)``; NaN where a layer has fewer.
        half_widths: halves of their intervals; effects whose interval holds zero stand in brackets.
        rows, columns: names; by default layers and numbers.
        title: above the grid.
        unit: of the values, for the colour bar: ``"change in cross-entropy, nats"``.

    >>> draw_importance(torch.randn(2, 4), rows=["blocks.0", "blocks.1"], title="loss").savefig("importance.png")
    """
    names = check_importance(values, half_widths, rows, columns)
    down, across = values.shape
    values = values.detach().float().cpu()
    top = largest_of(values, ~values.isnan())
    with house_style():
        size = max(4.0, 1.6 + 0.95 * across), 1.0 + 0.55 * down
        figure, axis = matplotlib_figure(figsize=size)
        figure.set_layout_engine("constrained")
        axis.set_facecolor(HIDDEN)
        heat = axis.imshow(
            values.numpy(), cmap=colour_map(signed=True), vmin=-top, vmax=top, aspect="auto", interpolation="nearest"
        )
        for row, column in (~values.isnan()).nonzero().tolist():
            half = None if half_widths is None else float(half_widths[row, column])
            _write(axis, row, column, float(values[row, column]), half, top)
        axis.set_yticks(range(down), names[0], fontsize=9, parse_math=False)
        axis.set_xticks(range(across), names[1], fontsize=9, parse_math=False)
        axis.tick_params(length=0)
        axis.grid(False)
        for spine in axis.spines.values():
            spine.set_visible(False)
        figure.colorbar(heat, ax=axis, fraction=0.05, pad=0.02).set_label(unit, fontsize=9)
        if title:
            axis.set_title(title, fontsize=11, loc="left", parse_math=False)
    return figure


def check_importance(
    values: Tensor, half_widths: Tensor | None, rows: Sequence[str] | None, columns: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """Names of rows and columns, after checking that shapes fit."""
    if values.dim() != 2:
        raise ValueError(f"values: expected shape (layers, columns), got {tuple(values.shape)}")
    if half_widths is not None and half_widths.shape != values.shape:
        raise ValueError(f"half_widths: expected shape {tuple(values.shape)}, got {tuple(half_widths.shape)}")
    down, across = values.shape
    rows = list(rows) if rows is not None else [f"layer {number}" for number in range(down)]
    columns = list(columns) if columns is not None else [str(number) for number in range(across)]
    for name, given, size in (("rows", rows, down), ("columns", columns, across)):
        if len(given) != size:
            raise ValueError(f"{name}: expected {size}, got {len(given)}")
    return rows, columns


def _write(axis: Any, row: int, column: int, value: float, half: float | None, top: float) -> None:
    text = f"{value:.2g}"
    if half is not None:
        text = f"({text})\n±{half:.1g}" if abs(value) <= half else f"{text}\n±{half:.1g}"
    colour = "white" if abs(value) > 0.6 * top else "black"
    axis.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)


def importance_grid(effects: dict[tuple[str, int], float], layers: Sequence[str]) -> Tensor:
    """Effects by layer, all of which are named, and number as a grid ``(layers, most numbers)``, NaN for none.

    >>> importance_grid({("blocks.0", 0): 0.1, ("blocks.1", 1): 0.2}, ["blocks.0", "blocks.1"])
    tensor([[0.1000,    nan],
            [   nan, 0.2000]])
    """
    unknown = {layer for layer, _ in effects} - set(layers)
    if unknown:
        raise ValueError(f"layers: expected those of all effects, {', '.join(sorted(unknown))} among them")
    across = 1 + max((number for _, number in effects), default=0)
    grid = torch.full((len(layers), across), torch.nan)
    for (layer, number), value in effects.items():
        grid[list(layers).index(layer), number] = value
    return grid
