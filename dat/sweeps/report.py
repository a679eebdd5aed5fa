"""Tables and figures of results: measured beside published, differences paired by seed, and curves."""

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median

from dual_attention._base.colours import MUTED, PALE
from dual_attention._base.files import write_atomically
from dual_attention._base.intervals import half_width
from dual_attention._base.plots import house_style, legend_below, matplotlib_figure, save_figure
from dual_attention._base.words import counted

from ..training.metrics import Row
from .curves import colours_of, draw_curves
from .experiment import AnySwept
from .published import Published, outside, welch_t
from .results import to_csv, values_by_point
from .sources import by_source, made_differently, merge_results
from .table import CurvesFigure, Draw, ResultTable

BySeed = dict[int, float]


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


def digits_of(table: ResultTable, measure: str, cells: Sequence[Sequence[float]]) -> int:
    """Decimals of a measure whose trials in each cell are given: those that its table sets, or :func:`digits_for`."""
    if measure not in table.measures:
        return 2
    return digits_for(cells) if table.decimals is None else table.decimals


def digits_for(cells: Sequence[Sequence[float]]) -> int:
    """Decimals that show two significant digits of the median interval; without intervals three of the largest mean."""
    halves = [half for values in cells if len(values) > 1 and (half := half_width(values)) > 0]
    size = median(halves) if halves else max((abs(fmean(values)) for values in cells), default=0.0) / 10
    return max(0, 1 - math.floor(math.log10(size))) if size else 1


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
        f"drawn as theirs, {expected:.1f} would be expected to lie there."
    )


def measured_table(table: ResultTable, rows: Sequence[Row], measure: str) -> str:
    """One line for each panel and curve, one column for each point: measured, and published in brackets."""
    names = [axis.name for axis in table.axes[:-1]]
    compares, lines = table.compares_with(rows), []
    every = [
        list(values_by_point(table, [row for row in rows if table.panel(row) == panel], measure, panel, curve).values())
        for panel in table.panels(rows)
        for curve in table.curve_axis.ordered(rows)
    ]
    digits = digits_of(table, measure, [values for cells in every for values in cells])
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


def begun(table: ResultTable, text: str) -> str:
    """A sentence's beginning behind the caption of a table, if it has one."""
    return f"{table.caption}: {text}" if table.caption else f"{text[:1].upper()}{text[1:]}"


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
        f"{begun(table, 'mean')} ± half of its 95 % t-interval, of {count}"
        f"{published if table.compares_with(rows) else ''}.",
        "",
        *([note, ""] if note else []),
    ]
    for measure, title in {**table.measures, **table.tabled}.items():
        if all(row.get(measure) is None for row in rows):
            continue
        unit = f" ({table.unit.strip()})" if table.unit and measure in table.measures else ""
        parts += [f"## {title[:1].upper()}{title[1:]}{unit}", "", measured_table(table, rows, measure)]
        if sentence := outside_sentence(table, rows, measure):
            parts += [sentence, ""]
    return "\n".join(parts).rstrip() + "\n"


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


UNPAIRED = "No other curve has two seeds in common with it, so there are no differences with intervals."
"""Sentence in the place of differences."""


def contrasts_text(table: ResultTable, rows: Sequence[Row], against: str) -> str:
    """Differences of all measures from the curve ``against`` as Markdown; ``ValueError`` if there is no such curve."""
    curve = table.curve_axis
    if against not in curve.ordered(rows):
        raise ValueError(f"against: expected one of {', '.join(curve.ordered(rows))}, got {against!r}")
    head = ["measure", *(axis.name for axis in table.axes[:-2]), table.point_axis.plural, curve.name]
    lines = [[*head, "pairs", "difference"], ["---"] * (len(head) + 2)]
    for measure, title in table.measures.items():
        found = list(differences(table, rows, measure, against))
        digits = digits_of(table, measure, [list(by_seed.values()) for *_, by_seed in found])
        for panel, point, name, by_seed in found:
            trials = list(by_seed.values())
            words = [title, *([panel] if len(table.axes) > 2 else []), point, curve.label(name), str(len(trials))]
            lines.append([*words, f"{fmean(trials):+.{digits}f} ± {half_width(trials):.{digits}f}"])
    unit = f", in {table.unit.strip()}" if table.unit else ""
    means = begun(table, "mean difference of trials with the same seed")
    intro = f"{means} ± half of its 95 % t-interval{unit}."
    shown = [intro, "", *(f"| {' | '.join(line)} |" for line in lines)] if len(lines) > 2 else [UNPAIRED]
    return "\n".join([f"# Differences from {curve.label(against)}", "", *shown, ""])


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


def figures(table: ResultTable, rows: Sequence[Row]) -> dict[str, Callable[[Path], None]]:
    """The figures of results: names of files, and what draws each."""

    def drawn(what: CurvesFigure | Draw) -> Callable[[Path], None]:
        return partial(draw_curves, table, rows, what=what) if isinstance(what, CurvesFigure) else partial(what, rows)

    return {name: drawn(what) for name, what in table.figures.items()}


def draw_figures(table: ResultTable, rows: Sequence[Row], folder: Path) -> None:
    """Draw the figures of results into ``folder``."""
    for name, draw in figures(table, rows).items():
        draw(folder / name)


def chosen_rows(table: ResultTable, rows: Sequence[Row], chosen: Mapping[str, Sequence[str]]) -> list[Row]:
    """Rows with one of the ``chosen`` values of each axis named there; an empty list of values takes all."""
    names = [axis.name for axis in reversed(table.axes) if chosen.get(axis.name)]
    for name in names:
        known = sorted({row[name] for row in rows})
        unknown = [value for value in chosen[name] if value not in known]
        if unknown:
            raise ValueError(f"{name}s: expected names among {', '.join(known)}; got {', '.join(unknown)}")
    kept = [row for row in rows if all(row[name] in chosen[name] for name in names)]
    if not kept:
        raise ValueError(f"{', '.join(f'{name}s' for name in names)}: no result has one of each")
    return kept


def plot_results(
    experiment: AnySwept,
    sources: Sequence[str | Path],
    out: str | Path,
    chosen: Mapping[str, Sequence[str]] | None = None,
    against: str | None = None,
) -> list[Path]:
    """Write ``results.csv``, the tables and the figures of several sources together into the folder ``out``.

    Args:
        sources: as :func:`~.sources.merge_results` takes them. Those with a label have curves of their own, and then
            only curves are drawn.
        chosen: values of axes to take; all, if there are none of an axis.
        against: a curve from which the others' differences are written, ``contrasts.md``, and drawn, ``contrasts.png``.

    Returns:
        The files written.

    Raises:
        FileExistsError: if one of them is there already.
        FileNotFoundError, ValueError: as :func:`~.sources.merge_results` and :func:`chosen_rows`.
    """
    rows, folder = chosen_rows(experiment.table, merge_results(experiment, sources), chosen or {}), Path(out)
    table, curves = by_source(experiment.table, rows)
    note = made_differently(experiment.table, rows) if table is not experiment.table else ""
    texts = {"results.csv": to_csv(rows), "comparison.md": comparison_text(table, curves, note)}
    if against is not None:
        texts["contrasts.md"] = contrasts_text(table, curves, against)
    drawings = figures(table, curves)
    if against is not None:
        drawings["contrasts.png"] = partial(draw_contrasts, table, curves, against=against)
    names = [*texts, *drawings]
    present = [name for name in names if (folder / name).exists()]
    if present:
        raise FileExistsError(f"{folder}: expected a folder without {', '.join(present)}, which are not overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomically(folder / name, text)
    for name, draw in drawings.items():
        draw(folder / name)
    return [folder / name for name in names if (folder / name).exists()]
