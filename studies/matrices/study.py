"""Progressive matrices: architectures made for relations, beside the runs of the study of a better DAT."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from studies._lib.readings import Compared, compared, interval, p_text
from studies._lib.tables import markdown, read_results
from studies.better_dat import reading
from studies.better_dat.families import Family
from studies.better_dat.matrices import GRIDS as BETTER
from studies.better_dat.matrices import PRESETS as BETTER_PRESETS
from studies.better_dat.matrices import ROWS as BETTER_ROWS
from studies.better_dat.study import rated
from studies.matrices.model import PRESETS as MATRICES

EXPERIMENT = "studies/matrices/experiment.py:ProgressiveMatrices"
RIVALS = {
    "predinet": "PrediNet",
    "esbn": "ESBN",
    "abstractor": "Abstractor",
    "wren": "WReN",
    "scl": "SCL",
}
KNOWN = {name: reading.NAMES[name] for name in ("transformer", "gate", "corelnet", "squared")}
NAMES = {"dat": "DAT", **KNOWN, **RIVALS}
OF_RIVALS, LR_OF = rated({name: MATRICES[name] for name in RIVALS})
PRESETS: dict[str, Any] = BETTER_PRESETS | OF_RIVALS
GRIDS: dict[str, Any] = {
    name: replace(
        BETTER[name].with_presets(PRESETS)(**{**vars(BETTER[name]), "models": (*OF_RIVALS,), "lr_of": LR_OF}),
        out=f"runs/matrices-{name}",
    )
    for name in ("rates", "chosen")
}
GRIDS["blind"] = replace(
    GRIDS["chosen"],
    out="runs/matrices-blind",
    seeds=3,
    models=("dat", "transformer"),
    lr_of={},
    data=replace(GRIDS["chosen"].data, blind=True),
)
ROWS = BETTER_ROWS | {"linear gate": "gate"}
RESULTS = Path(__file__).parent / "results"
RULE = RESULTS / "rule.csv"
FAMILY = Family(
    "matrices", [reading.RESULTS, RESULTS], reading.GENERALISED, "test", (*NAMES,), rule=reading.MATRICES.rule
)


def comparisons() -> dict[str, Compared]:
    """The DAT less every other arm but the DAT with squared distances."""
    table = FAMILY.measured()
    others = [arm for arm in NAMES if arm not in ("dat", "squared")]
    return compared({arm: (table["dat"] - table[arm]).tolist() for arm in others}, reading.BOUND)


def table_of_accuracy() -> str:
    """Accuracy of every architecture at its own rate, by set; the DAT less it; and failed runs."""
    rows, own, table, found, lines = FAMILY.chosen(), FAMILY.own_rates(), FAMILY.measured(), comparisons(), []
    rows = rows[rows["seed"].isin(table.index)]
    for arm, words in NAMES.items():
        runs = rows[rows["arm"] == arm]
        line: dict[str, Any] = {"model": words, "parameters": f"{runs['parameters'].iloc[0]:,}"}
        line["seeds"] = f"{len(table)}"
        line |= {"own rate": f"{own[arm]:g}", "as in training": f"{runs['test'].mean():.1f}"}
        line |= {words: f"{runs[name].mean():.1f}" for name, words in FAMILY.sets.items()}
        line["mean of the three"] = interval(table[arm].tolist(), sign=False)
        line["DAT less it"] = f"{interval(found[arm].values)} (p = {p_text(found[arm].p)})" if arm in found else ""
        lines.append(line | {"failed": f"{runs['failed'].sum()} of {len(runs)}"})
    rule = {name: f"{rows[f'{name}_rule'].mean():.1f}" for name in FAMILY.sets}
    mean = sum(rows[f"{name}_rule"].mean() for name in FAMILY.sets) / len(FAMILY.sets)
    line = {"model": "untrained rule", "as in training": f"{rows['test_rule'].mean():.1f}"}
    line |= {words: rule[name] for name, words in FAMILY.sets.items()} | {"mean of the three": f"{mean:.1f}"}
    return markdown(pd.DataFrame([*lines, line]).fillna(""))


def table_of_blind() -> str:
    """Accuracy of models that do not see the context."""
    rows = read_results(RESULTS / "matrices-blind" / "results.csv")
    lines = [
        {
            "model": NAMES[arm],
            "seeds": len(runs),
            "as in training, context hidden": interval(runs["test"].tolist(), sign=False),
        }
        for arm, runs in rows.groupby("model", sort=False)
    ]
    return markdown(pd.DataFrame(lines))


def table_of_rules() -> str:
    """Accuracy of the untrained rule by set, and the accuracy up to which a run has failed."""
    rows = read_results(RULE)
    line = {"seeds": len(rows), "as in training": interval(rows["test"].tolist(), sign=False)}
    line |= {words: interval(rows[name].tolist(), sign=False) for name, words in FAMILY.sets.items()}
    line["failed"] = f"below {rows['test'].mean() + 2:.1f} as in training"
    return markdown(pd.DataFrame([line]))


TABLES: dict[str, Callable[[], str]] = {"rules": table_of_rules, "blind": table_of_blind}
if FAMILY.done():
    TABLES["accuracy"] = table_of_accuracy
