"""``report.md``: the findings of an analysis that was fixed before the runs, and whether it was followed."""

from __future__ import annotations

from collections.abc import Sequence

from ..training.metrics import Row
from .analysis import AnalysisConfig
from .experiment import AnySwept
from .findings import Finding, corrections, findings, reading
from .followed import followed, planned_cells
from .grid import GridFolder

TITLES = {
    "paired_t": "two-sided t-test of differences paired by seed",
    "sign_flip": "exact sign-flip test of differences paired by seed",
}
MARKS = {True: "yes", False: "**no**", None: "unknown"}


def report_text(
    experiment: AnySwept, analysis: AnalysisConfig, rows: Sequence[Row], folder: GridFolder | None = None
) -> str:
    """The report as Markdown.

    Args:
        rows: all results.
        folder: of the grid that they are of, if they are all of one.
    """
    planned = planned_cells(experiment, analysis, rows, folder)
    points = followed(experiment, analysis, rows, planned, folder)
    wrong = [point.what for point in points if point.well is False]
    unknown = [point.what for point in points if point.well is None]
    verdict = "It was followed in every point."
    if wrong or unknown:
        parts = [f"It was not followed in: {', '.join(wrong)}."] * bool(wrong)
        verdict = " ".join([*parts, *([f"Nothing tells about: {', '.join(unknown)}."] * bool(unknown))])
    reference = experiment.curve_axis.label(analysis.reference)
    found = findings(experiment, analysis, rows, planned)
    return (
        "\n".join(
            [
                "# Report on the announced analysis",
                "",
                *([analysis.question, ""] if analysis.question else []),
                *([f"Announced in {analysis.announced}.", ""] if analysis.announced else []),
                "## Was the analysis followed?",
                "",
                verdict,
                "",
                "| point | followed | |",
                "|---|---|---|",
                *(f"| {point.what} | {MARKS[point.well]} | {point.words} |" for point in points),
                "",
                f"## Primary measure: {experiment.measures[analysis.measure]}",
                "",
                _method(experiment, analysis, len(planned), len(found)),
                "",
                *_table(experiment, analysis, found),
                "",
                *(_sentence(experiment, analysis, one, reference) for one in found),
            ]
        ).rstrip()
        + "\n"
    )


def _method(experiment: AnySwept, analysis: AnalysisConfig, places: int, tests: int) -> str:
    reference = experiment.curve_axis.label(analysis.reference)
    of = "one cell" if analysis.of == "cells" else f"the mean over {places} cells" if places > 1 else "the one cell"
    if analysis.of == "ends":
        of = f"each {experiment.curve_axis.name} at its last point ({experiment.point_axis.plural})"
        of += f", the mean over {places} panels" if places > 1 else ""
    less = "less" if experiment.lower_is_better(analysis.measure) else "more"
    correction, of_equivalence = corrections(analysis)
    words = [
        f"Differences from {reference} of {of} ({less} is better): {TITLES[analysis.test]}, level {analysis.alpha:g}",
        f"correction for {tests} tests: {correction}" if tests > 1 else "one test, so nothing to correct",
    ]
    if analysis.least_difference:
        words.append(f"better or worse only from a difference of {analysis.least_difference:g}{experiment.unit} on")
    if analysis.bound is not None:
        level = 1 - 2 * analysis.equivalence_alpha
        words.append(
            f"equivalent if two one-sided t-tests reject a difference of {analysis.bound:g}{experiment.unit} or more "
            f"at {analysis.equivalence_alpha:g} each, that is if the {100 * level:g} % interval lies within the bounds"
            + (f" (correction: {of_equivalence})" if of_equivalence != correction else "")
        )
    return "; ".join(words) + "."


def _table(experiment: AnySwept, analysis: AnalysisConfig, found: Sequence[Finding]) -> list[str]:
    digits, cells, bound = experiment.decimals, analysis.of == "cells", analysis.bound is not None
    levels: list[float] = sorted(
        {1 - analysis.alpha, 1 - (2 * analysis.equivalence_alpha if bound else analysis.alpha)}
    )
    head = [*(["cell"] if cells else []), experiment.curve_axis.name, "pairs", "difference"]
    correction, of_equivalence = corrections(analysis)
    head += [*(f"{100 * level:g} % interval" for level in levels), "p", f"p ({correction})"]
    head += [f"p (equivalence within ±{analysis.bound:g}, {of_equivalence})"] if bound else []
    lines = [head, ["---"] * len(head)]
    for one in found:
        place = "" if one.place is None else " ".join(str(part) for part in one.place if part)
        line = [*([place] if cells else []), experiment.curve_axis.label(one.arm), str(len(one.differences))]
        if one.p is None or one.adjusted is None:
            lines.append([*line, *["–"] * (len(head) - len(line))])
            continue
        line.append(f"{one.mean:+.{digits}f}")
        for level in levels:
            half = one.half(level)
            line.append(f"{one.mean - half:+.{digits}f} to {one.mean + half:+.{digits}f}")
        line += [f"{one.p:.2g}", f"{one.adjusted:.2g}"]
        lines.append([*line, *([f"{one.adjusted_equivalence:.2g}"] if one.adjusted_equivalence is not None else [])])
    return ["| " + " | ".join(line) + " |" for line in lines]


def _sentence(experiment: AnySwept, analysis: AnalysisConfig, one: Finding, reference: str) -> str:
    where = "" if one.place is None else f" ({' '.join(str(part) for part in one.place if part)})"
    return f"- {experiment.curve_axis.label(one.arm)} against {reference}{where}: {reading(experiment, analysis, one)}."
