"""A better DAT? How the results of its families are read; as announced."""

from pathlib import Path
from typing import Any

import pandas as pd

from studies._lib.inference import mcnemar_p, sign_flip_p
from studies._lib.readings import Compared, compared, interval, p_text
from studies._lib.tables import Frame, by_seed, markdown
from studies.better_dat.families import Family
from studies.better_dat.models import CHANGES, NAMES

SEEDS = 10
RESULTS = Path(__file__).parent / "results"
BOUND = 2.0
"""Points below which a difference is small."""
BASELINES = ("transformer", "gate", "corelnet")
BESIDE = "softmax"
"""An arm of games that was added later, and is never the best baseline."""


def best_baseline(family: Family) -> str:
    """The baseline whose mean is highest."""
    means = family.measured().mean()
    return max((arm for arm in BASELINES if arm in family.arms), key=lambda arm: means[arm])


def changes(family: Family) -> list[str]:
    """The changes that are arms of a family."""
    return [change for change in CHANGES if change in family.arms]


def comparisons(family: Family) -> dict[tuple[str, str], Compared]:
    """Each change less the DAT, and less the best baseline."""
    table, best = family.measured(), best_baseline(family)
    pairs = [(change, other) for change in changes(family) for other in ("dat", best)]
    found = compared({f"{a} {b}": (table[a] - table[b]).tolist() for a, b in pairs}, BOUND)
    return dict(zip(pairs, found.values(), strict=True))


def reading(family: Family, change: str) -> str:
    """What is said of a change."""
    if len(family.measured()) < SEEDS:
        return "undecided, so far"
    if family.chosen()["failed"].mean() > 0.5:
        return "not read: too hard at this size"
    found = comparisons(family)
    dat, best = (found[change, other].verdict() for other in ("dat", best_baseline(family)))
    if dat == "ahead":
        return "ahead of every baseline" if best == "ahead" else "ahead of the DAT"
    return {"behind": "behind", "within": "undecided, within ±2"}.get(dat, "undecided")


CONFIRMED = {
    "squared": "squared",
    "transformer": "transformer-lr0.003",
    "gate": "gate",
    "softmax": "softmax-lr0.0003",
}
"""Arms of the confirmation, each at the rate that was chosen."""
GENERALISED = {"values": "new values", "pairs": "new rules", "noise": "more noise"}
OF_ALL = [arm for arm in NAMES if arm != BESIDE]
OF_RULE = [f"{name}_rule" for name in GENERALISED]
MATRICES = Family("matrices", [RESULTS], GENERALISED, "test", OF_ALL, rule="test_rule", rules=OF_RULE)
KINSHIP = Family(
    "kinship",
    [RESULTS],
    {"beyond": "chains of five to ten"},
    "within",
    arms=("dat", "bound", "transformer", "gate"),
    rates=(0.001, 0.002, 0.004),
    rule="rule_within",
    rules=("rule_beyond",),
)
RIVALS = [arm for arm in CONFIRMED if arm != "squared"]
SHAPES = {"hexominoes": "hexominoes", "stripes": "stripes"}
GAMES = Family("games", [RESULTS, RESULTS / BESIDE], SHAPES, "test", (*NAMES,), tasks="task")
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
        if family.rules:
            runs = rows[rows["arm"] == "dat"]  # the same for every arm
            told = zip(family.sets.values(), family.rules, strict=True)
            line = {"family": family.name, "arm": "untrained rule", "seeds": len(table), "own rate": "", "failed": ""}
            line["as in training"] = f"{runs[family.rule].mean():.1f}"
            line["by set"] = ", ".join(f"{words} {runs[name].mean():.1f}" for words, name in told)
            lines.append(line | {"measure": interval(runs[[*family.rules]].mean(axis=1).tolist(), sign=False)})
    return markdown(pd.DataFrame(lines))


def table_of_changes() -> str:
    """Each change less the DAT and less the best baseline of a family, and what is said of it."""
    lines = []
    for family in FAMILIES:
        best, found = best_baseline(family), comparisons(family)
        for change in changes(family):
            line: dict[str, Any] = {"family": family.name, "change": NAMES[change]}
            for words, other in (("less the DAT", "dat"), ("less the best baseline", best)):
                one = found[change, other]
                line |= {words: interval(one.values), f"{words}, p (Holm)": p_text(one.p)}
            lines.append(line | {"best baseline": NAMES[best], "said": reading(family, change)})
    return markdown(pd.DataFrame(lines))


def table_of_baselines() -> str:
    """The DAT and its squared distances less each baseline, which decide nothing; sign flips, not corrected."""
    lines = []
    for family in FAMILIES:
        table = family.measured()
        trained = by_seed(family.chosen(), "arm", family.within, points=[family.tasks] if family.tasks else [])
        for arm in (arm for arm in ("dat", "squared") if arm in family.arms):
            for other in (other for other in (*BASELINES, BESIDE, "dat") if other in family.arms and other != arm):
                values = (table[arm] - table[other]).tolist()
                line = {"family": family.name, "arm": NAMES[arm], "less": NAMES[other], "ahead by": interval(values)}
                line |= {"p": p_text(sign_flip_p(values))}
                lines.append(line | {"as in training": interval((trained[arm] - trained[other]).tolist())})
    return markdown(pd.DataFrame(lines))


def confirmation() -> Frame:
    """Runs of the confirmation, each with its ``arm``, its ``measure`` of games, and whether it has ``failed``."""
    names = {model: arm for arm, model in CONFIRMED.items()}
    rows = GAMES.rows("confirm")
    return rows.assign(arm=rows["model"].map(names))


def confirmed() -> dict[str, Compared]:
    """Squared distances less each rival on new seeds."""
    table = by_seed(confirmation(), "arm", "measure", points=["task"])
    return compared({arm: (table["squared"] - table[arm]).tolist() for arm in RIVALS}, BOUND)


def table_of_confirmation() -> str:
    """Squared distances less each rival on new seeds, over the four games and by game, and the runs that failed."""
    rows, found, lines = confirmation(), confirmed(), []
    failed = rows.groupby("arm")["failed"].sum()
    for arm, one in found.items():
        line: dict[str, Any] = {"squared distances less": NAMES[arm], "seeds": len(one.values)}
        line |= {"ahead by": interval(one.values), "p (Holm)": p_text(one.p), "said": one.verdict()}
        tasks = {f"`{task}`": own for task, own in rows.groupby("task", sort=False)}
        for name, own in {**tasks, "without `xoccurs`": rows[rows["task"] != "xoccurs"]}.items():
            table = own.pivot_table("measure", "seed", "arm")
            line[name] = interval((table["squared"] - table[arm]).tolist())
        lines.append(line | {"failed": f"{failed['squared']} and {failed[arm]} of {(rows['arm'] == arm).sum()}"})
    return markdown(pd.DataFrame(lines))


def failures(family: Family) -> Frame:
    """Whether runs of bounded and of squared distances failed, in pairs of a seed and a task."""
    pairs = ["seed", *([family.tasks] if family.tasks else [])]
    return family.chosen().pivot_table("failed", pairs, "arm")[["bounded", "squared"]].dropna() > 0


def table_of_failures() -> str:
    """Runs of bounded and of squared distances that failed."""
    lines = []
    for family in FAMILIES:
        if "bounded" in family.arms:
            runs = failures(family)
            line = {"family": family.name} | {NAMES[arm]: f"{runs[arm].sum()} of {len(runs)}" for arm in runs}
            lines.append(line | {"p (McNemar)": p_text(mcnemar_p(*(runs[arm].tolist() for arm in runs)))})
    return markdown(pd.DataFrame(lines))


TABLES = {
    "accuracy": table_of_accuracy,
    "changes": table_of_changes,
    "failures": table_of_failures,
    "baselines": table_of_baselines,
    "confirmation": table_of_confirmation,
}
