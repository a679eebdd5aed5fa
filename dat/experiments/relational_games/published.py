"""The published learning curves (arXiv 2405.16727), from the authors' single runs where these are public.

``published.csv`` has a row for each curve, by object set, task and model (the name of our preset). Its cells list what
belongs to the training-set sizes ``n_train``: ``trials``, their mean ``accuracy`` in percent after the last epoch, its
``sd``, ``lowest`` and ``highest``, and mean and deviation of the loss. Curves without ``sd`` were read off figures.
``studies/relational_games/published_runs.py`` makes it.
"""

import csv
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path

from ...sweeps.published import Published
from ...training.metrics import Row

TABLE = Path(__file__).with_name("published.csv")
NUMBERS = ("accuracy", "sd", "lowest", "highest", "loss", "loss_sd")
LISTS = ("n_train", "trials", *NUMBERS)

OFFICIAL_POOL = 250_000
"""Images from which the authors draw training and test images together, with replacement."""


@cache
def published_rows() -> tuple[Row, ...]:
    """A row for each point; numbers as numbers, None where there is none. Trials of means can be a text such as 4-5."""
    with open(TABLE, newline="", encoding="utf-8") as file:
        return tuple(row for curve in csv.DictReader(file) for row in _points(curve))


def _points(curve: dict[str, str]) -> Iterator[Row]:
    about = {name: text for name, text in curve.items() if name not in LISTS}
    for n_train, trials, *numbers in zip_longest(*(curve[name].split() for name in LISTS)):
        yield {
            **about,
            "n_train": int(n_train),
            "trials": int(trials) if trials.isdigit() else trials,
            **{name: text and float(text) for name, text in zip(NUMBERS, numbers, strict=True)},
        }


def overlap(n_train: int) -> float:
    """Expected share of the authors' test images that are among ``n_train`` training images, too."""
    return 1 - (1 - 1 / OFFICIAL_POOL) ** n_train


def without_overlap(accuracy: float, n_train: int) -> float:
    """Accuracy in percent on the images that are not, if all that are are answered right."""
    share = overlap(n_train)
    return (accuracy - 100 * share) / (1 - share)


def _curve(*curve: str) -> list[Row]:
    """Rows of an object set, task and model, by size."""
    return [row for row in published_rows() if (row["object_set"], row["task"], row["model"]) == curve]


def published_losses(object_set: str, task: str, model: str) -> list[Published]:
    """Mean losses of one published curve, by size, as far as they are known; their ranges are not."""
    return [
        Published(point=row["n_train"], mean=row["loss"], trials=row["trials"], sd=row["loss_sd"])
        for row in _curve(object_set, task, model)
        if row["loss"] is not None
    ]


def published_curve(object_set: str, task: str, model: str) -> list[Published]:
    """The points of one published curve, by size; empty if it was not published.

    Those of ``match_pattern`` on pentominoes, whose training sets are large, are adjusted for repeated images.
    """
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
        for row in _curve(object_set, task, model)
    ]
