"""Published points of curves, and measured trials beside them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


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
