"""Effects of softmax, of a read-out that keeps order and of removing objects on CoRelNet: a 2 x 2 x 2 design."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean

from dat.experiments.relational_games.baseline_config import CoRelNetConfig
from dat.experiments.relational_games.config import GamesModelConfig
from dat.experiments.relational_games.presets import corelnet
from dat.sweeps.table import ResultTable
from dat.training.metrics import Row
from dual_attention._base.files import write_atomically
from dual_attention._base.intervals import half_width, paired_p
from dual_attention._base.plots import house_style, matplotlib_figure, save_figure
from studies._lib.inference import holm

FACTORS = ("softmax", "order kept", "objects removed")
FEATURES = 9
"""Features of an object beside its nine relations."""


def corelnets() -> list[GamesModelConfig]:
    """CoRelNet with and without each factor; the first and the fifth are the lab's."""
    found = []
    for suffix, activation in (("", "identity"), ("-softmax", "softmax")):
        plain = CoRelNetConfig(activation=activation)
        pooled = replace(plain, readout="pooled")
        found += [
            corelnet(suffix, plain),
            corelnet(f"{suffix}-objects", replace(plain, object_features=FEATURES)),
            corelnet(f"{suffix}-pooled", pooled),
            corelnet(f"{suffix}-pooled-objects", replace(pooled, object_features=FEATURES)),
        ]
    return found


CORELNETS = {model.name: model for model in corelnets()}

READOUTS = {1: ("in their order", "#1f6fb4"), -1: ("pooled", "#d1495b")}
"""Label and colour of a read-out that keeps the order of relations, and of one that does not."""


def levels(model: str) -> tuple[int, int, int]:
    """1 for each factor that a CoRelNet has, -1 for the others."""
    form = CORELNETS[model].corelnet
    assert form is not None  # as the eight have one
    present = form.activation == "softmax", form.readout == "flat", form.object_features == 0
    softmax, order, removed = (1 if here else -1 for here in present)
    return softmax, order, removed


def means_by_seed(rows: Sequence[Row], measure: str) -> dict[str, list[float]]:
    """Means of a measure over all cells by model, for every seed with which all eight were run in all cells."""
    rows = [row for row in rows if row["model"] in CORELNETS and row.get(measure) is not None]
    values = {((row["task"], row["n_train"]), row["seed"], row["model"]): float(row[measure]) for row in rows}
    cells = sorted({cell for cell, _, _ in values})
    seeds = [
        seed
        for seed in sorted({seed for _, seed, _ in values})
        if all((cell, seed, model) in values for cell in cells for model in CORELNETS)
    ]
    return {model: [fmean(values[cell, seed, model] for cell in cells) for seed in seeds] for model in CORELNETS}


def effects_by_seed(rows: Sequence[Row], measure: str) -> dict[tuple[str, ...], list[float]]:
    """Effects of each factor and each pair of them, by seed.

    That of a factor is the mean of the models that have it less that of the others, over all cells; that of a pair,
    half the difference between the effect of one where the other is and where it is not.
    """
    means = means_by_seed(rows, measure)
    found: dict[tuple[str, ...], list[float]] = {}
    for of in [(0,), (1,), (2,), *combinations(range(3), 2)]:
        signed = [
            [math.prod(levels(model)[factor] for factor in of) * x for x in values] for model, values in means.items()
        ]
        found[tuple(FACTORS[factor] for factor in of)] = [2 * fmean(of_seed) for of_seed in zip(*signed, strict=True)]
    return found


def factors_text(table: ResultTable, rows: Sequence[Row]) -> str:
    """Effects on every measure as a Markdown text; empty unless two seeds have all eight models."""
    parts = []
    for measure, title in table.measures.items():
        effects = effects_by_seed(rows, measure)
        trials = len(next(iter(effects.values())))
        if trials < 2:
            continue
        p = [paired_p(values) for values in effects.values()]
        parts += [
            f"## {title[:1].upper()}{title[1:]}",
            "",
            f"Effects in points, means over all cells and {trials} seeds ± half of the 95 % t-interval.",
            "",
            "| factor | effect | p | p (Holm) |",
            "|---|---|---|---|",
        ]
        for (names, values), single, adjusted in zip(effects.items(), p, holm(p), strict=True):
            effect = f"{fmean(values):+.1f} ± {half_width(values):.1f}"
            parts.append(f"| {' × '.join(names)} | {effect} | {single:.2g} | {adjusted:.2g} |")
        parts.append("")
    return "\n".join(["# CoRelNet: softmax, order, objects", "", *parts]).rstrip() + "\n" if parts else ""


def write_factors(table: ResultTable, rows: Sequence[Row], path: Path) -> None:
    """Write :func:`factors_text`, if there is anything to write."""
    if text := factors_text(table, rows):
        write_atomically(path, text)


def draw_factors(table: ResultTable, rows: Sequence[Row], path: Path) -> None:
    """Draw the eight models' first measure, means over all cells, with and without softmax; if two seeds have all."""
    measure, title = next(iter(table.measures.items()))
    means = means_by_seed(rows, measure)
    trials = len(next(iter(means.values())))
    if trials < 2:
        return
    with house_style():
        figure, panels = matplotlib_figure(1, 2, figsize=(6.5, 3.2), sharey=True)
        for panel, removed in zip(panels, (1, -1), strict=True):
            for order, (label, colour) in READOUTS.items():
                of_softmax = {levels(m)[0]: m for m in CORELNETS if levels(m)[1:] == (order, removed)}
                shown = [means[of_softmax[softmax]] for softmax in (-1, 1)]
                places = [softmax + 0.02 * order for softmax in (0, 1)]  # beside, not behind each other
                middles, widths = [fmean(x) for x in shown], [half_width(x) for x in shown]
                panel.errorbar(places, middles, widths, label=label, color=colour, marker="o", markersize=4, capsize=2)
            panel.set_title("relations only" if removed == 1 else "relations and objects", fontsize=10)
            panel.set_xticks((0, 1), ("inner products", "under softmax"))
            panel.set_xlim(-0.3, 1.3)
        panels[0].set_ylabel(f"accuracy (%)\n{title}")
        panels[0].legend(loc="upper left")
        figure.suptitle(f"CoRelNet: means over all cells, {trials} trials, 95 % t-intervals", fontsize=9, y=1.03)
        save_figure(figure, path)
