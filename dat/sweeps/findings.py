"""The findings of an analysis: the tests that it names, of the runs that it plans, corrected as it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from dual_attention.model_analysis.measures.intervals import corrected, equivalence_p, half_width, paired_p, sign_flip_p

from ..training.metrics import Row
from .analysis import AnalysisConfig, Place, Planned
from .contrasts import differences_by_cell
from .experiment import AnySwept

TESTS = {"paired_t": paired_p, "sign_flip": sign_flip_p}
CORRECTIONS = {"holm_differences": ("holm", "none")}
"""Corrections that are not the same of tests of differences and of those of equivalence."""


@dataclass(frozen=True)
class Finding:
    """One test of an analysis.

    Attributes:
        arm: compared with the reference.
        place: the panel and the point; None for the mean over all.
        differences: from the reference, by seed.
        p, adjusted: of the test, before and after correction; None with fewer than two pairs.
        equivalence, adjusted_equivalence: likewise of the two one-sided tests; None without a bound.
    """

    arm: str
    place: Place | None
    differences: dict[int, float]
    p: float | None = None
    adjusted: float | None = None
    equivalence: float | None = None
    adjusted_equivalence: float | None = None

    @property
    def mean(self) -> float:
        """Mean difference."""
        return fmean(self.differences.values())

    def half(self, level: float) -> float:
        """Half of its t-interval."""
        return half_width(list(self.differences.values()), level=level)


def findings(experiment: AnySwept, analysis: AnalysisConfig, rows: Sequence[Row], planned: Planned) -> list[Finding]:
    """The tests of an analysis, those that want runs, too.

    Args:
        planned: what it plans to be run; a seed counts for a mean over several places if it was run at each.
    """
    chosen = _at_their_places(experiment, analysis, rows, planned)
    by_cell = differences_by_cell(experiment, chosen, analysis.measure, analysis.reference)
    of_place = {place: by_cell.get(place, {}) for place in planned}
    found: list[tuple[str, Place | None, dict[int, float]]] = []
    for arm in analysis.arms:
        own = {place: curves.get(arm, {}) for place, curves in of_place.items()}
        if analysis.of == "cells":
            found += [(arm, place, own[place]) for place in planned]
        else:
            seeds = set.intersection(*map(set, own.values())) if own else set()
            found.append((arm, None, {seed: fmean(by[seed] for by in own.values()) for seed in sorted(seeds)}))
    return _tested(analysis, found)


def _at_their_places(
    experiment: AnySwept, analysis: AnalysisConfig, rows: Sequence[Row], planned: Planned
) -> list[Row]:
    """The planned rows; those of an arm that has a point of its own for a place, with the point of that place."""
    curve, point = experiment.curve_axis.name, experiment.point_axis.name
    return [
        {**row, point: at}
        for row in rows
        if row["seed"] in analysis.planned_seeds
        for (panel, at), own in planned.items()
        if experiment.panel(row) == panel and own.get(row[curve]) == int(row[point])
    ]


def corrections(analysis: AnalysisConfig) -> tuple[str, str]:
    """Correction of the tests of differences, and of those of equivalence."""
    return CORRECTIONS.get(analysis.correction, (analysis.correction, analysis.correction))


def _tested(analysis: AnalysisConfig, found: Sequence[tuple[str, Place | None, dict[int, float]]]) -> list[Finding]:
    """Findings with their tests; corrected as if those that want pairs had been made, too."""
    test, bound = TESTS[analysis.test], analysis.bound
    p = [test(list(by_seed.values())) if len(by_seed) > 1 else 1.0 for *_, by_seed in found]
    both = [1.0] * len(found)
    if bound is not None:
        both = [equivalence_p(list(by.values()), bound) if len(by) > 1 else 1.0 for *_, by in found]
    adjusted, adjusted_both = (corrected(*one) for one in zip((p, both), corrections(analysis), strict=True))
    return [
        Finding(*one, p[n], adjusted[n], *((both[n], adjusted_both[n]) if bound is not None else ()))
        if len(one[2]) > 1
        else Finding(*one)
        for n, one in enumerate(found)
    ]


def reading(experiment: AnySwept, analysis: AnalysisConfig, found: Finding) -> str:
    """Words for a finding, by the rules of its analysis."""
    pairs = len(found.differences)
    if pairs < max(2, analysis.fewest_seeds) or found.adjusted is None:
        return f"undecided: {pairs} of at least {analysis.fewest_seeds} pairs"
    words = []
    if found.adjusted < analysis.alpha and abs(found.mean) >= analysis.least_difference:
        better = (found.mean < 0) == experiment.lower_is_better(analysis.measure)
        words.append("better than the reference" if better else "worse than the reference")
    if found.adjusted_equivalence is not None and found.adjusted_equivalence < analysis.equivalence_alpha:
        words.append(f"equivalent within ±{analysis.bound:g}{experiment.unit}")
    return ", but ".join(words) or "undecided"
