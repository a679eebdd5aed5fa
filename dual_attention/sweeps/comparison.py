"""Measured results as tables in Markdown, beside the published ones where there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, stdev

from ..training.metrics import Row
from .experiment import AnySwept
from .results import values_by_point


def cell_text(values: Sequence[float], published: float | None) -> str:
    """``mean ± standard error (published)``; the error needs two trials."""
    return f"{mean_text(values)} ({'–' if published is None else f'{published:.1f}'})"


def mean_text(values: Sequence[float]) -> str:
    """``mean ± standard error``; the error needs two trials."""
    text = f"{fmean(values):.1f}"
    if len(values) > 1:
        text += f" ± {stdev(values) / len(values) ** 0.5:.1f}"
    return text


def comparison_table(experiment: AnySwept, rows: Sequence[Row], measure: str) -> str:
    """One line for each panel and curve, one column for each point: measured, and published in brackets."""
    names = [axis.name for axis in experiment.axes[:-1]]
    lines = []
    for sizes, panels in size_groups(experiment, rows):
        head = "| " + " | ".join(names) + " | " + " | ".join(f"{n:,}" for n in sizes) + " |"
        lines += [head, "|" + "---|" * (len(names) + len(sizes))]
        for panel in panels:
            within = [row for row in rows if experiment.panel(row) == panel]
            for curve in experiment.curve_axis.ordered(within):
                published = dict(experiment.published(measure, panel, curve))
                cells = dict.fromkeys(sizes, "")
                for n, values in values_by_point(experiment, within, measure, panel, curve).items():
                    cells[n] = cell_text(values, published.get(n)) if experiment.compares else mean_text(values)
                first = [panel] if len(names) > 1 else []
                lines.append("| " + " | ".join([*first, experiment.curve_axis.label(curve), *cells.values()]) + " |")
        lines.append("")
    return "\n".join(lines)


def size_groups(experiment: AnySwept, rows: Sequence[Row]) -> list[tuple[list[int], list[str]]]:
    """Panels with the same points on the horizontal axis, together with these."""
    point = experiment.point_axis.name
    groups: dict[tuple[int, ...], list[str]] = {}
    for panel in experiment.panels(rows):
        sizes = tuple(sorted({int(row[point]) for row in rows if experiment.panel(row) == panel}))
        groups.setdefault(sizes, []).append(panel)
    return [(list(sizes), panels) for sizes, panels in groups.items()]


def comparison_text(experiment: AnySwept, rows: Sequence[Row]) -> str:
    """The tables of all measures as one Markdown text."""
    trials = sorted({*Counter(tuple(row[axis.name] for axis in experiment.axes) for row in rows).values()})
    count = str(trials[0]) if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    published = ", and in brackets the published mean" if experiment.compares else ""
    parts = [
        "# Measured beside published" if experiment.compares else "# Measured",
        "",
        f"{experiment.caption}: mean ± standard error of {count} trials{published}.",
        "",
    ]
    for measure, title in experiment.measures.items():
        parts += [f"## {title[:1].upper()}{title[1:]}", "", comparison_table(experiment, rows, measure)]
    return "\n".join(parts).rstrip() + "\n"
