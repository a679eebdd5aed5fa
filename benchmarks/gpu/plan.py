"""A step of the day as data: items that are measured once each, in phases."""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.work import Settings

Result = dict[str, Any]
"""Result of an item, as JSON has it. ``says``: one line for the report; ``agrees``: False if something is wrong."""


@dataclass(frozen=True)
class Setting:
    """How the day is run.

    Attributes:
        device: ``"cuda"``, or ``"cpu"`` for a dry run.
        dry_run: sizes as small as they go, to try the command; nothing is a measurement.
        threads: of the CPU in each process.
        against: another checkout, whose training step is timed beside this one's.
    """

    device: str = "cuda"
    dry_run: bool = False
    threads: int = 1
    against: str | None = None

    @property
    def dtype(self) -> str:
        """That of what is timed; on a CPU the one that every CPU has kernels for."""
        return "bfloat16" if self.device == "cuda" else "float32"

    @property
    def settings(self) -> Settings:
        return Settings(self.device, self.dtype, self.threads)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class LeftOut(Exception):
    """An item that cannot be measured here, with the reason; no failure."""


@dataclass(frozen=True)
class Item:
    """Something to measure; ``key`` names it within its step."""

    key: str
    run: Callable[[], Result]


MANY = max(1, min(12, (os.cpu_count() or 1) - 2))
"""Processes that compile kernels at the same time."""


@dataclass(frozen=True)
class Phase:
    """Items that may be shared among as many processes; one where time is measured."""

    items: Sequence[Item]
    processes: int = 1


@dataclass(frozen=True)
class Step:
    """A step of the day.

    Attributes:
        minutes: it is ended after these.
        phases: one after another.
        conclude: lines that follow from the results by key.
    """

    name: str
    minutes: float
    about: str
    phases: Callable[[Setting], list[Phase]]
    conclude: Callable[[Mapping[str, Result]], list[str]] = lambda results: []


DAY = ("right", "rival", "versus", "slices", "parts", "decode")
"""Steps in the order of the day, a quarter of an hour; each is ``STEP`` of the module of its name."""


def step_named(name: str) -> Step:
    """The step; its module is imported here."""
    return importlib.import_module(f"benchmarks.gpu.{name}").STEP
