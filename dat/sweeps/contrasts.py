"""Differences of curves from one of them, paired by seed: means with their t-intervals, as a table and as a figure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from dual_attention._base.colours import MUTED, PALE
from dual_attention._base.intervals import half_width
from dual_attention._base.plots import house_style, legend_below, matplotlib_figure, save_figure

from ..training.metrics import Row
from .curves import colours_of
from .table import ResultTable

BySeed = dict[int, float]


def differences(
    table: ResultTable, rows: Sequence[Row], measure: str, against: str
) -> Iterator[tuple[str, str, str, BySeed]]:
    """Panel, point, curve and differences by seed, wherever a curve and ``against`` have two seeds in common.

    After its cells come each curve's means over all cells, if these are several.
    """
    values: dict[tuple[str, int], dict[str, BySeed]] = {}
    for row in (row for row in rows if row.get(measure) is not None):
        cell = table.panel(row), int(row[table.point_axis.name])
        values.setdefault(cell, {}).setdefault(row[table.curve_axis.name], {})[row["seed"]] = float(row[measure])
    panels = table.panels(rows)
    cells = sorted(values, key=lambda cell: (panels.index(cell[0]), cell[1]))
    for curve in (curve for curve in table.curve_axis.ordered(rows) if curve != against):
        pairs = [(values[cell].get(curve, {}), values[cell].get(against, {})) for cell in cells]
        found = [
            {seed: own[seed] - theirs[seed] for seed in sorted(own.keys() & theirs.keys())} for own, theirs in pairs
        ]
        for (panel, point), by_seed in zip(cells, found, strict=True):
            if len(by_seed) > 1:
                yield panel, f"{point:,}", curve, by_seed
        common = set.intersection(*map(set, found)) if len(found) > 1 else set()
        if len(common) > 1:
            yield "all", "all", curve, {seed: fmean(by_seed[seed] for by_seed in found) for seed in sorted(common)}


def contrasts_text(table: ResultTable, rows: Sequence[Row], against: str) -> str:
    """Differences of all measures from the curve ``against`` as Markdown; ``ValueError`` if there is no such curve."""
    curve, digits = table.curve_axis, table.decimals
    if against not in curve.ordered(rows):
        raise ValueError(f"against: expected one of {', '.join(curve.ordered(rows))}, got {against!r}")
    head = ["measure", *(axis.name for axis in table.axes[:-2]), table.point_axis.plural, curve.name]
    lines = [[*head, "pairs", "difference"], ["---"] * (len(head) + 2)]
    for measure, title in table.measures.items():
        for panel, point, name, by_seed in differences(table, rows, measure, against):
            trials = list(by_seed.values())
            words = [title, *([panel] if len(table.axes) > 2 else []), point, curve.label(name), str(len(trials))]
            lines.append([*words, f"{fmean(trials):+.{digits}f} ± {half_width(trials):.{digits}f}"])
    intro = f"{table.caption}: mean difference of trials with the same seed ± half of its 95 % t-interval."
    return "\n".join(
        [
            f"# Differences from {curve.label(against)}",
            "",
            intro,
            "",
            *(f"| {' | '.join(line)} |" for line in lines),
            "",
        ]
    )


def draw_contrasts(table: ResultTable, rows: Sequence[Row], path: Path, against: str) -> None:
    """Draw the differences from the curve ``against``: a panel for each measure, in it a band of lines for each cell.

    Nothing is drawn where no pair of curves has two seeds in common.
    """
    found = {measure: list(differences(table, rows, measure, against)) for measure in table.measures}
    found = {measure: lines for measure, lines in found.items() if lines}
    every = [line for lines in found.values() for line in lines]
    if not every:
        return
    cells = list(dict.fromkeys((panel, point) for panel, point, *_ in every))
    cells.sort(key=lambda cell: cell[1] == "all")
    colours = {curve: colour for curve, colour in colours_of(table, rows).items() if curve != against}
    size = (min(9.2, 2.0 + 3.2 * len(found)), 0.8 + 0.17 * (len(colours) + 1) * len(cells))
    with house_style():
        figure, axes = matplotlib_figure(1, len(found), figsize=size, squeeze=False, sharey=True)
        for axis, (measure, lines) in zip(axes[0], found.items(), strict=True):
            for number, (curve, colour) in enumerate(colours.items()):
                look = {"color": colour, "fmt": "o", "markersize": 4}
                for panel, point, _, by_seed in (line for line in lines if line[2] == curve):
                    height = cells.index((panel, point)) + (number + 1) / (len(colours) + 1) - 0.5
                    trials = list(by_seed.values())
                    axis.errorbar(fmean(trials), height, xerr=half_width(trials), **look)
                axis.errorbar([], [], xerr=[], label=table.curve_axis.label(curve), **look)
            for cell in range(0, len(cells), 2):
                axis.axhspan(cell - 0.5, cell + 0.5, color=PALE, alpha=0.5, linewidth=0, zorder=0)
            axis.axvline(0, color=MUTED, linewidth=1.2, linestyle=":", zorder=1.5)
            axis.grid(axis="y", visible=False)
            axis.tick_params(labelsize=9)
            axis.set_title(textwrap.fill(table.measures[measure], 26), loc="left", fontsize=10, fontweight="bold")
        names = ["all cells" if point == "all" else f"{panel} {point}".strip() for panel, point in cells]
        axes[0][0].set_yticks(range(len(cells)), names)
        axes[0][0].set_ylim(len(cells) - 0.5, -0.5)
        what = f"{table.y_title} less that of {table.curve_axis.label(against)}: mean of pairs, 95 % t-interval"
        figure.supxlabel(textwrap.fill(what, 36 * len(found)), fontsize=10)
        figure.tight_layout()
        legend_below(figure, axes[0][0].get_legend_handles_labels()[0], fontsize=9)
        save_figure(figure, path)
