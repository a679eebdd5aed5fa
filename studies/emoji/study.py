"""Emoji: a Vision Transformer beside a ViDAT of equal parameters, on pictures by another hand and of other things."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from dat.experiments.images.config import ImageModelConfig, ImageOptimConfig, ImageSources
from dat.training.configs import LoopConfig
from dat.training.metrics import Row
from dual_attention._base.colours import BLUE, GREY, MUTED, PALE, RED
from dual_attention._base.plots import house_style, legend_below, matplotlib_figure, save_figure
from studies._lib.inference import equivalence_p, half_width, holm, sign_flip_p
from studies._lib.readings import interval, p_text
from studies._lib.tables import Frame, by_seed, markdown, read_results
from studies.emoji.experiment import MEASURES, EmojiGrid

EXPERIMENT = "studies/emoji/experiment.py:Emoji"
RESULTS = Path(__file__).parent / "results"

# What can be run -----------------------------------------------------------------------------------------------------

VIDAT = ImageModelConfig(
    name="ViDAT-emoji", d_model=64, n_layers=3, n_heads_sa=2, n_heads_ra=2, dff=128, patch_size=(4, 4)
)
VIT = replace(VIDAT, name="ViT-emoji", n_heads_sa=4, n_heads_ra=0, dff=150)  # 116,651 parameters beside 116,521
PRESETS = {model.name: model for model in (VIT, VIDAT)}


RATES = {"ViT-emoji": 1.5e-3, "ViDAT-emoji": 3e-3}
"""Learning rates that validation chose, and that the other arm has in the grid ``rates``."""


def grid(label: str, n_train: int, n_val: int, n_test: int) -> EmojiGrid:
    """Both arms on a labelling."""
    return EmojiGrid.with_presets(PRESETS)(
        out=f"runs/emoji-{label}",
        seeds=10,
        lr_of=RATES,
        datasets=("folder",),
        sizes=(n_train,),
        models=tuple(PRESETS),
        data=ImageSources(folder=f"runs/emoji/{label}", n_val=n_val, n_test=n_test),
        optim=ImageOptimConfig(warmup_steps=100),
        loop=LoopConfig(epochs=14, batch_size=32, eval_every=0, checkpoint_every=0),
    )


CATEGORY = grid("category", 1308, 200, 363)
GRIDS = {
    "category": CATEGORY,
    "rates": replace(CATEGORY, out="runs/emoji-rates", lr_of=dict(zip(RATES, reversed(RATES.values()), strict=True))),
    "subcategory": grid("subcategory", 892, 150, 260),
}

# What it shows: the rules are those of ANNOUNCED.md ------------------------------------------------------------------

PAIR = ("ViDAT-emoji", "ViT-emoji")
SEEDS = 10
"""Seeds with which readings are decided."""
BOUND = 1.0
"""Points below which a difference is small."""
PRIMARY = ("hand", "test")
TITLES = {"val": "validation: other emoji, same vendor", **MEASURES}


def results(label: str) -> Frame | None:
    """Lines of a labelling's runs, if there are any."""
    file = RESULTS / label / "results.csv"
    return read_results(file) if file.is_file() else None


def arms(rows: Frame, measure: str) -> Frame:
    """A measure by seed and arm, for the seeds that have both."""
    return by_seed(rows, "model", measure).reindex(columns=list(PAIR)).dropna()


def less(table: Frame) -> list[float]:
    """ViDAT less ViT, by seed."""
    return (table[PAIR[0]] - table[PAIR[1]]).tolist()


def reading(values: Sequence[float], p: float) -> str:
    """What is said of differences, given their p after Holm."""
    within = equivalence_p(values, BOUND) < 0.05
    if len(values) != SEEDS:
        return "undecided, so far"
    if p < 0.05 and abs(fmean(values)) >= BOUND:
        return "ViDAT better" if fmean(values) > 0 else "ViT better"
    return "within a point" if within else "undecided"


def table_of(label: str) -> str:
    """Accuracies of both arms on each set, their difference, its tests and what they decide."""
    rows, lines = results(label), []
    if rows is None:
        return ""
    differences = {measure: less(arms(rows, measure)) for measure in TITLES}
    p = {measure: sign_flip_p(values) for measure, values in differences.items()}
    p |= dict(zip(PRIMARY, holm([p[measure] for measure in PRIMARY]), strict=True))
    for measure, values in differences.items():
        table = arms(rows, measure)
        line: dict[str, Any] = {"pictures": TITLES[measure], "seeds": len(values)}
        if label == "category":  # which nearest.py writes
            line |= {"nearest picture": f"{read_results(RESULTS / label / 'nearest.csv')[measure].mean():.1f}"}
        line |= {name.removesuffix("-emoji"): interval(table[name].tolist(), sign=False) for name in reversed(PAIR)}
        line |= {"ViDAT less ViT": interval(values), "p": p_text(p[measure])}
        line |= {"p within ±1": p_text(equivalence_p(values, BOUND))}
        decides = label == "category" and measure in PRIMARY
        lines.append(line | {"reading": reading(values, p[measure]) if decides else ""})
    return markdown(pd.DataFrame(lines))


COLOURS = {"ViT-emoji": GREY, "ViDAT-emoji": BLUE}


def draw_differences(rows: Sequence[Row], path: Path) -> None:
    """Draw accuracies of the arms by set, and their differences by seed beside the bound of equivalence."""
    frame = pd.DataFrame(rows)
    with house_style():
        figure, (left, right) = matplotlib_figure(1, 2, figsize=(9.2, 3.6))
        nearest = read_results(RESULTS / "category" / "nearest.csv")
        for place, measure in enumerate(MEASURES):
            table = arms(frame, measure)
            label = "nearest picture" if place == 0 else None
            left.hlines(nearest[measure].mean(), place - 0.25, place + 0.25, RED, "dashed", label=label)
            for side, (name, colour) in zip((-0.12, 0.12), COLOURS.items(), strict=True):
                values = table[name].tolist()
                left.plot([place + side] * len(values), values, "o", color=colour, markersize=3, alpha=0.4)
                label = name.removesuffix("-emoji") if place == 0 else None
                look = {"fmt": "o", "color": colour, "markersize": 6, "capsize": 4}
                left.errorbar(place + side, fmean(values), half_width(values), label=label, **look)
            values = less(table)
            right.plot(values, [place] * len(values), "o", color=BLUE, markersize=3, alpha=0.4)
            right.errorbar(fmean(values), place, xerr=half_width(values), fmt="o", color=BLUE, capsize=4)
        left.set_xticks(range(len(MEASURES)), [textwrap.fill(text, 12) for text in MEASURES.values()], fontsize=9)
        left.set_ylabel("accuracy (%)")
        right.axvspan(-BOUND, BOUND, color=PALE, zorder=0)
        right.axvline(0, color=MUTED, linewidth=0.8)
        right.set_yticks(range(len(MEASURES)), [text.replace(", ", ",\n") for text in MEASURES.values()], fontsize=9)
        right.set_ylim(2.5, -0.5)
        right.set_xlabel("ViDAT less ViT, points; grey: within one point", fontsize=10)
        figure.tight_layout()
        legend_below(figure, left.get_legend_handles_labels()[0])
        save_figure(figure, path)


FIGURES: Mapping[str, Callable[[Sequence[Row], Path], None]] = {"differences.png": draw_differences}
TABLES: dict[str, Callable[[], str]] = {
    label: (lambda label=label: table_of(label)) for label in GRIDS if results(label) is not None
}
