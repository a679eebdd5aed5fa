"""Measured results as tables in Markdown, beside the published ones where there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from dual_attention._base.intervals import half_width
from dual_attention._base.words import counted

from ..training.metrics import Row
from .published import Published, outside, welch_t
from .results import values_by_point
from .table import ResultTable


def cell_text(values: Sequence[float], published: Published | None, digits: int = 1) -> str:
    """``mean ± half of the t-interval (published mean; Welch's t; trials outside the published range)``, where known.

    An adjusted mean follows the published one after an arrow. Means have so many ``digits`` after the point.
    """
    if published is None:
        return f"{mean_text(values, digits)} (–)"
    means = [mean for mean in (published.mean, published.adjusted) if mean is not None]
    parts = [" → ".join(f"{mean:.{digits}f}" for mean in means)]
    if (t := welch_t(values, published)) is not None:
        parts.append(f"t {round(t, 1) + 0.0:.1f}")
    if beyond := outside(values, published):
        parts.append(f"{beyond} out")
    return f"{mean_text(values, digits)} ({'; '.join(parts)})"


def mean_text(values: Sequence[float], digits: int = 1) -> str:
    """``mean ± half of the 95 % t-interval``, which needs two trials."""
    text = f"{fmean(values):.{digits}f}"
    if len(values) > 1:
        text += f" ± {half_width(values):.{digits}f}"
    return text


def outside_sentence(table: ResultTable, rows: Sequence[Row], measure: str) -> str:
    """Number of runs outside the range of the published ones, and its expectation if both were alike; or nothing."""
    compared = beyond = 0
    expected = 0.0
    for panel in table.panels(rows):
        for curve in table.curve_axis.ordered(rows):
            published = {point.point: point for point in table.published_curve(measure, panel, curve)}
            for n, values in values_by_point(table, rows, measure, panel, curve).items():
                if n not in published or (found := outside(values, published[n])) is None:
                    continue
                compared += len(values)
                beyond += found
                expected += 2 * len(values) / ((published[n].trials or 0) + 1)
    if not compared:
        return ""
    return (
        f"{beyond} of the {compared} runs lie outside the range of the published runs of their cell; if ours were "
        f"drawn as theirs, {expected:.0f} would be expected to."
    )


def measured_table(table: ResultTable, rows: Sequence[Row], measure: str) -> str:
    """One line for each panel and curve, one column for each point: measured, and published in brackets."""
    names = [axis.name for axis in table.axes[:-1]]
    digits, compares = table.decimals if measure in table.measures else 2, table.compares_with(rows)
    lines = []
    for sizes, panels in size_groups(table, rows):
        head = "| " + " | ".join(names) + " | " + " | ".join(f"{n:,}" for n in sizes) + " |"
        lines += [head, "|" + "---|" * (len(names) + len(sizes))]
        for panel in panels:
            within = [row for row in rows if table.panel(row) == panel]
            for curve in table.curve_axis.ordered(within):
                published = {point.point: point for point in table.published_curve(measure, panel, curve)}
                cells = dict.fromkeys(sizes, "")
                for n, values in values_by_point(table, within, measure, panel, curve).items():
                    known = published.get(n)
                    cells[n] = cell_text(values, known, digits) if compares else mean_text(values, digits)
                first = [panel] if len(names) > 1 else []
                lines.append("| " + " | ".join([*first, table.curve_axis.label(curve), *cells.values()]) + " |")
        lines.append("")
    return "\n".join(lines)


def size_groups(table: ResultTable, rows: Sequence[Row]) -> list[tuple[list[int], list[str]]]:
    """Panels with the same points on the horizontal axis, together with these."""
    point = table.point_axis.name
    groups: dict[tuple[int, ...], list[str]] = {}
    for panel in table.panels(rows):
        sizes = tuple(sorted({int(row[point]) for row in rows if table.panel(row) == panel}))
        groups.setdefault(sizes, []).append(panel)
    return [(list(sizes), panels) for sizes, panels in groups.items()]


def comparison_text(table: ResultTable, rows: Sequence[Row], note: str = "") -> str:
    """The tables of all measures as one Markdown text, after the ``note``."""
    trials = sorted({*Counter(tuple(row[axis.name] for axis in table.axes) for row in rows).values()})
    count = counted(trials[0], "trial") if len(trials) == 1 else f"{trials[0]} to {trials[-1]} trials"
    adjusted = f" (→ without {table.adjusted})" if table.adjusted else ""
    published = (
        f". In brackets the published mean{adjusted}, and where single runs are published, Welch's t of our mean "
        "against it and how many of our trials lie outside the range of the published ones (out)"
        f"{'; ' * bool(table.beside_published)}{table.beside_published}"
    )
    parts = [
        "# Measured beside published" if table.compares_with(rows) else "# Measured",
        "",
        f"{table.caption}: mean ± half of its 95 % t-interval, of {count}"
        f"{published if table.compares_with(rows) else ''}.",
        "",
        *([note, ""] if note else []),
    ]
    for measure, title in {**table.measures, **table.tabled}.items():
        if all(row.get(measure) is None for row in rows):
            continue
        parts += [f"## {title[:1].upper()}{title[1:]}", "", measured_table(table, rows, measure)]
        if sentence := outside_sentence(table, rows, measure):
            parts += [sentence, ""]
    return "\n".join(parts).rstrip() + "\n"
