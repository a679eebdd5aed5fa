"""Differences of curves from one of them, paired by seed: a table of means with their t-intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from dual_attention.model_analysis.measures.intervals import half_width

from ..training.metrics import Row
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
