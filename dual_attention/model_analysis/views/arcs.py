"""Figure of pairs as arcs over a line of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..._base.colours import line_colour
from ..._base.extras import require
from ..._base.plots import empty_figure, house_style
from .matrices import largest_of
from .tokens import drawable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE = 10.0  # points of the text
_PER_INCH = 72.0


def draw_arcs(
    values: Tensor,
    labels: Sequence[str],
    *,
    receiver: int | None = None,
    visible: Tensor | None = None,
    most: int = 40,
    title: str = "",
) -> Figure:
    """A figure of values of pairs as arcs, wider for larger ones; orange for positive and blue for negative values.

    Args:
        values: ``(N, N)``, receivers first; the diagonal is not drawn.
        labels: of the N objects, in a line.
        receiver: only arcs from this object to its senders; by default from all.
        visible: boolean ``(N, N)``, pairs that may be drawn; by default all.
        most: number of arcs; those of the largest values.
        title: above the arcs.

    >>> draw_arcs(torch.randn(3, 3), ["the", "cat", "sat"], receiver=2).savefig("arcs.png")
    """
    n = len(labels)
    if values.shape != (n, n):
        raise ValueError(f"values: expected shape ({n}, {n}) beside {n} labels, got {tuple(values.shape)}")
    if receiver is not None and not 0 <= receiver < n:
        raise ValueError(f"receiver: expected 0 to {n - 1}, got {receiver}")
    shown = torch.ones(n, n, dtype=torch.bool) if visible is None else visible.cpu().expand(n, n).clone()
    shown &= ~torch.eye(n, dtype=torch.bool)
    if receiver is not None:
        shown[torch.arange(n) != receiver] = False
    values = values.detach().float().cpu()
    top = largest_of(values, shown)
    pairs = shown.nonzero()
    sizes = values[shown].abs()
    chosen = pairs[sizes.argsort(descending=True, stable=True)[:most]].flip(0).tolist()  # the largest on top
    with house_style():
        figure = empty_figure((4.0, 2.0))
        axis = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        centres, width = _place_text(figure, axis, drawable(labels), receiver)
        reach = max((abs(centres[i] - centres[j]) for i, j in chosen), default=_SIZE)
        height = min(0.5 * reach, 230.0) + 14.0
        room = 26.0 if title else 6.0
        total = height + room + 34.0
        figure.set_size_inches(width / _PER_INCH, total / _PER_INCH)
        axis.set(xlim=(0, width), ylim=(-32.0, height + room))
        axis.set_axis_off()
        for i, j in chosen:
            _arc(axis, centres[i], centres[j], float(values[i, j]) / top, height - 14.0, reach)
        for x, sign, text in ((10.0, 1, "━ positive"), (70.0, -1, "━ negative")):
            axis.text(x, -22.0, text, fontsize=8, va="top", color=line_colour(sign))
        if title:
            sign = "±" if any(values[i, j] < 0 for i, j in chosen) else ""
            text = f"{title}   widest {sign}{top:.2g}"
            axis.text(8.0, height + room - 4.0, text, fontsize=11, va="top", parse_math=False)
    return figure


def _place_text(figure: Any, axis: Any, labels: Sequence[str], receiver: int | None) -> tuple[list[float], float]:
    """Write labels in a line; returns their centres, and the length of the line, in points."""
    renderer = figure.canvas.get_renderer()
    centres, place = [], 10.0
    for number, label in enumerate(labels):
        weight = "bold" if number == receiver else "normal"
        text = axis.text(0, -4.0, label, fontsize=_SIZE, va="top", ha="center", fontweight=weight, parse_math=False)
        width = text.get_window_extent(renderer).width * _PER_INCH / figure.dpi
        centres.append(place + width / 2)
        text.set_x(centres[-1])
        place += width + 5.0
    return centres, max(place + 5.0, 160.0)


def _arc(axis: Any, one: float, other: float, value: float, height: float, reach: float) -> None:
    """Half an ellipse from one place to the other."""
    middle, width = (one + other) / 2, abs(one - other)
    arc = require("matplotlib.patches", extra="train").Arc
    axis.add_patch(
        arc(
            (middle, 0.0),
            width,
            2 * height * width / reach,
            theta1=0,
            theta2=180,
            color=line_colour(value),
            linewidth=0.4 + 4.0 * abs(value),
            alpha=0.15 + 0.75 * abs(value),
        )
    )
