"""The study of Relational Games with handwritten digits: its grid and the table."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dat.sweeps.grid import GridConfig
from dat.training.metrics import Row
from studies._lib.paired import paired_differences, table
from studies._lib.tables import failed
from studies.digit_games.experiment import DigitGamesGrid

EXPERIMENT = "studies/digit_games/experiment.py:DigitGames"
REFERENCE = "transformer-128-h2-matched"
STUDY = DigitGamesGrid(out="runs/digit-games", seeds=10, sizes=(2000,))
"""Which models see that two digits are the same, and see it of digits that they never met?"""

GRIDS: dict[str, GridConfig] = {"digits": STUDY}
PRESETS: dict[str, Any] = {}
FIGURES: dict[str, Callable[[Sequence[Row], Path], None]] = {}


def table_of_means() -> str:
    """Accuracy over the four tasks, and differences from the Transformer, paired by seed, with p after Holm."""
    rows = pd.read_csv(Path(__file__).parent / "results" / "digits" / "results.csv")
    trials: Any = rows.groupby(["model", "seed"])[["test", "unseen", "fall"]].mean()
    means = trials.groupby("model").mean()
    columns = (
        "classes trained on",
        "failed",
        "never seen",
        "never seen, less the Transformer",
        "fall, less the Transformer's",
    )
    arms = [model for model in STUDY.models if model != REFERENCE]
    unseen, fall = (paired_differences(trials[measure], REFERENCE, arms) for measure in ("unseen", "fall"))
    lines = [["model", *columns]]
    for model in (REFERENCE, *arms):
        beside = ["", f"{means.fall[model]:.1f} in all"]
        if model in arms:
            beside = [f"{found[model].words()} ({probability(found[model].holm)})" for found in (unseen, fall)]
        runs = failed(rows.loc[rows["model"] == model, "test"].tolist())
        lines.append([f"`{model}`", f"{means.test[model]:.1f}", runs, f"{means.unseen[model]:.1f}", *beside])
    return table(lines)


def probability(p: float) -> str:
    """A probability in words."""
    return "< 0.0001" if p < 5e-5 else f"{p:.4f}" if p < 5e-4 else f"{p:.3f}" if p < 0.095 else f"{p:.2f}"


TABLES: dict[str, Callable[[], str]] = {"means": table_of_means}
