"""The look that all plots share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .colours import PALE
from .extras import require
from .files import replaced_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: dict[str, Any] = {
    "figure.dpi": 100,
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": PALE,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}


def empty_figure(figsize: tuple[float, float] | None = None) -> Figure:
    """A figure off screen, of ``figsize`` inches; pyplot, and so a user's notebook, does not know of it."""
    figure = require("matplotlib.figure", extra="train").Figure(figsize=figsize)
    require("matplotlib.backends.backend_agg", extra="train").FigureCanvasAgg(figure)
    return figure


def matplotlib_figure(*shape: int, figsize: tuple[float, float] | None = None, **options: Any) -> tuple[Figure, Any]:
    """An :func:`empty_figure` and its panels, ``figure.subplots(*shape, **options)``."""
    figure = empty_figure(figsize)
    return figure, figure.subplots(*shape, **options)


def house_style() -> AbstractContextManager[None]:
    """Context in which figures take :data:`STYLE`."""
    return require("matplotlib", extra="train").rc_context(STYLE)


def save_figure(figure: Any, path: Path, *, dpi: int = 150) -> None:
    """Write a PNG of ``dpi`` pixels an inch, atomically."""
    with replaced_atomically(path) as file:
        figure.savefig(file, format="png", dpi=dpi, bbox_inches="tight", facecolor="white")


def plain_number(value: float, _: object = None) -> str:
    """A number in digits, without a power of ten."""
    if value == round(value):
        return f"{value:,.0f}"
    return f"{value:,.12f}".rstrip("0") if abs(value) < 1 else f"{value:,.4f}".rstrip("0")


def scale_log(axis: Any) -> None:
    """Give a panel whose curves are drawn a logarithmic vertical scale, with plain numbers as ticks.

    One that shows no positive number is left as it is.
    """
    if axis.dataLim.minposy == float("inf"):
        return
    ticker = require("matplotlib.ticker", extra="train")
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    steps = (1, 2, 5) if high < 10_000 * low else (1,)
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=steps) if high > 8 * low else ticker.MaxNLocator(6))
    axis.yaxis.set_major_formatter(plain_number)
    axis.yaxis.set_minor_locator(ticker.NullLocator())


def count_along(axis: Any) -> None:
    """Give a panel whole numbers as ticks of its horizontal axis, which counts epochs, steps or examples."""
    ticker = require("matplotlib.ticker", extra="train")
    most = 6 if axis.get_xlim()[1] < 1_000 else 4  # numbers of four digits are wide
    axis.xaxis.set_major_locator(ticker.MaxNLocator(nbins=most, integer=True, min_n_ticks=1))
    axis.xaxis.set_major_formatter(plain_number)


def legend_below(figure: Any, handles: Sequence[Any], **options: Any) -> Any:
    """A legend below all panels, with as many columns as the figure is wide enough for."""
    for columns in range(min(len(handles), 6), 0, -1):
        legend = figure.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns, **options)
        if columns == 1 or legend.get_window_extent(figure.canvas.get_renderer()).width <= figure.bbox.width:
            return legend
        legend.remove()
    return None
