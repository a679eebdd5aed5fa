"""Families of runs at three learning rates each, of which every arm takes its own, and then ten new seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from studies._lib.rates import RATES
from studies._lib.tables import FAILED, Frame, by_seed, read_results


class Family(NamedTuple):
    """Runs of one experiment: the grids ``rates``, by whose validation accuracy rates are chosen, and ``chosen``.

    Attributes:
        folders: those of results, in which a grid is ``NAME-rates/results.csv`` or ``NAME-chosen/results.csv``.
        sets: columns of results whose mean is the measure; ``within``: that by which a run may have failed.
        arms: names of presets, which at other rates than 0.001 end in ``-lr`` and the rate.
        tasks: a column over whose values means are taken, too.
        rule: column of the untrained rule on ``within``, which a run that has not failed is ahead of by two points;
            without it, a run has failed below 60 %. ``rules``: the same on ``sets``.
    """

    name: str
    folders: Sequence[Path]
    sets: Mapping[str, str]
    within: str
    arms: Sequence[str]
    rates: Sequence[float] = RATES
    tasks: str | None = None
    rule: str | None = None
    rules: Sequence[str] = ()

    def files(self, grid: str) -> list[Path]:
        """Results of a grid that are there."""
        files = [folder / f"{self.name}-{grid}" / "results.csv" for folder in self.folders]
        return [file for file in files if file.is_file()]

    def done(self) -> bool:
        """Whether there are results of all folders."""
        return len(self.files("chosen")) == len(self.folders)

    def rows(self, grid: str) -> Frame:
        """The runs of a grid, each with its ``arm``, ``rate`` and ``measure``, and whether it has ``failed``."""
        found = read_results(*self.files(grid))
        bound = FAILED if self.rule is None else found[self.rule] + 2
        parts = [name.partition("-lr") for name in found["model"]]
        return found.assign(
            arm=[arm for arm, *_ in parts],
            rate=[float(rate or 1e-3) for *_, rate in parts],
            measure=found[[*self.sets]].mean(axis=1),
            failed=found[self.within] < bound,
        )

    def own_rates(self) -> dict[str, float]:
        """The rate of each arm with the highest mean validation accuracy."""
        means = self.rows("rates").groupby(["arm", "rate"])["val"].mean()
        return {arm: max(self.rates, key=lambda rate, arm=arm: means[arm, rate]) for arm in self.arms}

    def chosen(self) -> Frame:
        """The runs of ``chosen`` at own rates."""
        rows, own = self.rows("chosen"), self.own_rates()
        return rows[[own.get(arm) == rate for arm, rate in zip(rows["arm"], rows["rate"], strict=True)]]

    def measured(self) -> Frame:
        """The measure by seed and arm, for the seeds of which all arms are there."""
        points = [] if self.tasks is None else [self.tasks]
        return by_seed(self.chosen(), "arm", "measure", points=points).reindex(columns=[*self.arms]).dropna()
