"""Measured results as tables in Markdown, beside the published ones where there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, stdev

from ..training.experiment import AnyExperiment
from ..training.metrics import Row


def panel_of(experiment: AnyExperiment, row: Row) -> str:
    """The panel of figures that a row belongs to; an empty text if there is one only."""
    return row[experiment.axes[-3].name] if len(experiment.axes) > 2 else ""


def panels_of(experiment: AnyExperiment, rows: Sequence[Row]) -> list[str]:
    """Panels that occur in ``rows``, in order."""
    return experiment.axes[-3].ordered(rows) if len(experiment.axes) > 2 else [""]


def cell_text(values: Sequence[float], published: float | None) -> str:
    """``mean ± standard error (published)``; the error needs two trials."""
    return f"{mean_text(values)} ({'–' if published is None else f'{published:.1f}'})"


def mean_text(values: Sequence[float]) -> str:
    """``mean ± standard error``; the error needs two trials."""
    text = f"{fmean(values):.1f}"
    if len(values) > 1:
        text += f" ± {stdev(values) / len(values) ** 0.5:.1f}"
    return text


def comparison_table(experiment: AnyExperiment, rows: Sequence[Row], measure: str) -> str:
    """One line for each panel and curve, one column for each point: measured, and published in brackets."""
    *heads, curve_axis, size_axis = experiment.axes
    names = [axis.name for axis in (*heads, curve_axis)]
    lines = []
    for sizes, panels in size_groups(experiment, rows):
        head = "| " + " | ".join(names) + " | " + " | ".join(f"{n:,}" for n in sizes) + " |"
        lines += [head, "|" + "---|" * (len(names) + len(sizes))]
        for panel in panels:
            within = [row for row in rows if panel_of(experiment, row) == panel]
            for curve in curve_axis.ordered(within):
                published = dict(experiment.published(measure, panel, curve))
                cells = []
                for n in sizes:
                    mine = [row for row in within if (row[curve_axis.name], row[size_axis.name]) == (curve, n)]
                    values = [float(row[measure]) for row in mine if measure in row]
                    known = cell_text(values, published.get(n)) if experiment.compares and values else ""
                    cells.append(known or (mean_text(values) if values else ""))
                first = [panel] if heads else []
                lines.append("| " + " | ".join([*first, curve_axis.label(curve), *cells]) + " |")
        lines.append("")
    return "\n".join(lines)


def size_groups(experiment: AnyExperiment, rows: Sequence[Row]) -> list[tuple[list[int], list[str]]]:
    """Panels with the same points on the horizontal axis, together with these."""
    size_axis = experiment.axes[-1]
    groups: dict[tuple[int, ...], list[str]] = {}
    for panel in panels_of(experiment, rows):
        sizes = tuple(sorted({int(row[size_axis.name]) for row in rows if panel_of(experiment, row) == panel}))
        groups.setdefault(sizes, []).append(panel)
    return [(list(sizes), panels) for sizes, panels in groups.items()]


def comparison_text(experiment: AnyExperiment, rows: Sequence[Row]) -> str:
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
