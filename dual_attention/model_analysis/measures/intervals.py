"""Means of few trials: intervals, tests and their corrections, and comparison with published trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch

from ..._extras import require

MOST_FLIPPED = 17
"""Most differences of which all flips of signs are tried; as many flips of more are drawn from a fixed seed."""


@dataclass(frozen=True)
class Published:
    """A published point of a curve; all but the first two are None where only the mean is known."""

    point: float  # on the horizontal axis
    mean: float
    trials: int | None = None
    sd: float | None = None
    lowest: float | None = None
    highest: float | None = None
    adjusted: float | None = None  # the mean less a known error of its measurement


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
    return float(2 * _tail(t, len(differences)))


def equivalence_p(differences: Sequence[float], bound: float) -> float:
    """p of the two one-sided t-tests that the mean of two or more differences lies between -bound and bound.

    The larger of the two p-values. It is below a level alpha if and only if the t-interval of level 1 - 2 alpha lies
    within the bounds (Schuirmann 1987).
    """
    check_values("differences", differences)
    check_values("bound", [bound], least=1)
    spread, room = stdev(differences), bound - abs(fmean(differences))
    if spread == 0:
        return float(room <= 0)
    return _tail(room / (spread / math.sqrt(len(differences))), len(differences))


def sign_flip_p(differences: Sequence[float]) -> float:
    """p of the exact two-sided permutation test that the differences are symmetric around zero: their signs flip."""
    check_values("differences", differences, least=1)
    values, n = torch.tensor(differences, dtype=torch.float64), len(differences)
    if n <= MOST_FLIPPED:
        flips = torch.arange(2**n)[:, None] >> torch.arange(n) & 1
    else:
        flips = torch.randint(2, (2**MOST_FLIPPED, n), generator=torch.Generator().manual_seed(0))
        flips[0] = 0  # the differences as they are
    sums = ((1 - 2 * flips).to(values.dtype) @ values).abs()
    rounding = 1e-12 * values.abs().sum()
    return float((sums >= values.sum().abs() - rounding).double().mean())


def least_sign_flip_p(n: int) -> float:
    """The smallest p that :func:`sign_flip_p` finds of n differences: that of equal signs."""
    return 2.0 ** (1 - min(n, MOST_FLIPPED + 1))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: rejecting those below a level makes any error with at most that probability."""
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = largest
    return adjusted


def corrected(p: Sequence[float], how: str) -> list[float]:
    """p-values after a correction for the number of tests: holm, bonferroni or none."""
    if how == "holm":
        return holm(p)
    return [min(1.0, len(p) * value) for value in p] if how == "bonferroni" else list(p)


def _tail(t: float, n: int) -> float:
    """Probability that Student's t of n differences exceeds ``t``."""
    return float(require("scipy.stats", extra="train").t.sf(t, n - 1))


def welch_t(values: Sequence[float], published: Published) -> float | None:
    """Welch's t of our mean less the published one; None where either has fewer than two trials or both no spread."""
    if len(values) < 2 or published.trials is None or published.trials < 2 or published.sd is None:
        return None
    error = math.sqrt(stdev(values) ** 2 / len(values) + published.sd**2 / published.trials)
    return (fmean(values) - published.mean) / error if error else None


def outside(values: Sequence[float], published: Published) -> int | None:
    """Number of values outside the range of the published trials; None where that is not known."""
    if published.lowest is None or published.highest is None:
        return None
    return sum(not published.lowest <= value <= published.highest for value in values)
