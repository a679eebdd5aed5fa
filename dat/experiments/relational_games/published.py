"""The published learning curves (arXiv 2405.16727), from the authors' single runs where these are public.

``published.csv`` has a row for each object set, task, model (by the name of our preset) and training-set size:
accuracies in percent after the last epoch, ``trials``, mean, ``sd``, ``lowest`` and ``highest``, and mean and deviation
of the loss. Rows without ``sd`` are means that were read off figures.
``studies/relational_games/published_runs.py`` makes it.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from ...sweeps.published import Published
from ...training.metrics import Row

TABLE = Path(__file__).with_name("published.csv")
NUMBERS = ("accuracy", "sd", "lowest", "highest", "loss", "loss_sd")

OFFICIAL_POOL = 250_000
"""Images from which the authors draw training and test images together, with replacement."""


@cache
def published_rows() -> tuple[Row, ...]:
    """The rows; numbers as numbers, and None where there is none. ``trials`` is a text such as 4-5 for means."""
    with open(TABLE, newline="", encoding="utf-8") as file:
        return tuple(
            {
                **row,
                "n_train": int(row["n_train"]),
                "trials": int(row["trials"]) if row["trials"].isdigit() else row["trials"],
                **{name: float(row[name]) if row[name] else None for name in NUMBERS},
            }
            for row in csv.DictReader(file)
        )


def overlap(n_train: int) -> float:
    """Expected share of the authors' test images that are among ``n_train`` training images, too."""
    return 1 - (1 - 1 / OFFICIAL_POOL) ** n_train


def without_overlap(accuracy: float, n_train: int) -> float:
    """Accuracy in percent on the images that are not, if all that are are answered right."""
    share = overlap(n_train)
    return (accuracy - 100 * share) / (1 - share)


def published_losses(object_set: str, task: str, model: str) -> list[Published]:
    """Mean losses of one published curve, by size, as far as they are known; their ranges are not."""
    key = (object_set, task, model)
    rows = [row for row in published_rows() if (row["object_set"], row["task"], row["model"]) == key]
    return [
        Published(point=row["n_train"], mean=row["loss"], trials=row["trials"], sd=row["loss_sd"])
        for row in sorted(rows, key=lambda row: row["n_train"])
        if row["loss"] is not None
    ]


def published_curve(object_set: str, task: str, model: str) -> list[Published]:
    """The points of one published curve, by size; empty if it was not published.

    Those of ``match_pattern`` on pentominoes, whose training sets are large, are adjusted for repeated images.
    """
    key = (object_set, task, model)
    rows = [row for row in published_rows() if (row["object_set"], row["task"], row["model"]) == key]
    adjusts = (object_set, task) == ("test", "match_pattern")
    return [
        Published(
            point=row["n_train"],
            mean=row["accuracy"],
            trials=None if row["sd"] is None else row["trials"],
            sd=row["sd"],
            lowest=row["lowest"],
            highest=row["highest"],
            adjusted=without_overlap(row["accuracy"], row["n_train"]) if adjusts else None,
        )
        for row in sorted(rows, key=lambda row: row["n_train"])
    ]
