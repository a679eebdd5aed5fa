"""The construction of the proof, measured: exact features, scores times beta, no training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dual_attention._files import write_atomically

from ...sweeps.results import to_csv
from ...training.metrics import Row
from ...training.seeding import derive_seed
from .model import largest_error, relate_to_selected
from .task import constructed_features, draw, relations, wanted

SHARPNESSES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
MARGINS = (0.01, 0.05, 0.2)
DRAWS = 20_000


class ConstructedErrors(NamedTuple):
    """Errors of the construction over draws, the largest of each draw.

    Attributes:
        mean, largest: of the errors.
        mean_bound, largest_bound: of what the theorem allows them: (1 - alpha_i*) max_j |R(x, y_j) - R(x, y_i*)|.
        exceeded: draws whose error is above its bound, by more than rounding.
    """

    mean: float
    largest: float
    mean_bound: float
    largest_bound: float
    exceeded: int


def constructed_errors(
    beta: float, margin: float, *, senders: int = 8, n: int = DRAWS, seed: int = 0
) -> ConstructedErrors:
    """Errors of relational attention with exact features, whose scores are ``beta`` times the utility; in float64."""
    x, y = (part.double() for part in draw(n, senders, margin, derive_seed(seed, "constructed")))
    target = wanted(x, y)
    output, weights = relate_to_selected(constructed_features(x, y), scale=beta)
    error = largest_error(output, target)
    farthest = (relations(x, y) - target[:, None]).abs().amax((1, 2))
    bound = (1 - weights.amax(-1)) * farthest
    exceeded = int((error > bound + 1e-12).sum())
    return ConstructedErrors(error.mean().item(), error.max().item(), bound.mean().item(), bound.max().item(), exceeded)


def constructed_rows(sharpnesses: Sequence[float] = SHARPNESSES, margins: Sequence[float] = MARGINS) -> list[Row]:
    """:func:`constructed_errors` of every sharpness and margin."""
    return [
        {"margin": margin, "sharpness": beta, **constructed_errors(beta, margin)._asdict()}
        for margin in margins
        for beta in sharpnesses
    ]


def write_constructed(path: Path) -> None:
    """Write them as a table."""
    write_atomically(path, to_csv(constructed_rows()))
