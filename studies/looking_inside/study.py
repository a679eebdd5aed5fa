"""What the tables of the README follow from. The models were trained by ``dat train``, so there is no grid."""

from pathlib import Path
from typing import Any

import pandas

from dat.sweeps.grid import GridConfig
from studies._lib.inference import holm
from studies._lib.paired import table

EXPERIMENT = "relational-games"
GRIDS: dict[str, GridConfig] = {}
PRESETS: dict[str, Any] = {}
RESULTS = Path(__file__).parent / "results"


def games() -> str:
    """Accuracy in percent on new pentominoes without relations, resampled from another image."""
    read, lost = (pandas.read_csv(RESULTS / "games" / f"{name}.csv") for name in ("read", "accuracy"))
    best = read.query("scores == 'relations'").set_index("seed")["best"].to_dict()
    shown = lost.query("without == 'nothing' or how == 'resample'")
    accuracies = 100 * shown.pivot_table(index="seed", columns="without", values="accuracy test")
    lines = []
    for seed, percent in accuracies.iterrows():
        others = [name for name in accuracies.columns if name.startswith("relation ")]
        first = others.pop(best[seed])
        untouched, least, *layers = (
            f"{percent[name]:.1f}" for name in ("nothing", first, *(f"all relations of layer {n}" for n in (0, 1)))
        )
        rest = ", ".join(f"{percent[name]:.1f}" for name in others)
        lines.append([str(seed), untouched, f"**{least}**", rest, *layers])
    columns = ["seed", "untouched", "without the best", "without each other one", "without layer 0", "without layer 1"]
    return table([columns, *lines])


def language() -> str:
    """Selectivity of resampled relations at semantic and syntactic pairs, in 10^-3 nats a pair."""
    pairs = pandas.read_csv(RESULTS / "language" / "at_pairs.csv")
    own, noise = (pairs.query(f"what == '{what}'").set_index("seed") for what in ("all relations", "noise"))

    def text(row: pandas.Series, measure: str = "difference") -> str:
        mean, half = (1000 * row[f"{name} {measure}"] for name in ("difference", "half"))
        return f"{mean:+.2f} ± {half:.2f}".replace("-", "−")

    seeds = sorted(pairs["seed"].unique())
    adjusted = holm([own.loc[seed, "p difference"] for seed in seeds])
    lines = [
        [
            str(seed),
            *(text(own.loc[seed], measure) for measure in ("semantic", "syntactic", "difference")),
            f"{p:.2f}",
            text(noise.loc[seed]),
        ]
        for seed, p in zip(seeds, adjusted, strict=True)
    ]
    columns = ["seed", "S at semantic pairs", "S at syntactic pairs", "D, semantic less syntactic", "p (Holm)"]
    return table([[*columns, "D of noise"], *lines])


TABLES = {"games": games, "language": language}
