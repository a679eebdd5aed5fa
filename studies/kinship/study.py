"""Kinship: positions, symbols and rivals, beside the runs of the study of a better DAT."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from studies._lib.readings import Compared, compared, interval, p_text
from studies._lib.tables import markdown, read_results
from studies.better_dat import reading
from studies.better_dat.kinship import GRIDS as BETTER
from studies.better_dat.kinship import ROWS as BETTER_ROWS
from studies.better_dat.models import OF_KINSHIP
from studies.kinship.config import PRESETS as KINSHIP
from studies.relation_or_product.study import rated

EXPERIMENT = "studies/kinship/experiment.py:Kinship"
KNOWN = {
    "dat": "DAT, symbols by content",
    "transformer": "Transformer, rotary positions",
    "gate": "Transformer, rotary positions, linear gate",
}
"""Arms of the study of a better DAT."""
FURTHER = {
    "T-positions": "Transformer, learned positions",
    "T-relative": "Transformer, positions of Shaw et al.",
    "T-none": "Transformer, no positions",
    "RCA": "RCA",
    "DAT-relative": "DAT, symbols by relative position",
    "DAT-symbolic-sym": "DAT, symmetric relations",
    "DAT-none": "DAT, no positions",
}
NAMES = KNOWN | FURTHER
RATES = reading.KINSHIP.rates
OF_FURTHER, LR_OF = rated({name: KINSHIP[name] for name in FURTHER}, (*RATES,))
PRESETS: dict[str, Any] = {**rated(OF_KINSHIP, (*RATES,))[0], **OF_FURTHER}
GRIDS: dict[str, Any] = {
    name: replace(
        BETTER[name].with_presets(PRESETS)(**{**vars(BETTER[name]), "models": (*OF_FURTHER,), "lr_of": LR_OF}),
        out=f"runs/kinship-{name}",
    )
    for name in ("rates", "chosen")
}
BLIND = ("dat-lr0.002", "transformer-lr0.002")
GRIDS["blind"] = replace(
    GRIDS["chosen"],
    out="runs/kinship-blind",
    seeds=3,
    models=BLIND,
    lr_of=dict.fromkeys(BLIND, 0.002),
    data=replace(GRIDS["chosen"].data, blind=True),
)
ROWS = BETTER_ROWS | {"rotary positions": "compared"}
RESULTS = Path(__file__).parent / "results"
RULE = RESULTS / "rule.csv"
FAMILY = reading.KINSHIP._replace(folders=[reading.RESULTS, RESULTS], arms=(*NAMES,))
PRIMARY = ("transformer", "gate", "T-positions", "T-relative", "T-none", "RCA")
"""The DAT less these decides."""


def comparisons() -> dict[str, Compared]:
    """The DAT less each arm without relations between pairs."""
    table = FAMILY.measured()
    return compared({arm: (table["dat"] - table[arm]).tolist() for arm in PRIMARY}, reading.BOUND)


def table_of_rules() -> str:
    """Accuracy of the untrained rule, and the accuracy up to which a run has failed."""
    rows = read_results(RULE)
    line = {"seeds": len(rows), "chains of three and four": interval(rows["within"].tolist(), sign=False)}
    line["chains of five to ten"] = interval(rows["beyond"].tolist(), sign=False)
    line["failed"] = f"below {rows['within'].mean() + 2:.1f} on chains of three and four"
    return markdown(pd.DataFrame([line]))


def table_of_accuracy() -> str:
    """Accuracy of every arm at its own rate; the DAT less it; and failed runs."""
    rows, own, table, found, lines = FAMILY.chosen(), FAMILY.own_rates(), FAMILY.measured(), comparisons(), []
    rows = rows[rows["seed"].isin(table.index)]
    for arm, words in NAMES.items():
        runs = rows[rows["arm"] == arm]
        line: dict[str, Any] = {"model": words, "seeds": len(table), "own rate": f"{own[arm]:g}"}
        line |= {
            "three and four": f"{runs['within'].mean():.1f}",
            "five to ten": interval(table[arm].tolist(), sign=False),
        }
        line |= {"new names": f"{runs['names'].mean():.1f}", "more noise": f"{runs['noise'].mean():.1f}"}
        line["DAT less it"] = f"{interval(found[arm].values)} (p = {p_text(found[arm].p)})" if arm in found else ""
        lines.append(line | {"failed": f"{runs['failed'].sum()} of {len(runs)}"})
    return markdown(pd.DataFrame(lines))


def table_of_blind() -> str:
    """Accuracy of models to which all relations are one."""
    rows = read_results(RESULTS / "kinship-blind" / "results.csv")
    lines = []
    for arm, runs in rows.groupby("model", sort=False):
        line = {"model": NAMES[str(arm).partition("-lr")[0]], "seeds": len(runs)}
        lines.append(line | {"three and four, relations hidden": interval(runs["within"].tolist(), sign=False)})
    return markdown(pd.DataFrame(lines))


TABLES: dict[str, Callable[[], str]] = {"rules": table_of_rules, "blind": table_of_blind}
if FAMILY.done():
    TABLES["accuracy"] = table_of_accuracy
