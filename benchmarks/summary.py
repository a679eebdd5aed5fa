"""What is said of repeated measurements."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Of samples: median, minimum, and first and third quartile (linear interpolation)."""

    median: float
    minimum: float
    first_quartile: float
    third_quartile: float


def summarise(samples: Sequence[float]) -> Summary:
    """The summary of at least one sample."""
    if len(samples) == 1:
        return Summary(*[samples[0]] * 4)
    first, median, third = statistics.quantiles(samples, n=4, method="inclusive")
    return Summary(median, min(samples), first, third)


def growth_exponent(lengths: Sequence[float], amounts: Sequence[float]) -> float:
    """The power k of the length that an amount grows with: y = a + b n^k.

    From three lengths on the constant a (gradients of weights, say) drops out, since increments are fitted:

    Math: (y' - y) / (n' - n) grows as (n' + n)^(k - 1), exactly for k = 1 and k = 2

    Otherwise, or if an amount does not grow, it is taken to be zero. Fits are least squares of logarithms.
    """
    points = sorted(zip(lengths, amounts, strict=True))
    rises = [((n + m) / 2, (z - y) / (m - n)) for (n, y), (m, z) in itertools.pairwise(points)]
    if len(rises) > 1 and all(rise > 0 for _, rise in rises):
        return 1.0 + _slope(rises)
    return _slope(points)


def _slope(points: Sequence[tuple[float, float]]) -> float:
    logarithms = [(math.log(x), math.log(y)) for x, y in points]
    return statistics.linear_regression(*zip(*logarithms, strict=True)).slope


def growth(exponent: float) -> str:
    """A word for a power: linear within a fifth of one, quadratic within a fifth of two, less than linear below."""
    if exponent < 0.8:
        return "less than linear"
    for name, power in (("linear", 1.0), ("quadratic", 2.0)):
        if abs(exponent - power) <= 0.2:
            return name
    return "between linear and quadratic" if exponent < 2 else "more than quadratic"
