"""A comparison as data: its sides, its quantities, and the suite it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.results import Row
from benchmarks.runner import Quantity
from benchmarks.work import Work

OURS = "ours"
YARDSTICKS = ("reference", "published", "dense")
"""Sides that the others are measured against, the first that ran."""


@dataclass(frozen=True)
class SideSpec:
    """One side of a case.

    Attributes:
        name: ``ours`` for the side that others are related to, in each case the first.
        place: in this process, or in a worker of the published package's environment.
        function: sides of one function share weights and inputs and must agree; others only do alike work.
        timed: otherwise it only checks the others.
        needs: bytes it is expected to take at its peak beyond weights; it is left out where there are fewer.
        package: distribution it needs, left out where that is not installed.
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
        suite, label: what is compared; together with the quantity a panel of the plot.
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


@dataclass(frozen=True)
class Request:
    """What cases are wanted: their lengths, whether in small widths, for a quick trial, and for which device."""

    lengths: Sequence[int]
    quick: bool = False
    device: str = "cpu"


@dataclass(frozen=True)
class Suite:
    """A named set of cases.

    Attributes:
        about: one line.
        cases: the cases that a request is for.
        lengths, quick_lengths: those that are run unless others are asked for; empty where the tasks fix them.
        conclude: lines to be said after the table.
    """

    name: str
    about: str
    cases: Callable[[Request], Iterator[Case]]
    lengths: tuple[int, ...] = ()
    quick_lengths: tuple[int, ...] = ()
    conclude: Callable[[Sequence[Row]], list[str]] = lambda rows: []
