"""Measurements, their summaries, and the relations between sides that they support."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from benchmarks.measuring import Rates


@dataclass(frozen=True)
class Summary:
    """Median, minimum, and first and third quartile of samples (linear interpolation)."""

    median: float
    minimum: float
    first_quartile: float
    third_quartile: float

    @property
    def spread(self) -> float:
        """Distance of the quartiles, as a part of the median."""
        return (self.third_quartile - self.first_quartile) / self.median


def summarise(samples: Sequence[float]) -> Summary:
    """The summary of at least one sample."""
    if len(samples) == 1:
        return Summary(*[samples[0]] * 4)
    first, median, third = statistics.quantiles(samples, n=4, method="inclusive")
    return Summary(median, min(samples), first, third)


def spread(medians: Sequence[float]) -> float:
    """Distance of the largest and the smallest, as a part of their median."""
    return (max(medians) - min(medians)) / statistics.median(medians)


def growth_exponent(lengths: Sequence[float], amounts: Sequence[float]) -> float:
    """The power k of the length with which an amount grows: y = a + b n^k.

    From three lengths on the constant a (gradients of weights, say) drops out, since increments are fitted:

    Math: (y' - y) / (n' - n) grows as (n' + n)^(k - 1), exactly for k = 1 and k = 2

    Otherwise, or if an amount does not grow, a is taken to be zero. Fits are least squares of logarithms.
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


Status = Literal["measured", "checked", "left out", "failed"]


@dataclass
class SideResult:
    """One side of one row.

    Attributes:
        status: ``checked``: compared, but not measured; ``left out``: with the reason in ``note``; ``failed``: with the
            error in ``note``.
        yardstick: name of the side it was compared with; None if there was none but itself.
        difference, where: from that side, see :func:`benchmarks.comparing.difference`.
        agrees: whether that is within the tolerance; None if not compared.
        samples: seconds for each call (generation: each token), as :meth:`Runner.sample` has them.
        number: calls in each sample.
        first: seconds of the check before them, its first calls.
        allocated, resident: peak bytes, of the memory suite.
        multiply_adds, traffic: least arithmetic and bytes of a call.
        floor_arithmetic, floor_bytes: seconds that those take at the best rates of this run.
        ratio: this side's figure over ours.
        refused: why there is none.
    """

    name: str
    function: str
    status: Status
    note: str = ""
    yardstick: str | None = None
    difference: float | None = None
    where: str = ""
    agrees: bool | None = None
    samples: list[float] = field(default_factory=list)
    number: int = 0
    first: float | None = None
    allocated: int | None = None
    resident: int | None = None
    multiply_adds: int | None = None
    traffic: int | None = None
    floor_arithmetic: float | None = None
    floor_bytes: float | None = None
    ratio: float | None = None
    refused: str = ""

    @property
    def lost(self) -> bool:
        """Whether it could not run, or no longer can."""
        return self.status in ("left out", "failed")

    @property
    def summary(self) -> Summary | None:
        """Summary of the samples, if there are any."""
        return summarise(self.samples) if self.samples else None

    @property
    def figure(self) -> float | None:
        """The number by which sides are compared: median seconds or allocated bytes."""
        return self.summary.median if self.summary else self.allocated


@dataclass
class Row:
    """One quantity of one case; ours is the first side."""

    suite: str
    label: str
    length: int
    quantity: str
    memory: bool
    tolerance: float
    sides: list[SideResult]

    @property
    def disagreements(self) -> list[SideResult]:
        """Sides whose results are wrong."""
        return [side for side in self.sides if side.agrees is False]

    def relate(self) -> None:
        """Relate the sides' figures to ours, where results allow it.

        If ours disagrees with its yardstick, no side is related; if another side does, that one is not.
        """
        ours = self.sides[0]
        for side in self.sides:
            if side.figure is None or ours.figure is None:
                continue
            if ours.agrees is False:
                side.refused = f"ours differs from {ours.yardstick} by {ours.difference:.1e} in {ours.where}"
            elif side.agrees is False:
                side.refused = f"differs from {side.yardstick} by {side.difference:.1e} in {side.where}"
            else:
                side.ratio = side.figure / ours.figure if ours.figure else None

    def set_floors(self, rates: Rates) -> None:
        """Set the time of the least work at these rates."""
        for side in self.sides:
            if side.multiply_adds is not None and side.traffic is not None:
                side.floor_arithmetic = side.multiply_adds / rates.multiply_adds
                side.floor_bytes = side.traffic / rates.bytes

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Row:
        """From :meth:`to_json`."""
        known = {entry.name for entry in fields(SideResult)}
        sides = [SideResult(**{name: side[name] for name in known & side.keys()}) for side in data["sides"]]
        return cls(**{**data, "sides": sides})

    def to_json(self) -> dict[str, Any]:
        """The row as JSON, with summaries beside the samples."""
        sides = []
        for side in self.sides:
            summary = side.summary
            sides.append({**vars(side), "summary": vars(summary) if summary else None})
        return {**vars(self), "sides": sides}
