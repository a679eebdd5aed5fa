"""Differences of curves from one of them, paired by seed: what a grid of an announced analysis is read by."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from dual_attention.model_analysis.measures.intervals import equivalence_p, half_width, holm, paired_p
from dual_attention.model_analysis.views.plots import house_style, matplotlib_figure, save_figure

from ..training.metrics import Row
from .experiment import AnySwept


@dataclass(frozen=True)
class Equivalence:
    """Bounds between which a difference counts as none, and the level of the two one-sided tests of it.

    Attributes:
        bounds: by measure; there is no test of others.
        alpha: the interval of level 1 - 2 alpha must lie within the bounds.
    """

    bounds: Mapping[str, float] = field(default_factory=dict)
    alpha: float = 0.05

    @property
    def level(self) -> float:
        """Level of that interval."""
        return 1 - 2 * self.alpha


@dataclass(frozen=True)
class Contrast:
    """Mean difference of one curve's trials from those of the reference with the same seeds.

    It is of one cell, a panel and a point; or, where these are None, of the means over several.
    """

    panel: str | None
    point: int | None
    curve: str
    pairs: int
    difference: float
    half: float
    """Half of its 95 % t-interval."""
    p: float
    """Of the two-sided paired t-test."""
    adjusted: float = math.nan
    """The same after Holm, among all contrasts of cells, or among all contrasts of means over cells."""
    inner: float = math.nan
    """Half of the interval that must lie within the bounds of equivalence."""
    equivalence: float = math.nan
    """p of the two one-sided tests of equivalence, after Holm likewise."""
    cells: int = 1
    """Cells that the means are over: those in which both curves were run."""
    of: int = 1
    """Cells that there are."""

    @property
    def of_all(self) -> bool:
        """Whether it covers all cells."""
        return self.cells == self.of


def contrasts(
    experiment: AnySwept,
    rows: Sequence[Row],
    measure: str,
    reference: str,
    equivalence: Equivalence | None = None,
) -> list[Contrast]:
    """Contrasts of all curves with ``reference`` wherever both have two trials with the same seeds.

    First those of cells; then those of means over the cells in which both a curve and ``reference`` were run, if these
    are several, from the seeds that both have in all of them.

    Raises:
        ValueError: if no row is of the reference.
    """
    curves = experiment.curve_axis.ordered(rows)
    if reference not in curves:
        raise ValueError(f"against: expected one of {', '.join(curves)}, got {reference!r}")
    cells = differences_by_cell(experiment, rows, measure, reference)
    tested = equivalence or Equivalence()
    bound, level = tested.bounds.get(measure), tested.level
    single = [
        _contrast(*cell, curve, of_cell[curve], bound, level)
        for cell, of_cell in cells.items()
        for curve in curves
        if len(of_cell.get(curve, {})) > 1
    ]
    means = [
        replace(_contrast(None, None, curve, by_seed, bound, level), cells=covered, of=len(cells))
        for curve, by_seed, covered in _overall(cells, curves)
    ]
    return _with_holm(single) + _with_holm(means)


Cells = dict[tuple[str, int], dict[str, dict[int, float]]]


def differences_by_cell(experiment: AnySwept, rows: Sequence[Row], measure: str, reference: str) -> Cells:
    """For each cell, in order, and each other curve, if the reference was run there: differences from it by seed."""
    values: Cells = {}
    for row in rows:
        if row.get(measure) is not None:
            cell = experiment.panel(row), int(row[experiment.point_axis.name])
            of_curve = values.setdefault(cell, {}).setdefault(row[experiment.curve_axis.name], {})
            of_curve[int(row["seed"])] = float(row[measure])
    panels = experiment.panels(rows)
    return {
        cell: {
            curve: {seed: x - of_reference[seed] for seed, x in trials.items() if seed in of_reference}
            for curve, trials in values[cell].items()
            if curve != reference and of_reference
        }
        for cell in sorted(values, key=lambda cell: (panels.index(cell[0]), cell[1]))
        for of_reference in [values[cell].get(reference, {})]
    }


def _overall(cells: Cells, curves: Sequence[str]) -> list[tuple[str, dict[int, float], int]]:
    """Curves, the means over cells of their differences, by seed, and the number of these cells."""
    found = []
    for curve in curves:
        run = [of_cell[curve] for of_cell in cells.values() if curve in of_cell]
        seeds = set.intersection(*map(set, run)) if len(run) > 1 else set()
        if len(seeds) > 1:
            means = {seed: fmean(trials[seed] for trials in run) for seed in sorted(seeds)}
            found.append((curve, means, len(run)))
    return found


def _contrast(
    panel: str | None, point: int | None, curve: str, by_seed: dict[int, float], bound: float | None, level: float
) -> Contrast:
    values = [by_seed[seed] for seed in sorted(by_seed)]
    found = Contrast(panel, point, curve, len(values), fmean(values), half_width(values), paired_p(values))
    if bound is None:
        return found
    return replace(found, inner=half_width(values, level=level), equivalence=equivalence_p(values, bound))


def _with_holm(found: Sequence[Contrast]) -> list[Contrast]:
    adjusted = holm([contrast.p for contrast in found])
    equal = [contrast.equivalence for contrast in found]
    equal = equal if any(map(math.isnan, equal)) else holm(equal)
    return [replace(one, adjusted=p, equivalence=e) for one, p, e in zip(found, adjusted, equal, strict=True)]


def contrasts_text(
    experiment: AnySwept, rows: Sequence[Row], reference: str, equivalence: Equivalence | None = None
) -> str:
    """The contrasts of all measures as one Markdown text."""
    tested = equivalence or Equivalence()
    axis, point_title = experiment.curve_axis, experiment.point_axis.plural
    parts = [
        f"# Differences from {axis.label(reference)}",
        "",
        f"{experiment.caption}: mean difference of trials with the same seed ± half of its 95 % t-interval; p of the "
        "two-sided paired t-test, and after Holm among the lines of cells, or among those of means over all cells."
        + equivalence_words(experiment, tested),
        "",
    ]
    head = [*(a.name for a in experiment.axes[:-2]), point_title, axis.name, "pairs", "difference", "p", "p (Holm)"]
    for measure, title in experiment.measures.items():
        found = contrasts(experiment, rows, measure, reference, tested)
        if not found:
            continue
        own = [*head, *(("within", "p (equivalence, Holm)") if measure in tested.bounds else ())]
        parts += [f"## {title[:1].upper()}{title[1:]}", "", f"| {' | '.join(own)} |", "|" + "---|" * len(own)]
        for one in found:
            difference = f"{one.difference:+.{experiment.decimals}f} ± {one.half:.{experiment.decimals}f}"
            words = [*_cell_words(one)[3 - len(experiment.axes) :], axis.label(one.curve), str(one.pairs), difference]
            words += [f"{one.p:.2g}", f"{one.adjusted:.2g}"]
            if measure in tested.bounds:
                inside = abs(one.difference) + one.inner < tested.bounds[measure]
                words += ["yes" if inside else "no", f"{one.equivalence:.2g}"]
            parts.append("| " + " | ".join(words) + " |")
        parts.append("")
    if len(parts) == 4:
        parts.append(f"There are none: no other {axis.name} has two trials with seeds that this one has, too.")
    return "\n".join(parts).rstrip() + "\n"


def _cell_words(one: Contrast) -> list[str]:
    """The panel and the point of a contrast in the table."""
    if one.point is not None:
        return [one.panel or "", f"{one.point:,}"]
    return ["all", "all"] if one.of_all else ["several", f"{one.cells} of {one.of} cells"]


def equivalence_words(experiment: AnySwept, tested: Equivalence) -> str:
    """Meaning of the columns about equivalence; an empty text without bounds."""
    if not tested.bounds:
        return ""
    bounds = ", ".join(f"±{bound:g}{experiment.unit} ({name})" for name, bound in tested.bounds.items())
    return (
        f" Equivalence within {bounds}: whether the {100 * tested.level:g} % interval lies within the bounds, and p of "
        f"the two one-sided t-tests after Holm likewise, at a level of {tested.alpha:g}."
    )


def draw_contrasts(
    experiment: AnySwept, rows: Sequence[Row], path: Path, reference: str, equivalence: Equivalence | None = None
) -> None:
    """Draw the contrasts as intervals: a panel for each measure, and in it a band of lines for each cell.

    Bounds of equivalence are shaded, and the interval that must lie within them is drawn thick. Nothing is drawn where
    there are no contrasts.
    """
    tested = equivalence or Equivalence()
    by_measure = {name: contrasts(experiment, rows, name, reference, tested) for name in experiment.measures}
    by_measure = {measure: found for measure, found in by_measure.items() if found}
    if not by_measure:
        return
    cells = list(dict.fromkeys((one.panel, one.point) for found in by_measure.values() for one in found))
    cells.sort(key=lambda cell: cell[1] is None)  # means over all cells come last
    drawn = {one.curve for found in by_measure.values() for one in found}
    curves = [curve for curve in experiment.curve_axis.ordered(rows) if curve in drawn]
    height = 1.6 + 0.2 * (len(curves) + 1) * len(cells)
    with house_style():
        figure, axes = matplotlib_figure(
            1, len(by_measure), figsize=(2.0 + 3.2 * len(by_measure), height), squeeze=False, sharey=True
        )
        for axis, (measure, found) in zip(axes[0], by_measure.items(), strict=True):
            if bound := tested.bounds.get(measure):
                axis.axvspan(-bound, bound, color="#dcefdc", zorder=0.5)
            _draw_measure(axis, experiment, found, cells, curves)
            axis.set_title(textwrap.fill(experiment.measures[measure], 30), loc="left", fontweight="bold")
        places = [_place(len(curves), cell, (len(curves) - 1) / 2) for cell in range(len(cells))]
        of_all = all(one.of_all for found in by_measure.values() for one in found)
        axes[0][0].set_yticks(places, [_cell_label(experiment, *cell, of_all=of_all) for cell in cells], fontsize=9)
        axes[0][0].set_ylim(_place(len(curves), len(cells), -1), -1)
        label = experiment.curve_axis.label(reference)
        what = f"{experiment.y_title} less that of {label}: mean of pairs, 95 % t-interval; filled: p below 0.05 (Holm)"
        if tested.bounds:
            what += f"; shaded: bounds of equivalence, thick: {100 * tested.level:g} % interval"
        figure.supxlabel(textwrap.fill(what, 20 + 40 * len(by_measure)), fontsize=9)
        lines, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="upper left", fontsize=9, ncols=len(by_measure), frameon=False)
        figure.tight_layout(rect=(0, 0, 1, 1 - (0.1 + 0.22 * math.ceil(len(curves) / len(by_measure))) / height))
        save_figure(figure, path)


def _cell_label(experiment: AnySwept, panel: str | None, point: int | None, *, of_all: bool) -> str:
    if point is None:
        return "all cells" if of_all else "several cells"
    return f"{panel or experiment.point_axis.name} {point:,}"


def _place(curves: int, cell: int, curve: float) -> float:
    """Height of the line of a curve in the band of a cell."""
    return cell * (curves + 1) + curve


def _draw_measure(
    axis: Any,
    experiment: AnySwept,
    found: Sequence[Contrast],
    cells: Sequence[tuple[str | None, int | None]],
    curves: Sequence[str],
) -> None:
    """The intervals of one measure; filled where the Holm-adjusted p is below 0.05."""
    axis.axvline(0, color="#606060", linewidth=1.2, linestyle=":", zorder=1.5)
    for cell in range(0, len(cells), 2):
        axis.axhspan(_place(len(curves), cell, -1), _place(len(curves), cell + 1, -1), color="#f2f2f2", zorder=0)
    for curve, name in enumerate(curves):
        colour = experiment.colours.get(name, f"C{curve}")
        axis.plot([], [], color=colour, marker="o", markersize=5, label=experiment.curve_axis.label(name))
        for one in (one for one in found if one.curve == name):
            place = _place(len(curves), cells.index((one.panel, one.point)), curve)
            filled = colour if one.adjusted < 0.05 else "white"
            style = {"color": colour, "marker": "o", "markersize": 4, "markerfacecolor": filled}
            if not math.isnan(one.inner):
                axis.errorbar(one.difference, place, xerr=one.inner, color=colour, elinewidth=3.5, alpha=0.6, zorder=2)
            axis.errorbar(one.difference, place, xerr=one.half, **style)
    axis.grid(axis="y", visible=False)
