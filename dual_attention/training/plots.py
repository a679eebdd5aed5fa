"""The plot of a run, and the look that all plots share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .._extras import require
from .._files import replaced_atomically
from .metrics import read_rows

STYLE: dict[str, Any] = {
    "figure.dpi": 100,
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}


def empty_figure(figsize: tuple[float, float] | None = None) -> Any:
    """A figure off screen, of ``figsize`` inches; pyplot, and so a user's notebook, does not know of it."""
    figure = require("matplotlib.figure", extra="train").Figure(figsize=figsize)
    require("matplotlib.backends.backend_agg", extra="train").FigureCanvasAgg(figure)
    return figure


def matplotlib_figure(*shape: int, figsize: tuple[float, float] | None = None, **options: Any) -> tuple[Any, Any]:
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
    """Give a panel whose curves are drawn a logarithmic vertical scale, with plain numbers as ticks."""
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


def plot_run(
    metrics: Path,
    path: Path,
    *,
    title: str,
    over: str = "epoch",
    names: tuple[str, str] = ("loss", "accuracy"),
    dropout: bool = True,
    chance: float | None = None,
) -> None:
    """Two metrics of one run over its epochs or steps, from its ``metrics.jsonl``.

    Args:
        over: the key of a row that is the horizontal axis.
        dropout: whether the numbers of training are measured with dropout.
        chance: the accuracy that guessing reaches, drawn where accuracy is.
    """
    rows = read_rows(metrics)
    with house_style():
        figure, axes = matplotlib_figure(1, 2, figsize=(8.5, 3.4))
        handles: dict[str, Any] = {}
        for axis, name in zip(axes, names, strict=True):
            for split, colour in (("train", "#7f7f7f"), ("val", "#1f77b4")):
                points = [(row[over], row[f"{split}_{name}"]) for row in rows if f"{split}_{name}" in row]
                if points:
                    label = {"train": f"training{' (with dropout)' * dropout}", "val": "validation"}[split]
                    line = axis.plot(*zip(*points, strict=True), color=colour, label=label, marker="o", markersize=2.5)
                    handles.setdefault(label, line[0])
            axis.set(xlabel=over, ylabel=name.replace("_", " "))
            count_along(axis)
            if name == "perplexity":
                scale_log(axis)
            if name == "accuracy":
                axis.set_ylim(0, 1.02)
                if chance is not None:
                    handles["chance"] = draw_level(axis, chance)
        figure.suptitle(title, fontsize=12)
        figure.tight_layout()
        legend_below(figure, list(handles.values()))
        save_figure(figure, path)


def draw_level(axis: Any, level: float) -> Any:
    """Draw the level that guessing reaches; returns the line."""
    return axis.axhline(level, color="#606060", linewidth=1.2, linestyle=":", zorder=1.5, label="chance")
