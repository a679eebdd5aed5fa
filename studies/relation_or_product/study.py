"""Relations, any product, or positions? Small language models on English; sequences and mathematics are beside it.

The grids of the other families are in sequences.py and mathematics.py, and are run by the same command.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dat.experiments.language.grid import LanguageGrid
from studies._lib.tables import markdown, read_results
from studies.language.study import STUDY as LANGUAGE_STUDY
from studies.relation_or_product.models import LANGUAGE

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


FAILED = {
    "English": "2.894 or more",
    "permutations": "29.1 or less",
    "next term": "43.1 or less",
}
"""By family, what counts as failed: no better than the best rule, of accuracies by two points."""


def table_of_rules() -> str:
    """The rules without training of all families, and where a run has failed."""
    lines = read_results(RULES)
    lines["value"] = [
        f"{value:.3f}" if "bits" in unit else f"{value:.1f}"
        for value, unit in lines[["value", "measure"]].itertuples(index=False)
    ]
    lines["failed"] = lines["family"].map(FAILED).where(~lines["family"].duplicated(keep="last"), "")
    return markdown(lines)


TABLES: dict[str, Callable[[], str]] = {"rules": table_of_rules}
