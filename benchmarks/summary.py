"""What is said of repeated measurements."""

from __future__ import annotations

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
    """The power of the length that an amount grows with: slope of the least-squares line through the logarithms."""
    slope, _ = statistics.linear_regression([math.log(x) for x in lengths], [math.log(y) for y in amounts])
    return slope


def growth(exponent: float) -> str:
    """A word for a power: linear within a fifth of one, quadratic within a fifth of two."""
    for name, power in (("linear", 1.0), ("quadratic", 2.0)):
        if abs(exponent - power) <= 0.2:
            return name
    return "neither linear nor quadratic"
