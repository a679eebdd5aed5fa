"""Relational Games between emoji of two vendors: the grid, and the tables of the README."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from dat.experiments.relational_games.presets import PRESETS as GAMES
from dat.sweeps.grid import GridConfig
from dat.training.metrics import Row
from dual_attention._base.colours import RED
from dual_attention._base.plots import house_style, legend_below, matplotlib_figure, save_figure
from studies._lib.inference import half_width
from studies._lib.rates import at_rates
from studies._lib.readings import compared, interval, p_text
from studies._lib.tables import Frame, by_seed, failed, markdown, read_results
from studies.emoji_games.experiment import TEST_SETS, EmojiGamesGrid, EmojiSets
from studies.relational_games.toolbox import toolbox

EXPERIMENT = "studies/emoji_games/experiment.py:EmojiGames"
RESULTS = Path(__file__).parent / "results" / "emoji" / "results.csv"

COSINE = "cosine-0.5"
"""Cosines that start at the size that suits them in Relational Games."""
SETTINGS: dict[str, Any] = {
    "seeds": 10,
    "tasks": ("same", "occurs"),
    "data": EmojiSets(n_test=4000, n_unseen=4000),
}
STUDY = EmojiGamesGrid(**SETTINGS)
AT_RATES = at_rates((*STUDY.models, COSINE))
PRESETS = {COSINE: replace(toolbox(COSINE, relation="cosine"), rel_init_size=0.5)}
PRESETS |= {name: replace((GAMES | PRESETS)[model], name=name) for name, (model, _) in AT_RATES.items()}
GRIDS: dict[str, GridConfig] = {
    "emoji": STUDY,
    # The models at the rates that `emoji` lacks, on its images; cosines at all three.
    "rates": EmojiGamesGrid.with_presets(PRESETS)(
        **SETTINGS,
        out="runs/emoji-games-rates",
        models=(*AT_RATES, COSINE),
        lr_of={name: rate for name, (_, rate) in AT_RATES.items()},
    ),
}

# What it shows: the rules are those of ANNOUNCED.md ------------------------------------------------------------------

TRANSFORMER, DAT, DISTANCE, CORELNET = STUDY.models
NAMES = {TRANSFORMER: "Transformer", DAT: "DAT", DISTANCE: "DAT, squared distances", CORELNET: "CoRelNet"}
PRIMARY = {"1": (DAT, TRANSFORMER), "2": (DISTANCE, DAT), "3": (CORELNET, DAT)}
SEEDS, BOUND = 10, 2.0
"""Seeds with which a reading is decided, and points below which a difference is small."""


def accuracies(measure: str, rows: Frame, *tasks: str) -> Frame:
    """A measure by seed and model, mean over tasks, for the seeds that all models have."""
    return by_seed(rows[rows["task"].isin(tasks)], "model", measure, points=["task"]).reindex(columns=NAMES).dropna()


def table_of_accuracy() -> str:
    """Accuracy by model, task and set, and the runs that failed on emoji never trained on; untrained rules first."""
    rules = read_results(RESULTS.parent / "rule.csv").assign(parameters=1, steps=0)
    rules["model"] = "untrained rule: " + rules["rule"]
    rows: Frame = pd.concat([rules, read_results(RESULTS).replace({"model": NAMES})])
    lines = []
    for name in (*dict.fromkeys(rules["model"]), *NAMES.values()):
        own: Frame = rows[rows["model"] == name]
        line = {"model": name, **{key: f"{own[key].iloc[0]:,}" for key in ("parameters", "steps")}}
        line["seeds"] = own["seed"].nunique()
        for task in STUDY.tasks:
            of = own[own["task"] == task]
            for measure, words in TEST_SETS.items():
                line[f"`{task}`, {words}"] = interval(of[measure].tolist(), sign=False)
            line[f"`{task}`, failed"] = failed(of["unseen"].tolist())
        lines.append(line)
    return markdown(pd.DataFrame(lines))


def table_of_readings() -> str:
    """The announced differences on emoji never trained on, and beside them those by task and on emoji trained on."""
    rows = read_results(RESULTS)

    def less(measure: str, arm: str, other: str, *tasks: str) -> list[float]:
        table = accuracies(measure, rows, *tasks)
        return (table[arm] - table[other]).tolist()

    found = compared({key: less("unseen", *pair, *STUDY.tasks) for key, pair in PRIMARY.items()}, BOUND)
    lines = []
    for key, one in found.items():
        arm, other = PRIMARY[key]
        line = {"question": f"{key}: {NAMES[arm]} less {NAMES[other]}", "never trained on": interval(one.values)}
        line |= {"p (Holm)": p_text(one.p), "p within ±2": p_text(one.within)}
        line |= {"reading": one.reading(SEEDS)}
        line |= {f"`{task}`": interval(less("unseen", arm, other, task)) for task in STUDY.tasks}
        lines.append(line | {"trained on": interval(less("test", arm, other, *STUDY.tasks))})
    return markdown(pd.DataFrame(lines))


COLOURS = dict(zip(NAMES, ("#8c8c8c", "#1f6fb4", "#08306b", "#7b3fa0"), strict=True))


def draw_accuracy(rows: Sequence[Row], path: Path) -> None:
    """Draw accuracies by task and set: means over seeds with their intervals, and every seed."""
    frame, rule = pd.DataFrame(rows), read_results(RESULTS.parent / "rule.csv").query("rule == 'pixels'")
    with house_style():
        figure, axes = matplotlib_figure(1, len(STUDY.tasks), figsize=(9.2, 3.6), sharey=True)
        for axis, task in zip(axes, STUDY.tasks, strict=True):
            for number, (model, name) in enumerate(NAMES.items()):
                found = [accuracies(measure, frame, task)[model].tolist() for measure in TEST_SETS]
                if min(map(len, found)) < 2:
                    return
                places = [place + 0.15 * (number - 1.5) for place in range(len(found))]
                for place, values in zip(places, found, strict=True):
                    axis.plot([place] * len(values), values, "o", color=COLOURS[model], markersize=3, alpha=0.4)
                means, halves = (
                    [sum(values) / len(values) for values in found],
                    [half_width(values) for values in found],
                )
                look = {"fmt": "o", "color": COLOURS[model], "markersize": 6, "capsize": 3}
                axis.errorbar(places, means, halves, label=name, **look)
            axis.axhline(50, color="#606060", linewidth=1, linestyle=":")
            for place, measure in enumerate(TEST_SETS):
                level = rule.loc[rule["task"] == task, measure].mean()
                axis.hlines(
                    level, place - 0.3, place + 0.3, RED, "dashed", label=None if place else "untrained rule: pixels"
                )
            axis.set_xticks(range(len(TEST_SETS)), list(TEST_SETS.values()))
            axis.set_title(task)
        axes[0].set_ylabel("accuracy (%)")
        legend_below(figure, axes[0].get_legend_handles_labels()[0])
        save_figure(figure, path)


FIGURES: dict[str, Callable[[Sequence[Row], Path], None]] = {"accuracy.png": draw_accuracy}
TABLES: dict[str, Callable[[], str]] = {"accuracy": table_of_accuracy, "readings": table_of_readings}
