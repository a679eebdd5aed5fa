"""Games between matched emoji: the announced grids, and the tables of the README."""

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Any

import pandas as pd

from dat.experiments.relational_games.presets import PRESETS as GAMES
from dat.sweeps.grid import GridConfig
from dat.training.configs import LoopConfig
from studies._lib.rates import at_rate, at_rates, every_rate, own_rates, table_of_rates
from studies._lib.readings import compared, interval, p_text
from studies._lib.tables import Frame, by_seed, failed, markdown, read_results
from studies.emoji_games.experiment import TEST_SETS, EmojiSets
from studies.emoji_matched.experiment import EmojiMatchedGrid
from studies.emoji_matched.rule import FILE, N_TEST, N_TRAIN, RULES, SEEDS
from studies.relational_games.toolbox import toolbox

EXPERIMENT = "studies/emoji_matched/experiment.py:EmojiMatched"
GATE = "gated-objects"
TRANSFORMER, DAT, DISTANCE, CORELNET = (
    "transformer-128-h2-matched",
    "dat-0+2-sym",
    "dat-0+2-sym-squared-distance",
    "corelnet",
)
NAMES = {
    TRANSFORMER: "Transformer",
    GATE: "Transformer, linear gate",
    DAT: "DAT",
    DISTANCE: "DAT, squared distances",
    CORELNET: "CoRelNet",
}
MODELS = (*NAMES,)
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


BOUND = 2.0
"""Points below which a difference is small."""
RULE = "outlines"
"""The best untrained rule."""


def runs(grid: str, file: str = "results.csv") -> Frame:
    """The runs of a grid."""
    return read_results(FILE.parent / grid / file)


def means(rows: Frame, measure: str) -> Frame:
    """A measure by seed and arm, the mean over both tasks."""
    return by_seed(rows, "model", measure, points=["task"])


def own_arms() -> dict[str, str]:
    """The arm of each model at the rate that validation chose."""
    rates = own_rates(every_rate(means(runs("rates"), "val"), MODELS), MODELS)
    return {model: at_rate(model, rate) for model, rate in rates.items()}


def table_of_own_rates() -> str:
    """Validation accuracy by model and learning rate, by which own rates are chosen."""
    table = every_rate(means(runs("rates"), "val"), MODELS)
    return table_of_rates(table, own_rates(table, MODELS), NAMES)


def table_of_accuracy() -> str:
    """Accuracy at own rates after all steps, by task and set, and the runs that failed on emoji never trained on."""
    rows, lines = runs("longer"), []
    for model, arm in own_arms().items():
        own = rows[rows["model"] == arm]
        line = {"model": NAMES[model], "parameters": f"{own['parameters'].iloc[0]:,}", "seeds": own["seed"].nunique()}
        for task in RATES.tasks:
            of = own[own["task"] == task]
            line |= {f"`{task}`, {words}": interval(of[name].tolist(), sign=False) for name, words in TEST_SETS.items()}
            line[f"`{task}`, failed"] = failed(of["unseen"].tolist())
        lines.append(line)
    return markdown(pd.DataFrame(lines))


def margins() -> dict[str, list[float]]:
    """Each model less the best untrained rule, by seed, on the same emoji never trained on."""
    late, rules = means(runs("longer"), "unseen"), read_results(FILE)
    rule = means(rules[rules["rule"] == RULE].assign(model=RULE), "unseen")[RULE]
    return {model: (late[arm] - rule).dropna().tolist() for model, arm in own_arms().items()}


def table_of_learning() -> str:
    """Each model beside the best untrained rule, and its change in the second half of training."""
    arms, found, lines = own_arms(), compared(margins(), BOUND), []
    late, early = means(runs("longer"), "unseen"), means(runs("longer", "epochs.csv"), "unseen")
    for model, one in found.items():
        changes = (late[arms[model]] - early[arms[model]]).dropna().tolist()
        line = {"model": NAMES[model], "less the rule": interval(one.values), "p (Holm)": p_text(one.p)}
        line["learned more"] = "yes" if one.reading(SEEDS) == "ahead" else "no"
        line |= {"800 to 1,600 steps": interval(changes)}
        lines.append(line | {"at a standstill": "yes" if abs(fmean(changes)) < BOUND else "no"})
    return markdown(pd.DataFrame(lines))


TABLES: dict[str, Callable[[], str]] = {
    "rules": table_of_rules,
    "own rates": table_of_own_rates,
    "accuracy": table_of_accuracy,
    "learning": table_of_learning,
}
