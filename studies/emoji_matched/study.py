"""Games between matched emoji: the announced grids, and the table of untrained rules."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd

from dat.experiments.relational_games.presets import PRESETS as GAMES
from dat.sweeps.grid import GridConfig
from dat.training.configs import LoopConfig
from studies._lib.rates import at_rates
from studies._lib.readings import interval
from studies._lib.tables import failed, markdown, read_results
from studies.emoji_games.experiment import TEST_SETS, EmojiSets
from studies.emoji_matched.experiment import EmojiMatchedGrid
from studies.emoji_matched.rule import FILE, N_TEST, N_TRAIN, RULES, SEEDS
from studies.relational_games.toolbox import toolbox

EXPERIMENT = "studies/emoji_matched/experiment.py:EmojiMatched"
GATE = "gated-objects"
MODELS = ("transformer-128-h2-matched", GATE, "dat-0+2-sym", "dat-0+2-sym-squared-distance", "corelnet")
"""Transformer, the same under a linear gate, DAT with inner products and with squared distances, CoRelNet."""
ROWS = {
    "untrained rule": "five distances with one threshold each, rule.py",
    "linear gate": GATE,
    "rotary positions": "no order",
    "steps": "800 and 1,600: 50 and 100 epochs of 1,000 images in batches of 64",
    "rates": "own rates",
    "failed": "below 60 % on emoji never trained on",
}

AT_RATES = at_rates(MODELS)
PRESETS: dict[str, Any] = {GATE: toolbox(GATE, carries="objects", gate="identity")}
PRESETS |= {name: replace((GAMES | PRESETS)[model], name=name) for name, (model, _) in AT_RATES.items()}
RATES = EmojiMatchedGrid.with_presets(PRESETS)(
    seeds=4,
    sizes=(N_TRAIN,),
    models=(*MODELS, *AT_RATES),
    lr_of={name: rate for name, (_, rate) in AT_RATES.items()},
    data=EmojiSets(n_test=N_TEST, n_unseen=N_TEST),
    loop=LoopConfig(epochs=50, batch_size=64, eval_every=0, checkpoint_every=0),
)
GRIDS: dict[str, GridConfig] = {
    "rates": RATES,
    # Twice as long: run with --models and the five that validation chose.
    "longer": replace(
        RATES, seeds=SEEDS, out="runs/emoji-matched-longer", loop=replace(RATES.loop, epochs=100, measure_at=(50,))
    ),
}


def table_of_rules() -> str:
    """Accuracy of untrained rules by task and set."""
    rows, lines = read_results(FILE), []
    for kind in RULES:
        line: dict[str, Any] = {"untrained rule": kind, "seeds": rows["seed"].nunique()}
        for task in RATES.tasks:
            own = rows[(rows["task"] == task) & (rows["rule"] == kind)]
            line |= {
                f"`{task}`, {words}": interval(own[name].tolist(), sign=False) for name, words in TEST_SETS.items()
            }
            line[f"`{task}`, failed"] = failed(own["unseen"].tolist())
        lines.append(line)
    return markdown(pd.DataFrame(lines))


TABLES: dict[str, Callable[[], str]] = {"rules": table_of_rules}
