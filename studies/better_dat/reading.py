"""A better DAT? How the results of its families are read; as announced."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from studies._lib.inference import mcnemar_p, sign_flip_p
from studies._lib.rates import RATES
from studies._lib.readings import Compared, compared, interval, p_text
from studies._lib.tables import FAILED, Frame, by_seed, markdown, read_results
from studies.better_dat.models import CHANGES, NAMES
from studies.relation_or_product.study import at

SEEDS = 10
RESULTS = Path(__file__).parent / "results"
BOUND = 2.0
"""Points below which a difference is small."""
BASELINES = ("transformer", "gate", "corelnet")


class Family(NamedTuple):
    """Runs of one experiment, in ``results/NAME-rates`` and ``results/NAME-chosen``.

    Attributes:
        sets: columns of results whose mean is the measure; ``within``: that by which a run may have failed.
        tasks: a column over whose values means are taken, too.
        rule: column of the untrained rule; without it a run has failed below 60 %.
    """

    name: str
    sets: Mapping[str, str]
    within: str
    arms: Sequence[str] = (*NAMES,)
    rates: Sequence[float] = RATES
    tasks: str | None = None
    rule: str | None = None

    def rows(self, grid: str) -> Frame:
        """The runs of a grid, with the ``measure``, whether each has ``failed``, and arms named with their rates."""
        found = read_results(RESULTS / f"{self.name}-{grid}" / "results.csv")
        bound = FAILED if self.rule is None else found[self.rule] + 2
        found = found.assign(measure=found[[*self.sets]].mean(axis=1), failed=found[self.within] < bound)
        named = {at(arm, rate): (arm, rate) for arm in self.arms for rate in self.rates}
        arms, rates = zip(*(named.get(name, (name, RATES[1])) for name in found["model"]), strict=True)
        return found.assign(arm=arms, rate=rates)

    def done(self, grid: str = "chosen") -> bool:
        """Whether there are results of a grid."""
        return (RESULTS / f"{self.name}-{grid}" / "results.csv").is_file()

    def own_rates(self) -> dict[str, float]:
        """The rate of each arm with the highest mean validation accuracy."""
        means = self.rows("rates").groupby(["arm", "rate"])["val"].mean()
        return {arm: max(self.rates, key=lambda rate, arm=arm: means[arm, rate]) for arm in self.arms}

    def chosen(self) -> Frame:
        """The runs of ``chosen`` at own rates."""
        rows, own = self.rows("chosen"), self.own_rates()
        return rows[[own[arm] == rate for arm, rate in zip(rows["arm"], rows["rate"], strict=True)]]

    def measured(self) -> Frame:
        """The measure by seed and arm, for the seeds of which all arms are there."""
        points = [] if self.tasks is None else [self.tasks]
        return by_seed(self.chosen(), "arm", "measure", points=points).reindex(columns=[*self.arms]).dropna()

    def changes(self) -> list[str]:
        """The changes that are arms here."""
        return [change for change in CHANGES if change in self.arms]

    def best_baseline(self) -> str:
        """The baseline whose mean is highest."""
        means = self.measured().mean()
        return max((arm for arm in BASELINES if arm in self.arms), key=lambda arm: means[arm])

    def comparisons(self) -> dict[tuple[str, str], Compared]:
        """Each change less the DAT, and less the best baseline."""
        table, best = self.measured(), self.best_baseline()
        pairs = [(change, other) for change in self.changes() for other in ("dat", best)]
        found = compared({f"{a} {b}": (table[a] - table[b]).tolist() for a, b in pairs}, BOUND)
        return dict(zip(pairs, found.values(), strict=True))

    def too_hard(self) -> bool:
        """Whether more than half of all runs have failed."""
        return bool(self.chosen()["failed"].mean() > 0.5)

    def reading(self, change: str) -> str:
        """What is said of a change."""
        if len(self.measured()) < SEEDS:
            return "undecided, so far"
        if self.too_hard():
            return "not read: too hard at this size"
        found = self.comparisons()
        dat, best = (found[change, other].verdict() for other in ("dat", self.best_baseline()))
        if dat == "ahead":
            return "ahead of every baseline" if best == "ahead" else "ahead of the DAT"
        return {"behind": "behind", "within": "undecided, within ±2"}.get(dat, "undecided")


GENERALISED = {"values": "new values", "pairs": "new rules", "noise": "more noise"}
MATRICES = Family("matrices", GENERALISED, "test", rule="test_rule")
KINSHIP = Family(
    "kinship",
    {"beyond": "chains of five to ten"},
    "within",
    arms=("dat", "bound", "transformer", "gate"),
    rates=(0.001, 0.002, 0.004),
    rule="rule_within",
)
GAMES = Family("games", {"hexominoes": "hexominoes", "stripes": "stripes"}, "test", tasks="task")
FAMILIES = [family for family in (MATRICES, KINSHIP, GAMES) if family.done()]


def table_of_accuracy() -> str:
    """Accuracy at own rates by family and arm, and the runs that failed."""
    lines = []
    for family in FAMILIES:
        rows, own, table = family.chosen(), family.own_rates(), family.measured()
        rows = rows[rows["seed"].isin(table.index)]
        for arm in family.arms:
            runs = rows[rows["arm"] == arm]
            edge = " (at the edge)" if own[arm] in (min(family.rates), max(family.rates)) else ""
            line: dict[str, Any] = {"family": family.name, "arm": NAMES[arm], "seeds": len(table)}
            line |= {"own rate": f"{own[arm]:g}{edge}", "as in training": f"{runs[family.within].mean():.1f}"}
            line["by set"] = ", ".join(f"{words} {runs[name].mean():.1f}" for name, words in family.sets.items())
            line["measure"] = interval(table[arm].tolist(), sign=False)
            lines.append(line | {"failed": f"{runs['failed'].sum()} of {len(runs)}"})
    return markdown(pd.DataFrame(lines))


def table_of_changes() -> str:
    """Each change less the DAT and less the best baseline of a family, and what is said of it."""
    lines = []
    for family in FAMILIES:
        best, found = family.best_baseline(), family.comparisons()
        for change in family.changes():
            line: dict[str, Any] = {"family": family.name, "change": NAMES[change]}
            for words, other in (("less the DAT", "dat"), ("less the best baseline", best)):
                one = found[change, other]
                line |= {words: interval(one.values), f"{words}, p (Holm)": p_text(one.p)}
            lines.append(line | {"best baseline": NAMES[best], "said": family.reading(change)})
    return markdown(pd.DataFrame(lines))


def table_of_baselines() -> str:
    """The DAT and its squared distances less each baseline, which decide nothing; sign flips, not corrected."""
    lines = []
    for family in FAMILIES:
        table = family.measured()
        for arm in (arm for arm in ("dat", "squared") if arm in family.arms):
            for other in (other for other in (*BASELINES, "dat") if other in family.arms and other != arm):
                values = (table[arm] - table[other]).tolist()
                line = {"family": family.name, "arm": NAMES[arm], "less": NAMES[other], "ahead by": interval(values)}
                lines.append(line | {"p": p_text(sign_flip_p(values))})
    return markdown(pd.DataFrame(lines))


def table_of_failures() -> str:
    """Runs of bounded and of squared distances that failed, paired by seed and task."""
    lines = []
    for family in FAMILIES:
        if "bounded" in family.arms:
            runs = family.chosen().pivot_table("failed", ["seed", *([family.tasks] if family.tasks else [])], "arm")
            runs = runs[["bounded", "squared"]].dropna() > 0
            line = {"family": family.name} | {NAMES[arm]: f"{runs[arm].sum()} of {len(runs)}" for arm in runs}
            lines.append(line | {"p (McNemar)": p_text(mcnemar_p(*(runs[arm].tolist() for arm in runs)))})
    return markdown(pd.DataFrame(lines))


TABLES = {
    "accuracy": table_of_accuracy,
    "changes": table_of_changes,
    "failures": table_of_failures,
    "baselines": table_of_baselines,
}
