"""Pictures of results: one for each suite, with a panel for each case and quantity."""

import importlib
import importlib.util
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.results import Row, SideResult

COLOURS = {
    "ours": "#d62728",
    "published": "#7f7f7f",
    "reference": "#9467bd",
    "plain": "#1f77b4",
    "llama": "#17becf",
    "compiled": "#e6550d",
    "compiled plain": "#6baed6",
    "eager": "#ff9896",
    "eager llama": "#9edae5",
    "reading": "#969696",
    "dense": "#2ca02c",
    "linear": "#ff7f0e",
    "sdpa": "#8c564b",
    "triton": "#e377c2",
}
COLUMNS = 2
WIDTH, HEIGHT = 5.0, 3.0
"""Inches of a panel."""
FLOOR = {"linestyle": "--", "linewidth": 1.2, "color": "black"}


def draw_plots(about: Mapping[str, Any], rows: Sequence[Row], base: Path) -> list[Path]:
    """Write ``<base>.png``, or with several suites ``<base>.<suite>.png`` for each.

    Returns:
        The files written: none without matplotlib, and none of a suite with nothing to draw.
    """
    suites = list(dict.fromkeys(row.suite for row in rows))
    written = []
    for suite in suites:
        path = base.with_name(f"{base.name}{f'.{suite}' if len(suites) > 1 else ''}.png")
        if draw([row for row in rows if row.suite == suite], heading(suite, about), path):
            written.append(path)
    return written


def heading(suite: str, about: Mapping[str, Any]) -> str:
    """The suite, and where and when it ran."""
    settings, hardware = about["settings"], about["hardware"]
    where = hardware["cpu"] if settings["device"] == "cpu" else hardware["gpu"]["name"]
    threads = f"{settings['threads']} thread{'s' if settings['threads'] > 1 else ''}"
    return f"{suite}: {where}, {threads}, {settings['dtype']}, {about['date'][:10]}"


def panels(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each panel: those that differ only in length, where there is something to draw."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if any(figure_of(side) for side in row.sides):
            found.setdefault(f"{row.label}\n{row.quantity}", []).append(row)
    return found


def figure_of(side: SideResult) -> float | None:
    """The figure to draw of a side; None if its results disagree."""
    return None if side.refused or side.agrees is False else side.figure


def draw(rows: Sequence[Row], title: str, path: Path) -> bool:
    """Write one picture without gaps; False, and no file, without matplotlib or with nothing to draw."""
    drawn = panels(rows)
    if not drawn or importlib.util.find_spec("matplotlib") is None:
        return False
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    lines = mosaic(len(drawn))
    figure = pyplot.figure(figsize=(WIDTH * len(lines[0]), HEIGHT * len(lines) + 0.4), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = figure.subplot_mosaic(lines)
    for number, (name, mine) in enumerate(drawn.items()):
        axis, several = axes[number], len({row.length for row in mine}) > 1
        axis.set_title(name if several else f"{name}, n = {mine[0].length}", fontsize=9)
        (draw_lines if several else draw_dots)(axis, mine)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def mosaic(count: int) -> list[list[int]]:
    """Panels in each line: two, such as a forward pass and a step; the last is as wide if it is left over."""
    columns = min(COLUMNS, count)
    return [[min(first + column, count - 1) for column in range(columns)] for first in range(0, count, columns)]


def floor(side: SideResult) -> float | None:
    """The larger floor of a side that was timed."""
    found = [value for value in (side.floor_arithmetic, side.floor_bytes) if value and side.samples]
    return max(found, default=None)


def draw_lines(axis: Any, rows: Sequence[Row]) -> None:
    """Medians over the length with quartiles, on logarithmic scales; the floor of each function dashed."""
    functions = set()
    for name in dict.fromkeys(side.name for row in rows for side in row.sides):
        points = [(row.length, side) for row in rows for side in row.sides if side.name == name and figure_of(side)]
        if not points:
            continue
        x, y, colour = [n for n, _ in points], [in_axis_unit(side) for _, side in points], COLOURS.get(name)
        axis.plot(x, y, marker="o", markersize=3.5, color=colour, label=name)
        summaries = [side.summary for _, side in points]
        if all(summaries):
            low = [s.first_quartile for s in summaries if s]
            axis.fill_between(x, low, [s.third_quartile for s in summaries if s], color=colour, alpha=0.15)
        floors = [(n, floor(side)) for n, side in points if floor(side)]
        if floors and points[0][1].function not in functions:
            functions.add(points[0][1].function)
            axis.plot(*zip(*floors, strict=True), **{**FLOOR, "color": colour}, label=f"floor of {name}")
    lengths = sorted({row.length for row in rows})
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(lengths, [str(n) for n in lengths])
    axis.set_xlabel("length n")
    ticker: Any = importlib.import_module("matplotlib.ticker")
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_minor_formatter(ticker.NullFormatter())
    set_unit(axis.yaxis, rows[0])
    axis.grid(True, color="#e4e4e4")
    axis.legend(fontsize=7, frameon=False, ncols=2)


def draw_dots(axis: Any, rows: Sequence[Row]) -> None:
    """One length: the median of each side and its quartiles on a logarithmic scale, and its floor dashed across it."""
    sides = [side for row in rows for side in row.sides if figure_of(side)]
    axis.set_xscale("log")
    set_unit(axis.xaxis, rows[0])
    for place, side in enumerate(reversed(sides)):
        colour, value = COLOURS.get(side.name), in_axis_unit(side)
        if side.summary:
            axis.plot(
                [side.summary.first_quartile, side.summary.third_quartile], [place] * 2, color=colour, linewidth=3
            )
        axis.plot(value, place, marker="o", markersize=7, color=colour)
        words = unit_formatter(rows[0])(float(f"{value:.3g}"))
        axis.annotate(words, (value, place), (0, 7), textcoords="offset points", ha="center", fontsize=7)
        if (least := floor(side)) is not None:
            axis.plot([least] * 2, [place - 0.35, place + 0.35], **FLOOR)
    if any(map(floor, sides)):
        axis.set_xlabel(f"{axis.get_xlabel()}; dashed: floor")
    axis.margins(x=0.12)
    axis.set_xticks(round_figures(*axis.get_xlim()))
    axis.minorticks_off()
    axis.set_yticks(range(len(sides)), [side.name for side in reversed(sides)])
    axis.set_ylim(-0.6, len(sides) - 0.4)
    axis.grid(True, axis="x", color="#e4e4e4")


def round_figures(low: float, high: float) -> list[float]:
    """Round figures between two, about equally far apart on a logarithmic scale: at most six with room for labels, or
    all powers of ten.
    """
    room = 0.12 * math.log10(high / low)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    figures: list[float] = []
    for leading in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        figures = [value for power in powers for digit in leading if low <= (value := digit * 10.0**power) <= high]
        if len(figures) <= 6 and all(math.log10(b / a) >= room for a, b in pairwise(figures)):
            break
    return figures


def set_unit(axis: Any, row: Row) -> None:
    """What an axis shows: memory, or time in the unit that is short for it."""
    of_token = row.quantity in ("generate", "decode")
    axis.set_label_text("peak memory, MiB" if row.memory else "time of a token" if of_token else "time")
    axis.set_major_formatter(unit_formatter(row))


def unit_formatter(row: Row) -> Any:
    """Writes a figure with its unit: 0.0412 as ``41.2 ms``."""
    ticker: Any = importlib.import_module("matplotlib.ticker")
    return ticker.EngFormatter(unit="" if row.memory else "s")


def in_axis_unit(side: SideResult) -> float:
    """A figure in the unit of its axis: seconds, or MiB."""
    figure = side.figure or 0.0
    return figure if side.samples else figure / 2**20
