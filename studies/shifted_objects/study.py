"""Objects whose codes were never seen: the grid, and the tables of the README by the rules of ANNOUNCED.md."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dat.sweeps.grid import GridConfig
from dat.training.metrics import Row
from dual_attention._base.plots import house_style, legend_below, matplotlib_figure, save_figure
from studies._lib.inference import equivalence_p, half_width, holm, sign_flip_p
from studies._lib.tables import Frame, by_seed, markdown, mean_text, read_results
from studies.shifted_objects.experiment import UNSEEN, ShiftedGrid

EXPERIMENT = "studies/shifted_objects/experiment.py:ShiftedObjects"
RESULTS = Path(__file__).parent / "results"
STUDY = ShiftedGrid()
FEW, MANY = STUDY.sizes
SEEDS, BOUND = 10, 2.0
"""Seeds with which readings are decided, and points below which a difference is small."""

GRIDS: dict[str, GridConfig] = {"codes": STUDY}
PRESETS: dict[str, Any] = {}

LABELS = {
    "transformer": "Transformer",
    "dat": "DAT, 2 + 2 heads",
    "ra": "relational attention alone",
    "distance": "the same with squared distances",
    "rca": "RCA alone",
    "disrca": "disentangled RCA alone",
    "abstractor": "Abstractor",
    "corelnet": "CoRelNet",
}
COLOURS = dict(
    zip(
        LABELS,
        ("#8c8c8c", "#1f6fb4", "#63b0e8", "#08306b", "#2e8b57", "#9acd32", "#d1495b", "#edae49"),
        strict=True,
    )
)
PRIMARY = (("dat", "transformer"), ("distance", "ra"), ("ra", "rca"), ("ra", "disrca"))
SETS = {"test": "known", **{name: name for name in UNSEEN}}
"""Codes of the evaluation sets, and their names on the page."""


def accuracies(rows: Frame, n_train: int, *sets: str) -> Frame:
    """Mean accuracy over tasks and sets by seed and arm, in percent, of seeds that have all tasks of an arm."""
    own = rows[rows["n_train"] == n_train]
    tables = [by_seed(own, "arm", name, points=["task"]) for name in sets]
    mean: Frame = 100 * sum(tables[1:], tables[0]) / len(tables)
    return mean


def table_of_tasks() -> str:
    """Accuracy by network, task and set with many sequences; and over both tasks' unseen sets, with all numbers."""
    rows = read_results(RESULTS / "codes/results.csv")
    lines = []
    for arm, label in LABELS.items():
        line = {"": label}
        for task in ("same", "last"):
            own = rows[rows["task"] == task]
            line |= {f"`{task}`, {SETS[name]}": f"{accuracies(own, MANY, name)[arm].mean():.1f}" for name in SETS}
        for n in sorted(set(rows["n_train"])):
            line[f"unseen, {n:,}"] = mean_text(accuracies(rows, n, *UNSEEN)[arm].dropna().tolist())
        lines.append(line)
    return markdown(pd.DataFrame(lines))


def table_of_readings() -> str:
    """The announced comparisons, and what they decide."""
    rows = read_results(RESULTS / "codes/results.csv")
    many = accuracies(rows, MANY, *UNSEEN)
    less = {f"`{arm}` less `{other}`": many[arm] - many[other] for arm, other in PRIMARY}
    more = {}
    if FEW in set(rows["n_train"]):
        few = accuracies(rows, FEW, *UNSEEN)
        more = {
            f"`ra` less `{other}`, {MANY:,} less {FEW:,}": (many["ra"] - many[other]) - (few["ra"] - few[other])
            for other in ("rca", "disrca")
        }
    lines = []
    for family in (less, more):
        values = {name: found.dropna().tolist() for name, found in family.items()}
        adjusted = holm([sign_flip_p(found) for found in values.values()])
        for (name, found), p in zip(values.items(), adjusted, strict=True):
            mean, within = sum(found) / len(found), equivalence_p(found, BOUND)
            reading = "undecided" if len(found) == SEEDS else "undecided, so far"
            if len(found) == SEEDS and p < 0.05 and abs(mean) >= BOUND:
                reading = "ahead" if mean > 0 else "behind"
            elif len(found) == SEEDS and within < 0.05:
                reading = "within ±2"
            points = f"{mean_text(found, sign=True)}".replace("-", "−")
            line = {"accuracy on unseen codes": name, "points": points, "p (Holm)": f"{p:.3f}"}
            lines.append(line | {"p within ±2": f"{within:.3f}", "reading": reading})
    return markdown(pd.DataFrame(lines))


def draw_sets(rows: Sequence[Row], path: Path) -> None:
    """Draw the accuracy of every network by set, with many sequences."""
    frame = pd.DataFrame(rows)
    if MANY not in set(frame["n_train"]):
        return
    with house_style():
        figure, axes = matplotlib_figure(1, 2, figsize=(9.2, 3.6), sharey=True)
        for axis, task in zip(axes, ("same", "last"), strict=True):
            own = frame[frame["task"] == task]
            for number, (arm, label) in enumerate(LABELS.items()):
                found = [accuracies(own, MANY, name).get(arm, pd.Series(dtype=float)).dropna() for name in SETS]
                if min(map(len, found)) < 2:
                    continue
                places = [place + 0.1 * (number - 3.5) for place in range(len(SETS))]
                means, halves = [values.mean() for values in found], [half_width(values.tolist()) for values in found]
                look = {"color": COLOURS[arm], "marker": "o", "markersize": 4, "capsize": 2, "linestyle": "none"}
                axis.errorbar(places, means, halves, label=label, **look)
            axis.axhline(50, color="#606060", linewidth=1, linestyle=":")
            axis.set_xticks(range(len(SETS)), list(SETS.values()), fontsize=9)
            axis.set_title(task)
        axes[0].set_ylabel("accuracy (%)")
        legend_below(figure, axes[0].get_legend_handles_labels()[0])
        save_figure(figure, path)


FIGURES: dict[str, Callable[[Sequence[Row], Path], None]] = {"codes.png": draw_sets}
TABLES: dict[str, Callable[[], str]] = {
    "tasks": table_of_tasks,
    "readings": table_of_readings,
}
