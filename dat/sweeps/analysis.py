"""An analysis fixed before its runs: what is compared by which test, and which grid is to be run for it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dual_attention._words import suggestion
from dual_attention.model_analysis.measures.intervals import least_sign_flip_p

from ..training.config_io import read_config
from ..training.configs import check, check_integers, check_names, check_seed

if TYPE_CHECKING:
    from .experiment import AnySwept

Place = tuple[str, int]
"""A panel and a point."""
Planned = dict[Place, dict[str, int]]
"""Panels and points, and the point at which each arm is run for them: the same, but for arms compared at their ends."""


@dataclass(frozen=True)
class AnalysisConfig:
    """A decision that runs are to make, and its rules: written before the runs, and kept beside them."""

    question: str = ""
    """What is asked, in a sentence."""
    announced: str = ""
    """Where it was written down before the runs, such as a section of a README."""
    grid: str | None = None
    """The grid that is to be run, by its name; null takes the grid with which the first cell is run."""
    measure: str = ""
    """Primary measure: a column of results that the experiment compares."""
    reference: str = ""
    """Arm from which the others' differences are taken, paired by seed."""
    arms: tuple[str, ...] = ()
    """The other arms."""
    panels: tuple[str, ...] | None = None
    """Panels that count, such as tasks or data sets; null takes all of the grid."""
    points: tuple[int, ...] | None = None
    """Points of the horizontal axis that count, such as training-set sizes; null takes all of the grid."""
    of: Literal["means", "cells", "ends"] = "means"
    """What is tested of each arm: for each seed the mean over all panels and points, one test; each cell; or the mean
    over all panels of what each arm has at its own last point, such as its longest training."""
    seeds: int = 1
    """Trials planned; their seeds are first_seed, first_seed + 1 and so on. Others are left out."""
    first_seed: int = 0
    """Seed of the first trial."""
    fewest_seeds: int = 3
    """Pairs below which nothing is decided."""
    test: Literal["paired_t", "sign_flip"] = "paired_t"
    """Two-sided test of the differences: Student's t; or the exact permutation test, which flips their signs."""
    alpha: float = 0.05
    """Level of that test, after correction."""
    correction: Literal["holm", "holm_differences", "bonferroni", "none"] = "holm"
    """Correction for several tests, over the family of all that this analysis makes: arms, or arms times cells.
    holm_differences is Holm's for tests of differences and none for those of equivalence."""
    least_difference: float = 0.0
    """Least difference, in the unit of the measure, that is called one."""
    bound: float | None = None
    """Arms are equivalent if their difference lies between -bound and bound; null tests no equivalence."""
    equivalence_alpha: float = 0.05
    """Level of each of the two one-sided tests of equivalence, after correction: at 0.05 the interval of 90 % must lie
    within the bounds, at 0.025 that of 95 %."""

    def __post_init__(self) -> None:
        check(self.measure != "", "measure", "the name of a measure", self.measure)
        check(self.reference != "", "reference", "the name of an arm", self.reference)
        check(len(self.arms) > 0, "arms", "a list of arms that is not empty", self.arms)
        check(self.reference not in self.arms, "arms", f"arms other than the reference {self.reference}", self.arms)
        check_integers(self, "", "seeds")
        check_integers(self, "", "fewest_seeds", least=2)
        check_seed(self, name="first_seed")
        for name in ("alpha", "equivalence_alpha"):
            check(0 < getattr(self, name) < 0.5, name, "a number between 0 and 0.5", getattr(self, name))
        check(0 <= self.least_difference < inf, "least_difference", "a number of at least 0", self.least_difference)
        check(self.bound is None or 0 < self.bound < inf, "bound", "a positive number or null", self.bound)

    @property
    def planned_seeds(self) -> range:
        """The seeds of its trials."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def counts(self, place: Place) -> bool:
        """Whether a panel and a point belong to it."""
        panel, point = place
        return (self.panels is None or panel in self.panels) and (self.points is None or point in self.points)

    def check_against(self, experiment: AnySwept) -> None:
        """Check that the experiment has its measure and its grid, the grid its arms, and that it can decide.

        Raises:
            ValueError: naming the key.
        """
        check_names("analysis: measure", [self.measure], experiment.measures)
        places: set[Place] = set()
        if self.grid is not None:
            check_names("analysis: grid", [self.grid], experiment.grids)
            points = experiment.grids[self.grid].points()
            arms = list(dict.fromkeys(str(point[experiment.curve_axis.name]) for point in points))
            check_names("analysis: reference", [self.reference], arms)
            check_names("analysis: arms", self.arms, arms)
            places = {(experiment.panel(dict(point)), int(point[experiment.point_axis.name])) for point in points}
        self.check_decides(len([place for place in places if self.counts(place)]) or 1)

    def check_decides(self, places: int) -> None:
        """Check that some outcome of its tests would decide something. One recorded earlier is computed as it is.

        Args:
            places: panels and points that count, as far as they are known.

        Raises:
            ValueError: naming the key.
        """
        check(len({*self.arms}) == len(self.arms), "analysis: arms", "different arms", self.arms)
        least = f"at least the {self.fewest_seeds} of fewest_seeds"
        check(self.seeds >= self.fewest_seeds, "analysis: seeds", least, self.seeds)
        tests = len(self.arms) * (places if self.of == "cells" else 1)
        smallest = least_sign_flip_p(self.seeds) * (1 if self.correction == "none" else tests)
        expected = f"more: the smallest p of their signs is {smallest:.2g} after correction, alpha is {self.alpha:g}"
        check(self.test != "sign_flip" or smallest < self.alpha, "analysis: seeds", expected, self.seeds)


def find_analysis(experiment: AnySwept, given: str | None, scale: str | None = None) -> AnalysisConfig | None:
    """The analysis of that name or in that file; if none is given, that of the grid ``scale``, if there is one.

    Raises:
        FileNotFoundError, ValueError: naming the file or the key, if it is wrong.
    """
    known = experiment.analyses
    if given is None:
        return known.get(scale) if scale is not None else None
    if given in known:
        return known[given]
    if not Path(given).suffix:
        shipped = f"one of {', '.join(known)}" if known else f"nothing else, since {experiment.name} comes with none"
        raise ValueError(f"analysis: expected a YAML file or {shipped}, got {given!r}{suggestion(given, known)}")
    found = read_config(AnalysisConfig, Path(given))
    found.check_against(experiment)
    return found
