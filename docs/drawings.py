"""Drawings that explain the library, beside the pictures of what pages compute.

Their ground is white, not transparent, so that a page may be light or dark.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gallery_pictures import save

from dual_attention._base.colours import BLUE, INK, MUTED, ORANGE, PALE, RED
from dual_attention._base.plots import house_style, matplotlib_figure

SENDERS = (("s", RED, 0.85), ("o", BLUE, 1.0), ("o", RED, 0.95))
"""Three objects: marker, colour, relative size. The receiver is a red square."""


def canvas(width: float, height: float) -> tuple[Any, Any]:
    """A figure without axes, one unit to a tenth of an inch."""
    figure, axis = matplotlib_figure(figsize=(width, height))
    axis.set_position((0, 0, 1, 1))
    axis.set_xlim(0, 10 * width)
    axis.set_ylim(0, 10 * height)
    axis.axis("off")
    return figure, axis


def box(axis: Any, x: float, y: float, width: float, height: float, colour: str, *, fill: str = "white") -> None:
    """A rounded box with its lower left corner at (x, y)."""
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=1.2"
    axis.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle=style, edgecolor=colour, facecolor=fill, linewidth=1.2)
    )


def arrow(axis: Any, start: tuple[float, float], end: tuple[float, float], *, width: float = 1.2) -> None:
    look = {"arrowstyle": "-|>", "color": MUTED, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", end, start, arrowprops=look, zorder=1)


def thing(axis: Any, x: float, y: float, marker: str, colour: str, size: float = 1.0) -> None:
    """An object."""
    axis.plot([x], [y], marker=marker, color=colour, markersize=24 * size, markeredgecolor=INK, zorder=3)


def heads(axis: Any, left: float, colour: str, words: tuple[str, str, str], messages: Callable[..., None]) -> None:
    """A panel: three senders above, the receiver below, and a message on each arrow between them.

    Letters are large: a phone shows them a fifth of the size of print.

    Args:
        words: the title, the formula, and notes below it.
        messages: draws the message of a sender.
    """
    title, formula, notes = words
    box(axis, left, 9, 39.6, 57, colour)
    centre = left + 19.8
    axis.text(centre, 60.2, title, ha="center", va="center", fontsize=18, color=colour, weight="bold")
    receiver = (centre, 29.5)
    for number, (marker, hue, size) in enumerate(SENDERS):
        x = centre + 12.8 * (number - 1)
        thing(axis, x, 51.5, marker, hue, size)
        axis.text(x + 2.8, 51.8, f"$x_{number + 1}$", fontsize=16, color=INK)
        arrow(axis, (x, 49), (receiver[0] + 2.6 * (number - 1), receiver[1] + 3), width=(3.6, 1.2, 2.4)[number])
        messages(axis, x, 42.7, number)
    thing(axis, *receiver, "s", RED, 0.85)
    axis.text(receiver[0] + 3.2, receiver[1] - 1.6, "$x_i$", fontsize=16, color=INK)
    axis.text(centre, 23, formula, ha="center", va="center", fontsize=16.5, color=INK)
    axis.text(centre, 14.2, notes, ha="center", va="center", fontsize=16, color=MUTED, linespacing=1.4)


def features(axis: Any, x: float, y: float, number: int) -> None:
    """The message of a sensory head: the sender itself."""
    box(axis, x - 4, y - 3.4, 8, 6.8, BLUE)
    marker, colour, size = SENDERS[number]
    axis.plot([x], [y], marker=marker, color=colour, markersize=17 * size, markeredgecolor=INK, zorder=3)


def relation(axis: Any, x: float, y: float, number: int) -> None:
    """The message of a relational head: two relations with the receiver, of colour and of shape, and a symbol."""
    from matplotlib.patches import Rectangle

    box(axis, x - 5.8, y - 3.4, 11.6, 6.8, ORANGE)
    marker, colour, _ = SENDERS[number]
    for place, equal in ((x - 3.7, colour == RED), (x - 0.7, marker == "s")):
        axis.add_patch(Rectangle((place - 1, y - 2.4), 2, 4.8, facecolor=PALE, zorder=3))
        axis.add_patch(Rectangle((place - 1, y - 2.4), 2, 4.8 if equal else 0.7, facecolor=INK, zorder=4))
    axis.text(x + 3.3, y - 0.2, "abc"[number], ha="center", va="center", fontsize=18, color=ORANGE, weight="bold")


def dual_attention(path: Path) -> None:
    """Sensory heads and relational heads, side by side, between the same objects."""
    with house_style():
        figure, axis = canvas(8.4, 6.8)
        sensory = (
            "Sensory heads\nsend features",
            r"$e_i = \sum_j \alpha_{ij}\ \phi_v(x_j)$",
            "thicker arrow: more attention\nmessage: what the sender is",
        )
        relational = (
            "Relational heads\nsend relations",
            r"$a_i = \sum_j \alpha_{ij}\ (W_r\, r(x_i, x_j) + W_s\, s_j)$",
            "bars: same colour? same shape?\nletter: who the sender is",
        )
        heads(axis, 1.6, BLUE, sensory, features)
        heads(axis, 42.8, ORANGE, relational, relation)
        for x, colour, text in ((14, BLUE, "$e_i$"), (42, ORANGE, "$a_i$")):
            box(axis, x, 1.2, 28, 5.4, colour, fill="#eef4fa" if colour == BLUE else "#fdf1e6")
            axis.text(x + 14, 3.8, text, ha="center", va="center", fontsize=17, color=INK)
        for start, end in (((21.4, 9), (26, 6.6)), ((62.6, 9), (58, 6.6))):
            arrow(axis, start, end)
        axis.text(70.6, 3.8, "concatenated", va="center", fontsize=15, color=MUTED)
        save(figure, path)


DRAWINGS: dict[str, Callable[[Path], None]] = {"dual-attention": dual_attention}
