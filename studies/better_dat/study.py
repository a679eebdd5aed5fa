"""A better DAT? Three changes on games between objects; matrices, kinship and emoji are beside this file.

The grids of the other families are in matrices.py, kinship.py and emoji.py, and are run by the same command.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from dat.experiments.relational_games.grid import GamesGrid, GridData
from dat.training.configs import LoopConfig
from studies._lib.rates import at_rates
from studies._lib.readings import interval
from studies._lib.tables import failed, markdown, read_results
from studies.better_dat import reading
from studies.better_dat.models import OF_GAMES

EXPERIMENT = "relational-games"
SEEDS = 10
FIRST_SEED = 300
STEPS = "800: 50 epochs of 1,000 images in batches of 64"


def rated(arms: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Every arm at three learning rates, by name, and the rates that are not usual."""
    further = at_rates((*arms,))
    names = {**{arm: arm for arm in arms}, **{name: arm for name, (arm, _) in further.items()}}
    return (
        {name: replace(arms[arm], name=name) for name, arm in names.items()},
        {name: rate for name, (_, rate) in further.items()},
    )


def in_two(grid: Any, rates: int) -> dict[str, Any]:
    """A grid whose seeds choose rates, and one of ten new seeds, which is run with --models and the rates chosen."""
    chosen = replace(grid, seeds=SEEDS, first_seed=FIRST_SEED, out=f"{grid.out}-chosen")
    return {"rates": replace(grid, seeds=rates, first_seed=FIRST_SEED - rates), "chosen": chosen}


PRESETS, LR_OF = rated(OF_GAMES)
GRIDS: dict[str, Any] = in_two(
    GamesGrid.with_presets(PRESETS)(
        out="runs/better-dat-games",
        tasks=("same", "occurs", "xoccurs", "between"),
        sizes=(1000,),
        models=(*PRESETS,),
        lr_of=LR_OF,
        data=GridData(n_val=2000, n_test=5000, n_heldout=5000),
        loop=LoopConfig(epochs=50, batch_size=64, eval_every=0, checkpoint_every=0),
    ),
    rates=2,
)
GRIDS["confirm"] = replace(
    GRIDS["chosen"],
    first_seed=FIRST_SEED + SEEDS,
    models=(*reading.CONFIRMED.values(),),
    lr_of={name: LR_OF[name] for name in reading.CONFIRMED.values() if name in LR_OF},
    out="runs/better-dat-games-confirm",
)
ROWS = {
    "untrained rule": "one threshold on the distance of pixels, rule.py",
    "linear gate": "gate",
    "rotary positions": "no order",
    "steps": STEPS,
    "rates": "own rates",
    "failed": "below 60 % on new pentominoes",
}
RULE = Path(__file__).parent / "results" / "rule.csv"
SETS = {"test": "new pentominoes", "hexominoes": "hexominoes", "stripes": "stripes"}


def table_of_rules() -> str:
    """Accuracy of the untrained rule by task and set."""
    rows, lines = read_results(RULE), []
    for task, own in rows.groupby("task", sort=False):
        line: dict[str, Any] = {"task": f"`{task}`"}
        line |= {words: interval(own[name].tolist(), sign=False) for name, words in SETS.items()}
        lines.append({**line, "seeds": len(own), "failed": failed(own["test"].tolist())})
    return markdown(pd.DataFrame(lines))


TABLES: dict[str, Callable[[], str]] = {"rules": table_of_rules, **(reading.TABLES if reading.FAMILIES else {})}
