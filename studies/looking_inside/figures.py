"""Draw the figures of both parts from their tables: ``python -m studies.looking_inside.figures``."""

from pathlib import Path
from typing import Any

import pandas as pd

from dual_attention._base.colours import BLUE, GREY, INK, MUTED, ORANGE, PALE
from dual_attention._base.plots import house_style, legend_below, matplotlib_figure, save_figure

RESULTS = Path(__file__).parent / "results"
SETS = {
    "test": "new pentominoes",
    "hexominoes": "hexominoes",
    "stripes": "stripes",
}
LABELS = {"semantic": BLUE, "syntactic": ORANGE}
MEDIATORS = ("relation", "selection", "symbol", "all three", "sensory selection")


def _table(name: str) -> Any:
    return pd.read_csv(RESULTS / name)


def draw_games(path: Path) -> None:
    """Accuracy without each relation over how well it tells equal objects apart, a panel for each set of images."""
    read, lost = (_table(f"games/{name}.csv") for name in ("read", "accuracy"))
    read, resampled = read[read["scores"] == "relations"], lost[lost["how"] == "resample"]
    with house_style():
        figure, axes = matplotlib_figure(1, len(SETS), figsize=(9.2, 3.3), sharey=True)
        for axis, (objects, title) in zip(axes, SETS.items(), strict=True):
            for accuracy in lost[lost["without"] == "nothing"][f"accuracy {objects}"]:
                axis.axhline(100 * accuracy, color=PALE, linewidth=1.0, zorder=0)
            for relations in read.itertuples():
                cost = resampled[resampled["seed"] == relations.seed].set_index("without")
                names = [name for name in cost.index if name.startswith("relation ")]
                for number, (auc, name) in enumerate(zip(relations.auc.split(), names, strict=True)):
                    place, half = 100 * cost.loc[name, [f"accuracy {objects}", f"half {objects}"]]
                    best = number == relations.best
                    look = {"color": BLUE, "fmt": "o"} if best else {"color": GREY, "fmt": "s"}
                    axis.errorbar(abs(float(auc) - 0.5) + 0.5, place, yerr=half, markersize=5, **look)
            axis.axhline(50, color=MUTED, linewidth=1.2, linestyle=":")
            axis.set_title(title)
            axis.set_xlabel("AUC for equal objects\n(or 1 − AUC, if larger)", fontsize=10)
        axes[0].set_ylabel("accuracy without\nthe relation (%)")
        figure.tight_layout()
        save_figure(figure, path)


def draw_language(path: Path) -> None:
    """Reading, selectivity, single relations beside directions, and mediators: a panel each."""
    read, pairs, mediation = (_table(f"language/{name}.csv") for name in ("read", "at_pairs", "mediation"))
    with house_style():
        figure, axes = matplotlib_figure(2, 2, figsize=(9.2, 7.2))
        _reading(axes[0][0], read)
        _selectivity(axes[0][1], pairs)
        _single(axes[1][0], pairs)
        _mediators(axes[1][1], mediation)
        for axis in axes.flat:
            axis.title.set_fontsize(11)
            axis.tick_params(labelsize=9)
        figure.tight_layout(h_pad=2.0)
        legend_below(figure, axes[0][0].get_legend_handles_labels()[0])
        save_figure(figure, path)


def _reading(axis: Any, read: Any) -> None:
    kinds = list(read["scores"].unique())
    for shift, (label, colour) in zip((-0.12, 0.12), LABELS.items(), strict=True):
        own = read[read["label"] == label]
        heights = [kinds.index(scores) + shift for scores in own["scores"]]
        axis.plot(own["held_out"], heights, "o", color=colour, markersize=5, label=f"{label} pairs")
    axis.axvline(0.5, color=MUTED, linewidth=1.2, linestyle=":")
    axis.set_yticks(range(len(kinds)), kinds)
    axis.invert_yaxis()
    axis.set_xlabel("AUC of the best, on other documents", fontsize=10)
    axis.set_title("Which label can be read")


def _selectivity(axis: Any, pairs: Any) -> None:
    seeds = sorted(pairs["seed"].unique())
    for group, what in enumerate(("all relations", "noise")):
        for shift, (label, colour) in zip((-0.12, 0.12), LABELS.items(), strict=True):
            found = pairs[pairs["what"] == what].sort_values("seed")
            places = [group * (len(seeds) + 1) + number + shift for number in range(len(seeds))]
            axis.errorbar(
                places, 1e3 * found[f"difference {label}"], yerr=1e3 * found[f"half {label}"], color=colour, fmt="o"
            )
    axis.axhline(0, color=MUTED, linewidth=1.2, linestyle=":")
    places = [group * (len(seeds) + 1) + number for group in range(2) for number in range(len(seeds))]
    names = [f"{seed}\n{what if seed == seeds[1] else ''}" for what in ("relations", "noise") for seed in seeds]
    axis.set_xticks(places, names)
    axis.set_xlabel("seed", fontsize=10)
    axis.set_ylabel("10⁻³ nats a pair", fontsize=10)
    axis.set_title("Effect at pairs with the label, less without")


def _single(axis: Any, pairs: Any) -> None:
    seeds = sorted(pairs["seed"].unique())
    for kind, start, colour, words in (
        ("relation ", -0.35, INK, "a relation"),
        ("direction ", 0.05, GREY, "a random direction"),
    ):
        for number, seed in enumerate(seeds):
            own = pairs[(pairs["seed"] == seed) & pairs["what"].str.startswith(kind)]
            places = [number + start + 0.02 * place for place in range(len(own))]
            look = {"color": colour, "fmt": ".", "linewidth": 0.8, "label": None if number else words}
            axis.errorbar(places, 1e3 * own["difference difference"], yerr=1e3 * own["half difference"], **look)
    axis.axhline(0, color=MUTED, linewidth=1.2, linestyle=":")
    axis.set_xticks(range(len(seeds)), [f"seed {seed}" for seed in seeds])
    axis.set_ylabel("10⁻³ nats a pair", fontsize=10)
    axis.set_title("Semantic less syntactic, one at a time")
    axis.margins(y=0.2)
    axis.legend(loc="upper right", ncols=2, fontsize=9)


def _mediators(axis: Any, mediation: Any) -> None:
    found = mediation[mediation["readable"] == 1]
    for number, (_, own) in enumerate(found.groupby("seed")):
        own = 100 * own.set_index("mediator")[["share", "low", "high"]].loc[list(MEDIATORS)]
        places = [place + 0.12 * (number - 1) for place in range(len(MEDIATORS))]
        bounds = [own["share"] - own["low"], own["high"] - own["share"]]
        axis.errorbar(places, own["share"], yerr=bounds, color=INK, fmt="o", markersize=4)
    axis.axhline(0, color=MUTED, linewidth=1.2, linestyle=":")
    axis.set_xticks(range(len(MEDIATORS)), [name.replace(" ", "\n") for name in MEDIATORS])
    axis.set_ylabel("restored (%)", fontsize=10)
    axis.set_title("What carries what is copied")


FIGURES = {"games/games.png": draw_games, "language/language.png": draw_language}

if __name__ == "__main__":
    for name, draw in FIGURES.items():
        draw(RESULTS / name)
