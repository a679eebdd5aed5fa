"""What was measured, and what may be said of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.rates import Rates
from benchmarks.summary import Summary, summarise

Status = Literal["measured", "checked", "left out", "failed"]


@dataclass
class SideResult:
    """One side of one row.

    Attributes:
        status: ``checked``: compared, but not measured; ``left out``: with the reason in ``note``; ``failed``: with the
            error in ``note``.
        yardstick: name of the side it was compared with; None if there was none but itself.
        difference, where: from that side, see :func:`benchmarks.agreement.difference`.
        agrees: whether that is within the tolerance; None if not compared.
        samples: seconds for each call (generation: each token), as :meth:`Runner.sample` has them.
        number: calls in each sample.
        allocated, resident: peak bytes, of the memory suite.
        multiply_adds, traffic: the least of a call.
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
    allocated: int | None = None
    resident: int | None = None
    multiply_adds: int | None = None
    traffic: int | None = None
    floor_arithmetic: float | None = None
    floor_bytes: float | None = None
    ratio: float | None = None
    refused: str = ""

    @property
    def summary(self) -> Summary | None:
        """Of the samples, if there are any."""
        return summarise(self.samples) if self.samples else None

    @property
    def figure(self) -> float | None:
        """What sides are related by: median seconds or allocated bytes."""
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
        """Sides whose results are not what they must be."""
        return [side for side in self.sides if side.agrees is False]

    def relate(self) -> None:
        """Relate the sides' figures to ours, where results allow it.

        If ours disagrees with its yardstick nothing is said of any side; if another side does, nothing of that one.
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
        """Time of the least work at these rates."""
        for side in self.sides:
            if side.multiply_adds is not None and side.traffic is not None:
                side.floor_arithmetic = side.multiply_adds / rates.multiply_adds
                side.floor_bytes = side.traffic / rates.bytes

    def to_json(self) -> dict[str, Any]:
        """With summaries beside the samples."""
        sides = []
        for side in self.sides:
            summary = side.summary
            sides.append({**vars(side), "summary": vars(summary) if summary else None})
        return {**vars(self), "sides": sides}
