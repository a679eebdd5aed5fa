"""Relations, any product, or positions? Small language models on English; sequences and mathematics are beside it.

The grids of the other families are in sequences.py and mathematics.py, and are run by the same command.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from dat.experiments.language.grid import LanguageGrid
from studies._lib.inference import equivalence_p, holm, paired_p, sign_flip_p
from studies._lib.readings import p_text
from studies._lib.tables import Frame, by_seed, markdown, mean_text, read_results
from studies.language.study import STUDY as LANGUAGE_STUDY
from studies.relation_or_product.models import ARM_NAMES, LANGUAGE

EXPERIMENT = "language"
SEEDS = 5
RULES = Path(__file__).parent / "results" / "rule.csv"


def at(arm: str, rate: float) -> str:
    """The name of an arm at a learning rate."""
    return f"{arm}-lr{rate:g}"


def rated(arms: Mapping[str, Any], rates: tuple[float, ...]) -> tuple[dict[str, Any], dict[str, float]]:
    """Every arm at every rate, by name, and these rates."""
    names = {at(arm, rate): (arm, rate) for rate in rates for arm in arms}
    return (
        {name: replace(arms[arm], name=name) for name, (arm, _) in names.items()},
        {name: rate for name, (_, rate) in names.items()},
    )


RATES = (0.004, 0.008, 0.016)
PRESETS, LR_OF = rated(LANGUAGE, RATES)
BEFORE = ("DAT-lr0.004", "DAT-lr0.008", "DAT-lr0.016", "T-gated-lr0.008", "T-gated-lr0.016")
"""Arms that the study of language trained from the same seeds, on the same text, for as many steps."""
ALL = replace(
    LanguageGrid.with_presets(PRESETS)(
        **{**vars(LANGUAGE_STUDY), "models": (*PRESETS,), "lr_of": LR_OF, "longer": None}
    ),
    out="runs/relation-or-product-language",
    seeds=SEEDS,
    first_seed=10,
)
GRIDS: dict[str, Any] = {
    "rates": replace(
        ALL,
        models=tuple(name for name in PRESETS if name not in BEFORE),
        lr_of={name: rate for name, rate in LR_OF.items() if name not in BEFORE},
    ),
    # One run of before, again: whether its number is that of today.
    "again": replace(
        ALL,
        out="runs/relation-or-product-again",
        seeds=1,
        models=("DAT-lr0.008", "T-gated-lr0.016"),
        lr_of={name: LR_OF[name] for name in ("DAT-lr0.008", "T-gated-lr0.016")},
    ),
}
ROWS = {
    "untrained rule": "counts of pairs and triples of bytes, rule.py",
    "linear gate": "T-gated-lr0.016",
    "rotary positions": "every arm",
    "steps": "1,500",
    "rates": "own rates",
    "failed": "worse than triples of bytes",
}


class Family(NamedTuple):
    """What is measured in a family; its learning rates, the bound below which a difference is small, and from where on
    a run has failed. Values are turned round where less is better."""

    folder: str
    measure: str
    rates: tuple[float, ...]
    bound: float
    failed: float
    sign: int = 1

    @property
    def file(self) -> Path:
        return RULES.parent / self.folder / "results.csv"


FAMILIES = {
    "English": Family("language", "bits_per_byte", RATES, 0.02, 2.894, -1),
    "permutations": Family("sequences", "accuracy", (0.0005, 0.001, 0.002), 2.0, 29.1),
    "next term": Family("mathematics", "interpolate", (0.0006, 0.002, 0.006), 2.0, 43.1),
}
DONE = {name: family for name, family in FAMILIES.items() if family.file.is_file()}
PRIMARY = ("T-gated", "DAT-detached")
"""The DAT less these decides."""


def table_of_rules() -> str:
    """The rules without training of all families, and where a run has failed."""
    lines = read_results(RULES)
    lines["value"] = [
        f"{value:.3f}" if "bits" in unit else f"{value:.1f}"
        for value, unit in lines[["value", "measure"]].itertuples(index=False)
    ]
    words = {name: f"{one.failed:g} or {'less' if one.sign > 0 else 'more'}" for name, one in FAMILIES.items()}
    lines["failed"] = lines["family"].map(words).where(~lines["family"].duplicated(keep="last"), "")
    return markdown(lines)


def every_rate(family: Family) -> Frame:
    """The measure by seed and arm at a rate."""
    return by_seed(read_results(family.file), "model", family.measure)


def own(family: Family) -> tuple[Frame, Frame]:
    """By seed and arm, the rate that is best over the other seeds, and the measure at it."""
    table = every_rate(family)
    rates: Any = pd.DataFrame(index=table.index, columns=[*ARM_NAMES], dtype=float)
    values = rates.copy()
    for seed in table.index:
        means = family.sign * table.drop(index=seed).mean()
        for arm in ARM_NAMES:
            rate = max(family.rates, key=lambda rate, arm=arm, means=means: means[at(arm, rate)])
            rates.loc[seed, arm], values.loc[seed, arm] = rate, table.loc[seed, at(arm, rate)]
    return rates, values


def failed(family: Family, values: Any) -> int:
    """How many of these values are those of failed runs."""
    return int((family.sign * values <= family.sign * family.failed).sum())


def read() -> dict[str, Family]:
    """The families that are not too hard: of which no more than half of the announced runs have failed at own rates."""
    most = SEEDS * len(ARM_NAMES) / 2
    return {name: family for name, family in DONE.items() if failed(family, own(family)[1].to_numpy()) <= most}


def table_of_own_rates() -> str:
    """Means at every rate, how often each was an arm's own, the mean there, and the share of failed runs."""
    lines = []
    for name, family in DONE.items():
        table, (rates, values) = every_rate(family), own(family)
        digits = 3 if family.sign < 0 else 1
        for arm, words in ARM_NAMES.items():
            line: dict[str, Any] = {"family": name, "arm": words, "seeds": len(table)}
            for place, rate in zip(("lowest", "middle", "highest"), family.rates, strict=True):
                chosen = int((rates[arm] == rate).sum())
                line[f"{place} rate"] = f"{table[at(arm, rate)].mean():.{digits}f}" + f" (own: {chosen})" * bool(chosen)
            line["at own rates"] = mean_text(values[arm].tolist(), digits)
            lines.append(line | {"failed": f"{failed(family, values[arm])} of {len(values)}"})
    return markdown(pd.DataFrame(lines))


def less(family: Family, arm: str, other: str) -> list[float]:
    """How far one arm is ahead of another, by seed, both at own rates."""
    _, values = own(family)
    return (family.sign * (values[arm] - values[other])).tolist()


def adjusted() -> dict[tuple[str, str], float]:
    """p of the primary comparisons after Holm over all six; of those that are not read it is taken to be 1."""
    families, pairs = read(), [(name, other) for name in FAMILIES for other in PRIMARY]
    raw = [paired_p(less(families[name], "DAT", other)) if name in families else 1.0 for name, other in pairs]
    return dict(zip(pairs, holm(raw), strict=True))


def table_of_differences() -> str:
    """How far one arm is ahead of another; the first two of a family decide."""
    primary, lines = adjusted(), []
    pairs = [("DAT", other) for other in (*PRIMARY, "RCA", "T")] + [(arm, "T") for arm in PRIMARY]
    for name, family in read().items():
        digits = 3 if family.sign < 0 else 1
        for arm, other in pairs:
            values = less(family, arm, other)
            p = primary.get((name, other)) if arm == "DAT" else None
            line = {"family": name, "arm": ARM_NAMES[arm], "less": ARM_NAMES[other]}
            line["ahead by"] = mean_text(values, digits, sign=True).replace("-", "−")
            line |= {"p": p_text(paired_p(values)), "p (Holm)": "" if p is None else p_text(p)}
            line |= {"p (sign flips)": p_text(sign_flip_p(values))}
            lines.append(line | {"within": "yes" if equivalence_p(values, family.bound) < 0.05 else "no"})
    return markdown(pd.DataFrame(lines))


TABLES: dict[str, Callable[[], str]] = {
    "rules": table_of_rules,
    "own rates": table_of_own_rates,
    "differences": table_of_differences,
}
