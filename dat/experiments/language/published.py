"""The published perplexities and losses of language models (arXiv 2405.16727, Table 5, Figures 4, 10 and 12).

``published.csv`` has a row for each number, by the name of our preset: ``perplexity``, or ``loss`` in nats, after so
many ``tokens``. Where ``steps`` are given it is the end of a run. The others are points on the way of one, and its
learning rate falls to the end of 19,073 steps, so a shorter run does not end there. All are of single runs.

Losses of Figure 12, on Tiny Stories, are the lowest of a run, of tokens of Llama 2's vocabulary.
"""

import csv
from functools import cache
from math import exp
from pathlib import Path

from ...sweeps.published import Published
from ...training.metrics import Row

TABLE = Path(__file__).with_name("published.csv")
NUMBERS = ("steps", "tokens", "perplexity", "loss")


@cache
def published_results() -> tuple[Row, ...]:
    """The rows; numbers as numbers, and None where there is none."""
    with open(TABLE, newline="", encoding="utf-8") as file:
        return tuple(
            {**row, **{name: float(row[name]) if row[name] else None for name in NUMBERS}}
            for row in csv.DictReader(file)
        )


def published_perplexity(model: str) -> list[Published]:
    """The perplexity that the published run of a model ends with, by its steps; empty if there is none."""
    return [
        Published(point=row["steps"], mean=exp(row["loss"]) if row["perplexity"] is None else row["perplexity"])
        for row in published_results()
        if row["model"] == model and row["steps"] is not None
    ]
