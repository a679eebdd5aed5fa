"""Means of few trials: their intervals and tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from .extras import require


def check_values(name: str, values: Sequence[float], least: int = 2) -> None:
    """Raise ``ValueError`` unless there are so many values, all finite."""
    if len(values) < least:
        raise ValueError(f"{name}: expected at least {least}, got {len(values)}")
    if wrong := [value for value in values if not math.isfinite(value)]:
        raise ValueError(f"{name}: expected finite numbers, got {wrong[0]}")


def half_width(values: Sequence[float], *, level: float = 0.95) -> float:
    """Half of the t-interval of the mean of two or more independent values."""
    check_values("values", values)
    quantile = require("scipy.stats", extra="train").t.ppf((1 + level) / 2, len(values) - 1)
    return float(quantile) * stdev(values) / math.sqrt(len(values))


def paired_p(differences: Sequence[float]) -> float:
    """p of the two-sided t-test that the mean of two or more differences is zero; 0 or 1 where they do not vary."""
    check_values("differences", differences)
    spread, mean = stdev(differences), fmean(differences)
    if spread == 0:
        return float(mean == 0)
    t = abs(mean) / (spread / math.sqrt(len(differences)))
    return float(2 * require("scipy.stats", extra="train").t.sf(t, len(differences) - 1))
