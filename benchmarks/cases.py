"""A comparison as data: its sides, its quantities, and the suite it belongs to.

The bounds on memory at the end let a comparison leave out what cannot run. Their factors were measured, in float32, as
the memory suite measures; half precision takes less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.results import Row
from benchmarks.runner import Quantity
from benchmarks.work import Work

OURS = "ours"
NATIVE = "ours+native"
"""The side of ours with its C kernels enabled."""
YARDSTICKS = ("reference", "published", "one pass", "dense")
"""Sides that the others are compared with: the first of them that ran."""


@dataclass(frozen=True)
class SideSpec:
    """One side of a case.

    Attributes:
        name: ``ours`` for the side that others are related to, in each case the first.
        place: in this process, or in a worker of the published package's environment.
        function: sides of one function share weights and inputs and must agree; others only do similar work.
        timed: False for a side that only checks the others.
        needs: bytes expected at its peak beyond weights; the side is left out where there are fewer.
        package: distribution it needs; the side is left out where that is not installed.
    """

    name: str
    work: Work
    place: Literal["here", "published"] = "here"
    function: str = "dual"
    timed: bool = True
    needs: float = 0.0
    package: str | None = None


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        suite, label: name what is compared; with the quantity, a panel of the plot.
        length: the sequence length, on the horizontal axis.
        sides: ours first.
        quantities: in which it is compared.
        memory: peak memory is measured, of each side in a fresh process, rather than time.
    """

    suite: str
    label: str
    length: int
    sides: Sequence[SideSpec]
    quantities: Sequence[Quantity] = ("forward", "step")
    memory: bool = False

    def with_kernels(self) -> Case:
        """The same with a side of ours whose C kernels are enabled."""
        ours, *others = self.sides
        native = replace(ours, name=NATIVE, work=replace(ours.work, native=True))
        return replace(self, sides=(ours, native, *others))


@dataclass(frozen=True)
class Request:
    """The cases wanted: their lengths, whether in small widths, for a quick trial, and the device."""

    lengths: Sequence[int]
    quick: bool = False
    device: str = "cpu"


@dataclass(frozen=True)
class Suite:
    """A named set of cases.

    Attributes:
        about: one line.
        cases: the cases of a request.
        lengths, quick_lengths: run unless others are given; empty where the tasks fix them.
        conclude: lines printed after the table.
    """

    name: str
    about: str
    cases: Callable[[Request], Iterator[Case]]
    lengths: tuple[int, ...] = ()
    quick_lengths: tuple[int, ...] = ()
    conclude: Callable[[Sequence[Row]], list[str]] = lambda rows: []


BYTES = 4
"""Of a float32."""


def published_bytes(batch: int, n: int, heads: int, relations: int, *, symbols: int = 0, layers: int = 1) -> float:
    """Peak of the published package; ``symbols``: width of position-relative ones, built for all pairs."""
    return layers * batch * n * n * BYTES * (2 * relations + 4 * heads) + n * n * BYTES * 3 * symbols


def reference_bytes(
    batch: int, n: int, heads: int, width: int, relations: int, *, symbols: int = 0, layers: int = 1
) -> float:
    """Peak of the readable reference, which builds a message of the width of a head for each pair and head."""
    messages = 2 * heads * width + relations + 5 * heads
    return (0.4 + 0.6 * layers) * batch * n * n * BYTES * messages + n * n * BYTES * 2 * symbols


def dense_bytes(batch: int, n: int, heads: int, *, layers: int = 1) -> float:
    """Peak of attention weights and a mask."""
    return layers * batch * n * n * BYTES * 5 * heads
