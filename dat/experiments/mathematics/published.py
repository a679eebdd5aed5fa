"""The published accuracies (arXiv 2405.16727, Table 2 and Figure 3): per character, on interpolation.

``published.csv`` has a row for each module and model, by the name of our preset: mean in percent after 100 epochs, and
its standard error. Of how many runs is known for few, so the errors are in the file only, and no test is made of them.
Where the paper has a dash no run ended, and there is no row.
"""

import csv
from functools import cache
from pathlib import Path

from ...sweeps.published import Published

TABLE = Path(__file__).with_name("published.csv")
EPOCHS = 100
"""Passes through the training set of the published runs; the paper's text says 50, its logs 100."""


@cache
def published_accuracies() -> dict[tuple[str, str], float]:
    """Means in percent by module and model."""
    with open(TABLE, newline="", encoding="utf-8") as file:
        return {(row["module"], row["model"]): float(row["accuracy"]) for row in csv.DictReader(file)}


def published_interpolation(module: str, model: str) -> list[Published]:
    """The published point of a model; empty if there is none."""
    mean = published_accuracies().get((module, model))
    return [] if mean is None else [Published(point=EPOCHS, mean=mean)]
