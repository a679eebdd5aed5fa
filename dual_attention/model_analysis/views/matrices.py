"""Figure of matrices over pairs: relations, attention of each head.

Shapes: N receivers, M senders, K matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..._base.colours import HIDDEN, MUTED, colour_bar, colour_map
from ..._base.plots import house_style, matplotlib_figure
from .tokens import drawable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LABELS = 48
"""Objects beyond which a matrix labels only every other, or fewer."""


def draw_matrices(
    values: Tensor,
    receivers: Sequence[str],
    senders: Sequence[str] | None = None,
    *,
    titles: Sequence[str] | None = None,
    visible: Tensor | None = None,
    signed: bool = True,
    title: str = "",
    names: tuple[str, str] = ("receiver", "sender"),
    columns: int = 4,
) -> Figure:
    """A figure with one panel for each of several matrices over the same pairs.

    Every panel has a colour scale of its own, since relations differ in scale. Pairs that may not be attended are grey.

    Args:
        values: ``(N, M, K)``; or ``(N, M)`` for a single one.
        receivers, senders: labels of rows and of columns; ``senders`` by default the receivers.
        titles: K names; by default numbers.
        visible: boolean ``(N, M)``; by default all.
        signed: orange for positive values and blue for negative ones; otherwise one hue, from zero.
        title: above all panels.
        names: of the rows and the columns.
        columns: most panels in a row.

    >>> figure = draw_matrices(torch.randn(3, 3, 2), ["the", "cat", "sat"], titles=["relation 0", "relation 1"])
    >>> figure.savefig("matrices.png")
    """
    values = _checked(values, receivers, receivers if senders is None else senders, titles, visible)
    rows_of, columns_of = drawable(receivers), drawable(receivers if senders is None else senders)
    count = values.shape[2]
    titles = titles or [str(number) for number in range(count)]
    across = min(columns, count)
    down = math.ceil(count / across)
    size = [(2.0 + 0.22 * n) if count == 1 and n <= 24 else min(5.0, 1.3 + 0.17 * n) for n in values.shape[:2]]
    labelled = max(map(len, [*rows_of, *columns_of]), default=0) * 0.07
    with house_style():
        figure, axes = matplotlib_figure(
            *(down, across), figsize=(across * (size[1] + labelled), down * (size[0] + labelled)), squeeze=False
        )
        figure.set_layout_engine("constrained")
        for place, axis in enumerate(axes.flat):
            if place < count:
                _matrix(axis, values[..., place], visible, signed, titles[place])
                _label(axis, rows_of, columns_of)
                if place % across == 0:
                    axis.set_ylabel(names[0], fontsize=8.5, color=MUTED)
                if place >= count - across:
                    axis.set_xlabel(names[1], fontsize=8.5, color=MUTED)
            else:
                axis.set_axis_off()
        if title:
            figure.suptitle(title, fontsize=12, parse_math=False)
    return figure


def largest_of(values: Tensor, visible: Tensor | None) -> float:
    """Largest size of a value that is shown; 1 if there is none, so that it can end a scale."""
    shown = values if visible is None else values[visible]
    return float(shown.abs().max()) or 1.0 if shown.numel() else 1.0


def _checked(
    values: Tensor,
    receivers: Sequence[str],
    senders: Sequence[str],
    titles: Sequence[str] | None,
    visible: Tensor | None,
) -> Tensor:
    if not isinstance(values, Tensor):
        raise TypeError(f"values: expected a tensor (N, M, matrices), got {type(values).__name__}")
    values = values[..., None] if values.dim() == 2 else values
    n, m = len(receivers), len(senders)
    if values.dim() != 3 or values.shape[:2] != (n, m):
        raise ValueError(f"values: expected shape ({n}, {m}, matrices), got {tuple(values.shape)}")
    if titles is not None and len(titles) != values.shape[2]:
        raise ValueError(f"titles: expected {values.shape[2]}, got {len(titles)}")
    if visible is not None and visible.shape != values.shape[:2]:
        raise ValueError(f"visible: expected shape {tuple(values.shape[:2])}, got {tuple(visible.shape)}")
    return values.detach().float().cpu()


def _matrix(axis: Any, values: Tensor, visible: Tensor | None, signed: bool, title: str) -> None:
    visible = None if visible is None else visible.cpu()
    top = largest_of(values, visible)
    shown = values if visible is None else torch.where(visible, values, torch.nan)
    axis.set_facecolor(HIDDEN)
    image = axis.imshow(
        shown.numpy(),
        cmap=colour_map(signed=signed),
        vmin=-top if signed else 0.0,
        vmax=top,
        interpolation="nearest",
        aspect="equal",
    )
    axis.grid(False)
    colour_bar(axis, image)
    axis.set_title(title, fontsize=9.5, parse_math=False)
    axis.spines[:].set_visible(False)


def _label(axis: Any, rows: Sequence[str], columns: Sequence[str]) -> None:
    size = 8.0 if max(len(rows), len(columns)) <= 24 else 6.5
    for labels, place in ((rows, "y"), (columns, "x")):
        step = math.ceil(len(labels) / MOST_LABELS)
        ticks = range(0, len(labels), step)
        getattr(axis, f"set_{place}ticks")(
            list(ticks),
            [labels[tick] for tick in ticks],
            fontsize=size,
            parse_math=False,
            **({"rotation": 90} if place == "x" else {}),
        )
    axis.tick_params(length=0, pad=2)
    axis.xaxis.tick_top()
    axis.xaxis.set_label_position("bottom")
