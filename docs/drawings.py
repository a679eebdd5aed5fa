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
    axis.plot([x], [y], marker=marker, color=colour, markersize=17 * size, markeredgecolor=INK, zorder=3)


def heads(axis: Any, left: float, colour: str, words: tuple[str, str, str, str], messages: Callable[..., None]) -> None:
    """A panel: three senders above, the receiver below, and a message on each arrow between them.

    Args:
        words: the title, the formula, and notes left and right of the receiver.
        messages: draws the message of a sender.
    """
    title, formula, *notes = words
    box(axis, left, 7.5, 41, 35, colour)
    axis.text(left + 20.5, 40, title, ha="center", va="center", fontsize=11.5, color=colour, weight="bold")
    receiver = (left + 20.5, 14.5)
    for number, (marker, hue, size) in enumerate(SENDERS):
        x = left + 6.5 + 14 * number
        thing(axis, x, 34.5, marker, hue, size)
        axis.text(x + 2.5, 35.8, f"$x_{number + 1}$", fontsize=10, color=INK)
        arrow(axis, (x, 32), (receiver[0] + 2.6 * (number - 1), receiver[1] + 2.6), width=(2.6, 1.0, 1.8)[number])
        messages(axis, x + 0.28 * (receiver[0] - x), 27.2, number)
    thing(axis, *receiver, "s", RED, 0.85)
    axis.text(receiver[0] + 2.7, receiver[1] - 1.2, "$x_i$", fontsize=10, color=INK)
    for x, note in zip((left + 8.2, left + 32.8), notes, strict=True):
        axis.text(x, 14.5, note, ha="center", va="center", fontsize=8.5, color=MUTED, linespacing=1.4)
    axis.text(left + 20.5, 10, formula, ha="center", va="center", fontsize=11, color=INK)


def features(axis: Any, x: float, y: float, number: int) -> None:
    """The message of a sensory head: the sender itself."""
    box(axis, x - 3, y - 2.5, 6, 5, BLUE)
    marker, colour, size = SENDERS[number]
    axis.plot([x], [y], marker=marker, color=colour, markersize=11 * size, markeredgecolor=INK, zorder=3)


def relation(axis: Any, x: float, y: float, number: int) -> None:
    """The message of a relational head: two relations with the receiver, of colour and of shape, and a symbol."""
    from matplotlib.patches import Rectangle

    box(axis, x - 4.3, y - 2.5, 8.6, 5, ORANGE)
    marker, colour, _ = SENDERS[number]
    for place, equal in ((x - 2.7, colour == RED), (x - 0.6, marker == "s")):
        axis.add_patch(Rectangle((place - 0.7, y - 1.7), 1.4, 3.4, facecolor=PALE, zorder=3))
        axis.add_patch(Rectangle((place - 0.7, y - 1.7), 1.4, 3.4 if equal else 0.5, facecolor=INK, zorder=4))
    axis.text(x + 2.4, y - 0.1, "abc"[number], ha="center", va="center", fontsize=12, color=ORANGE, weight="bold")


def dual_attention(path: Path) -> None:
    """Sensory heads and relational heads, side by side, between the same objects."""
    with house_style():
        figure, axis = canvas(9.2, 4.4)
        sensory = (
            "Sensory heads send features",
            r"$e_i = \sum_j \alpha_{ij}\ \phi_v(x_j)$",
            "thicker arrow:\nmore attention",
            "message:\nwhat the sender is",
        )
        relational = (
            "Relational heads send relations",
            r"$a_i = \sum_j \alpha_{ij}\ (W_r\, r(x_i, x_j) + W_s\, s_j)$",
            "bars, the relation:\nsame colour?\nsame shape?",
            "letter, the symbol:\nwho the sender is",
        )
        heads(axis, 2.5, BLUE, sensory, features)
        heads(axis, 48.5, ORANGE, relational, relation)
        for x, colour, text in ((23, BLUE, "$e_i$"), (46, ORANGE, "$a_i$")):
            box(axis, x, 1.2, 23, 4.4, colour, fill="#eef4fa" if colour == BLUE else "#fdf1e6")
            axis.text(x + 11.5, 3.4, text, ha="center", va="center", fontsize=11, color=INK)
        for start, end in (((23, 7.5), (30, 5.6)), ((69, 7.5), (62, 5.6))):
            arrow(axis, start, end)
        axis.text(70.5, 3.4, "concatenated", va="center", fontsize=8.5, color=MUTED)
        save(figure, path)


DRAWINGS: dict[str, Callable[[Path], None]] = {"dual-attention": dual_attention}
