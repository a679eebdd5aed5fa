"""Figures of a grid: curves with confidence bands, beside the published ones."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from dual_attention._base.colours import MUTED
from dual_attention._base.extras import require
from dual_attention._base.intervals import half_width
from dual_attention._base.plots import count_along, house_style, legend_below, matplotlib_figure, save_figure, scale_log

from ..training.metrics import Row
from ..training.plots import draw_level
from .published import Published
from .results import values_by_point
from .table import CurvesFigure, ResultTable

SPARE = ("#9467bd", "#17becf", "#bcbd22", "#e377c2", "#ff7f0e", "#5254a3", "#637939", "#843c39")
"""Colours of curves that an experiment gives none, in the order of their names."""


FEWEST_TRIALS = 3
"""Fewest trials that give an interval; fewer are drawn as dots."""

LOOKS: tuple[dict[str, Any], ...] = (
    {},
    {"marker": "s", "markerfacecolor": "white", "linestyle": (0, (7, 2, 1, 2))},
    {"marker": "^", "markerfacecolor": "white", "linestyle": (0, (7, 2, 1, 2, 1, 2))},
    {"marker": "D", "markerfacecolor": "white", "linestyle": (0, (1, 1))},
)
"""Lines of the curves of sources, in their order."""
CROSS = {"marker": "x", "markersize": 7}
LINE = {"marker": "o", "markersize": 3.5, "zorder": 3}
POINT = {"marker": "o", "markersize": 7, "markeredgecolor": "white", "zorder": 5}
"""A single point, over whatever else lies there."""


def curve_points(
    table: ResultTable, rows: Sequence[Row], measure: str, panel: str, curve: str
) -> list[tuple[int, float, float, float]]:
    """(horizontal axis, mean, low, high) of one curve, sorted; the t-interval is NaN where there are too few trials."""
    points = []
    for n, values in values_by_point(table, rows, measure, panel, curve).items():
        half = half_width(values) if len(values) >= FEWEST_TRIALS else math.nan
        points.append((n, fmean(values), fmean(values) - half, fmean(values) + half))
    return points


def colours_of(table: ResultTable, rows: Sequence[Row]) -> dict[str, str]:
    """A colour for each curve, in order."""
    spare = iter(SPARE * 10)
    return {curve: table.colours.get(curve) or next(spare) for curve in table.curve_axis.ordered(rows)}


def draw_published(axis: Any, points: Sequence[Published], **look: Any) -> None:
    """Draw a published curve: its means, the range of its trials as a band, its adjusted means dotted; a single point
    as a cross.
    """
    if not points:
        return
    color = look["color"]
    cross = CROSS if len(points) == 1 else {}
    axis.plot([p.point for p in points], [p.mean for p in points], **{**look, **cross})
    known = [p for p in points if p.lowest is not None and p.highest is not None]
    if known:
        band = [p.point for p in known], [p.lowest for p in known], [p.highest for p in known]
        axis.fill_between(*band, color=color, alpha=0.15, linewidth=0)
        if len(known) == 1:  # a band that has no width
            axis.vlines(*band, color=color, alpha=0.5, linewidth=1.2)
    adjusted = [(p.point, p.adjusted) for p in points if p.adjusted is not None]
    if adjusted:
        axis.plot(*zip(*adjusted, strict=True), color=color, linestyle=":", linewidth=1.2)


def draw_chance(axis: Any, table: ResultTable, panel: str) -> None:
    """Draw the level that guessing reaches."""
    level = table.chance_in(panel)
    if level is not None:
        draw_level(axis, level)


def draw_panel(
    axis: Any, table: ResultTable, rows: Sequence[Row], measure: str, panel: str, colours: dict[str, str]
) -> None:
    """Draw one panel: a line for each curve with its band, or with its trials as dots where they are too few for one
    or the bands are of published curves; the published curve is dashed.
    """
    found = {curve: curve_points(table, rows, measure, panel, curve) for curve in colours}
    compares = table.compares_with(rows, [measure])
    for curve, points in found.items():
        if points:
            n, mean, low, high = zip(*points, strict=True)
            look = {**(POINT if len(n) == 1 else LINE), **table.looks.get(curve, {})}
            axis.plot(n, mean, color=colours[curve], **look)
            if not compares:
                axis.fill_between(n, low, high, color=colours[curve], alpha=0.18, linewidth=0)
                if len(n) == 1:  # a band that has no width
                    axis.vlines(n, low, high, color=colours[curve], linewidth=1.2)
            dots = single_trials(table, rows, measure, panel, curve, compares)
            if dots:
                axis.scatter(*zip(*dots, strict=True), color=colours[curve], s=12, alpha=0.55, linewidths=0, zorder=4)
    measured = [curve for curve, points in found.items() if points]
    beside = [(colours[curve], tuple(table.published_points(rows, measure, panel, curve))) for curve in measured]
    for colour, points in dict.fromkeys(beside):  # those of an arm once, not for each of its sources
        draw_published(axis, points, color=colour, linestyle=(0, (3, 2)), linewidth=1.2, alpha=0.85)
    draw_chance(axis, table, panel)
    axis.set_title(panel, loc="left", fontweight="bold")
    count_along(axis)
    if len(at := {row[table.point_axis.name] for row in rows}) == 1:
        axis.set_xticks([*at])


def single_trials(
    table: ResultTable, rows: Sequence[Row], measure: str, panel: str, curve: str, all_of_them: bool
) -> list[tuple[int, float]]:
    """The trials of the points that have several, but too few for an interval; or all of them."""
    values = values_by_point(table, rows, measure, panel, curve)
    most = max(map(len, values.values()), default=0) + 1 if all_of_them else FEWEST_TRIALS
    return [(n, x) for n, trials in values.items() if 1 < len(trials) < most for x in trials]


def fix_range(panels: Iterable[Any], table: ResultTable) -> None:
    """Give panels the range of the table, so that figures compare; it begins lower if something lies below it."""
    if table.y_range is None:
        return
    low, high = table.y_range
    panels = list(panels)
    lowest = min(axis.dataLim.y0 for axis in panels)
    for axis in panels:
        axis.set_ylim(low if lowest >= low else 5 * math.floor(lowest / 5), high)


def draw_legend(
    figure: Any, table: ResultTable, colours: dict[str, str], rows: Sequence[Row], measures: Sequence[str]
) -> None:
    """Draw curves and line styles, below all panels."""
    line = require("matplotlib.lines", extra="train").Line2D
    label = table.curve_axis.label
    looks = {curve: {**LINE, **table.looks.get(curve, {})} for curve in colours}
    handles = [line([], [], color=colours[curve], label=label(curve), **look) for curve, look in looks.items()]
    handles.append(line([], [], color=MUTED, label=measured_in_words(table, rows, measures)))
    beside = [*table.published_beside(rows, measures)]
    if beside:
        alone = len({point.point for point in beside}) == 1
        look = {"linestyle": "", **CROSS} if alone else {"linestyle": (0, (3, 2)), "linewidth": 1.2}
        known = any(point.lowest is not None for point in beside)
        label = f"published: mean,\n{_around(alone)} = range of trials" if known else "published: mean"
        handles.append(line([], [], color=MUTED, label=label, **look))
    if any(point.adjusted is not None for point in beside):
        label = f"published mean less\n{table.adjusted}"
        handles.append(line([], [], color=MUTED, linewidth=1.2, linestyle=":", label=label))
    if table.chance is not None:
        handles.append(line([], [], color=MUTED, linewidth=1.2, linestyle=":", label="chance"))
    legend_below(figure, handles)


def _around(alone: bool) -> str:
    """The shape that an interval has around means, or around a single one."""
    return "bar" if alone else "band"


def measured_in_words(table: ResultTable, rows: Sequence[Row], measures: Sequence[str]) -> str:
    """The meaning of a line and of what is drawn around it."""
    trials = Counter(tuple(row[axis.name] for axis in table.axes) for row in rows)
    most = max(trials.values())
    if most >= FEWEST_TRIALS and not table.compares_with(rows, measures):
        alone = len({row[table.point_axis.name] for row in rows}) == 1
        return f"measured: mean,\n{_around(alone)} = 95 % t-interval"
    return "measured: mean, dots = trials" if most > 1 else "measured: one trial"


def draw_curves(table: ResultTable, rows: Sequence[Row], path: Path, what: CurvesFigure) -> None:
    """Draw the measures of a figure (rows of panels) against the horizontal axis, one column of panels each."""
    panels = table.panels(rows)
    colours = colours_of(table, rows)
    with house_style():
        figure, axes = matplotlib_figure(
            len(what.measures),
            len(panels),
            figsize=(max(5.0, 3.1 * len(panels)), 0.5 + 3.1 * len(what.measures)),
            squeeze=False,
            sharey="row",
        )
        for line, measure in enumerate(what.measures):
            for column, panel in enumerate(panels):
                draw_panel(axes[line][column], table, rows, measure, panel, colours)
                axes[line][column].set_xlabel(table.point_axis.title)
            if table.log_scale:
                scale_log(axes[line][0])
            fix_range(axes[line], table)
            axes[line][0].set_ylabel(f"{table.y_title}\n{table.measures[measure]}")
        figure.suptitle(what.title, fontsize=13, x=0.01, ha="left")
        figure.tight_layout()
        draw_legend(figure, table, colours, rows, what.measures)
        save_figure(figure, path)
