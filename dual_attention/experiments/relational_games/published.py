"""The published learning curves (arXiv 2405.16727), as recovered from the authors' logs; see ``published.csv``."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from ...training.metrics import Row


@cache
def published_rows() -> tuple[Row, ...]:
    """One row for each object set, task, model (by the name of our preset, if there is one) and training-set size.

    Accuracies are percentages after the last epoch, averaged over ``trials`` runs; ``max_sem`` is the largest standard
    error of the mean among the sizes of one curve.
    """
    folder = resources.files("dual_attention.experiments.relational_games")
    text = folder.joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(
        {**row, "n_train": int(row["n_train"]), "accuracy": float(row["accuracy"]), "max_sem": float(row["max_sem"])}
        for row in csv.DictReader(text.splitlines())
    )


def published_curve(object_set: str, task: str, model: str) -> list[tuple[int, float]]:
    """(training-set size, accuracy in percent) of one published curve, by size; empty if it was not published."""
    rows = published_rows()
    key = (object_set, task, model)
    return sorted((r["n_train"], r["accuracy"]) for r in rows if (r["object_set"], r["task"], r["model"]) == key)
