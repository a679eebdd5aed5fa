"""Files with results: data, report and picture under one name, never over those of another run."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import markdown
from benchmarks.results import Row, SideResult

KINDS = (".json", ".md", ".png")


class Output:
    """The files of one run, whose name is taken when the run begins.

    Args:
        folder: made if it is missing.
        stem: ``<date>-<device>[-suite]``; a number is added where that is taken.
    """

    def __init__(self, folder: Path, stem: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            name = stem if number == 1 else f"{stem}-{number}"
            self.paths = {kind: folder / f"{name}{kind}" for kind in KINDS}
            number += 1
            if any(path.exists() for path in self.paths.values()):
                continue
            try:
                self.paths[".json"].open("x").close()
            except FileExistsError:  # another run was faster
                continue
            return

    def save(self, about: dict[str, Any], rows: Sequence[Row]) -> None:
        """Write the data so far; a run that is cut short leaves a whole file."""
        data = {**about, "rows": [row.to_json() for row in rows]}
        path = self.paths[".json"]
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)

    def finish(self, about: dict[str, Any], rows: Sequence[Row], conclusions: Sequence[str]) -> list[Path]:
        """Write everything; returns the files written."""
        self.save({**about, "conclusions": list(conclusions)}, rows)
        self.paths[".md"].write_text(markdown(about, rows, conclusions), encoding="utf-8")
        draw_plot(rows, self.paths[".png"])
        return [path for path in self.paths.values() if path.exists()]


COLOURS = {
    "ours": "#d62728",
    "published": "#7f7f7f",
    "reference": "#9467bd",
    "plain": "#1f77b4",
    "llama": "#17becf",
    "dense": "#2ca02c",
    "linear": "#ff7f0e",
    "sdpa": "#8c564b",
    "triton": "#e377c2",
}
COLUMNS = 3


def panels(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each panel: those that differ only in length."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{row.suite}: {row.label}\n{row.quantity}", []).append(row)
    return found


def figure_of(side: SideResult) -> float | None:
    """The figure to draw of a side; None if its results disagree."""
    return None if side.refused or side.agrees is False else side.figure


def draw_plot(rows: Sequence[Row], path: Path) -> bool:
    """Write the picture; False, and no file, without matplotlib or with nothing to draw."""
    drawn = {name: mine for name, mine in panels(rows).items() if any(figure_of(s) for row in mine for s in row.sides)}
    if not drawn or importlib.util.find_spec("matplotlib") is None:
        return False
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    columns = min(COLUMNS, len(drawn))
    lines = -(-len(drawn) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(5 * columns, 3.8 * lines), squeeze=False)
    for axis, (name, mine) in zip(axes.flat, drawn.items(), strict=False):
        axis.set_title(name, fontsize=9)
        if len({row.length for row in mine}) > 1:
            draw_lines(axis, mine)
        else:
            draw_bars(axis, mine)
    for axis in list(axes.flat)[len(drawn) :]:
        axis.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def draw_lines(axis: Any, rows: Sequence[Row]) -> None:
    """Medians over the length with quartiles, on logarithmic scales; floors of ours dashed."""
    for name in dict.fromkeys(side.name for row in rows for side in row.sides):
        points = [(row.length, side) for row in rows for side in row.sides if side.name == name and figure_of(side)]
        if not points:
            continue
        x, y = [n for n, _ in points], [in_axis_unit(side) for _, side in points]
        axis.plot(x, y, marker="o", markersize=3.5, color=COLOURS.get(name), label=name)
        summaries = [side.summary for _, side in points]
        if all(summaries):
            low = [s.first_quartile for s in summaries if s]
            axis.fill_between(x, low, [s.third_quartile for s in summaries if s], color=COLOURS.get(name), alpha=0.15)
    if not rows[0].memory:
        for field, style in (("floor_arithmetic", "--"), ("floor_bytes", ":")):
            floors = [(row.length, getattr(row.sides[0], field)) for row in rows if row.sides[0].samples]
            if floors:
                axis.plot(*zip(*floors, strict=True), style, color="black", linewidth=1, label=field.replace("_", ": "))
    lengths = sorted({row.length for row in rows})
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(lengths, [str(n) for n in lengths])
    axis.set_xlabel("length n")
    axis.set_ylabel("peak memory, MiB" if rows[0].memory else "seconds")
    ticker: Any = importlib.import_module("matplotlib.ticker")
    axis.yaxis.set_major_formatter(ticker.LogFormatter())
    axis.yaxis.set_minor_formatter(ticker.LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    axis.grid(True, color="#e4e4e4")
    axis.legend(fontsize=7, frameon=False, ncols=2)


def draw_bars(axis: Any, rows: Sequence[Row]) -> None:
    """One length: a bar for each side, with quartiles."""
    sides = [side for row in rows for side in row.sides if figure_of(side)]
    for place, side in enumerate(reversed(sides)):
        axis.barh(place, in_axis_unit(side), color=COLOURS.get(side.name))
        if side.summary:
            axis.plot([side.summary.first_quartile, side.summary.third_quartile], [place] * 2, color="black")
    axis.set_yticks(range(len(sides)), [side.name for side in reversed(sides)])
    axis.set_xlabel("peak memory, MiB" if rows[0].memory else "seconds")


def in_axis_unit(side: SideResult) -> float:
    """A figure in the unit of its axis: seconds, or MiB."""
    figure = side.figure or 0.0
    return figure if side.samples else figure / 2**20
