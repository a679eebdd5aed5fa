"""The grid of a sweep: which runs there are, which are done, and the numbers of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from .._files import write_atomically
from .._words import printable
from ..training.config_io import commented_yaml, read_config
from ..training.configs import MOST_THREADS, MachineConfig, OutputConfig, RunConfig, check, check_integers, check_seed
from ..training.lock import LOCK, locked
from ..training.metrics import Row
from .experiment import AnySwept, Axis
from .results import cell_rows, check_provenance, to_csv

SETTINGS = ("data", "optim", "loop", "device")
"""Keys of a grid, if it has them, that must be equal for all cells in one folder."""
MOST_TRIALS = 10_000
"""Trials of a point."""


@dataclass(frozen=True)
class Cell:
    """One run of a grid: the values of its axes, in their order, and its seed."""

    values: tuple[tuple[str, Any], ...]
    seed: int
    name: str
    """Name of the cell's file, without its ending."""

    @classmethod
    def of(cls, axes: Sequence[Axis], values: Mapping[str, Any], seed: int) -> Cell:
        """The cell with these values of ``axes``."""
        pairs = tuple((axis.name, values[axis.name]) for axis in axes)
        name = "__".join([*(f"{axis.prefix}{values[axis.name]}" for axis in axes), f"seed{seed}"])
        return cls(pairs, seed, name)

    def __getitem__(self, axis: str) -> Any:
        return dict(self.values)[axis]


@dataclass(frozen=True)
class GridConfig(ABC):
    """A sweep: every point of a grid, from several seeds. An experiment's own adds tuples of values of its axes."""

    out: str = "runs/sweep"
    """Folder of the grid. Cells found done there are skipped, so the same command continues an interrupted grid and a
    longer list extends a finished one."""
    seeds: int = 1
    """Trials of each point; their seeds are first_seed, first_seed + 1 and so on."""
    first_seed: int = 0
    """Seed of the first trial."""
    workers: int | None = None
    """Processes that train at the same time, one CPU thread each; null takes one for each core."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of every worker."""
    keep_weights: bool = False
    """Keep the final weights of every cell beside its result."""

    def __post_init__(self) -> None:
        check(self.out == printable(self.out) != "", "out", "a text to print", self.out)
        check_integers(self, "", "seeds", most=MOST_TRIALS)
        check_integers(self, "", "workers", most=MOST_THREADS)
        check_seed(self, name="first_seed")
        for about in fields(self):
            values = getattr(self, about.name)
            if isinstance(values, tuple):
                check(len(values) > 0, about.name, "a list that is not empty", values)
                if isinstance(values[0], int):
                    check(min(values) >= 1, about.name, "integers of at least 1", values)

    @abstractmethod
    def points(self) -> list[dict[str, Any]]:
        """The points of one trial, each with a value for every axis of the experiment."""

    @abstractmethod
    def run_config(self, cell: Cell) -> RunConfig:
        """The configuration of a cell's run; its machine and output are set by :meth:`config`."""

    def config(self, cell: Cell) -> Any:
        """The complete configuration of a cell's run."""
        config: Any = self.run_config(cell)
        machine: MachineConfig = replace(config.machine, device=self.device, threads=1)
        return replace(config, machine=machine, output=OutputConfig(name=cell.name, tensorboard=False, progress=False))


def cells(experiment: AnySwept, grid: GridConfig) -> list[Cell]:
    """All cells, one trial of everything before the next trial: an unfinished grid is a complete smaller one."""
    points = grid.points()
    seeds = range(grid.first_seed, grid.first_seed + grid.seeds)
    return [Cell.of(experiment.axes, point, seed) for seed in seeds for point in points]


class GridFolder:
    """Files of a grid: ``grid.yaml``, ``cells/*.json``, ``results.csv``, ``comparison.md`` and ``figures/``."""

    def __init__(self, experiment: AnySwept, path: str | Path) -> None:
        self.experiment = experiment
        self.path = Path(path)
        self.config = self.path / "grid.yaml"
        self.results = self.path / "results.csv"
        self.comparison = self.path / "comparison.md"
        self.cells = self.path / "cells"
        self.figures = self.path / "figures"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Context in which no other process runs cells in the folder, which is made, if it is not there.

        Raises:
            FileExistsError: if there is something else at the path.
            InUse: if another process runs cells there.
        """
        self._refuse_other()
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path, self.cells.name, self.figures.name):
            yield

    def _refuse_other(self) -> None:
        if self.path.exists() and not self.config.exists() and any(p.name != LOCK for p in self.path.iterdir()):
            raise FileExistsError(f"{self.path}: there already and no folder of a grid; give another --out")

    def open(self, grid: GridConfig) -> None:
        """Make the folder, or check that the cells in it were run with the same settings, on the same data.

        Raises:
            ValueError: if they were not.
            FileExistsError: if there is something else at the path.
        """
        if self.config.exists():
            old = read_config(type(grid), self.config)
            for name in SETTINGS:
                if hasattr(grid, name) and getattr(old, name) != getattr(grid, name):
                    raise ValueError(
                        f"{name}: {self.path} holds cells run with {getattr(old, name)}, got "
                        f"{getattr(grid, name)}; give another --out or the same settings"
                    )
        self._refuse_other()
        self._check_provenance(grid)
        self.cells.mkdir(parents=True, exist_ok=True)
        self.figures.mkdir(exist_ok=True)
        write_atomically(self.config, commented_yaml(replace(grid, out=str(self.path))))

    def _check_provenance(self, grid: GridConfig) -> None:
        if self.experiment.provenance:
            planned = [
                {**dict(cell.values), "seed": cell.seed, **self.experiment.identity(grid.config(cell))}
                for cell in cells(self.experiment, grid)
            ]
            check_provenance(self.experiment, [*planned, *cell_rows(self.experiment, self.path)], self.path)

    def path_of(self, cell: Cell) -> Path:
        """File of a cell's result."""
        return self.cells / f"{cell.name}.json"

    def weights_of(self, cell: Cell) -> Path:
        """File of a cell's final weights, if they are kept."""
        return self.cells / f"{cell.name}.safetensors"

    def done(self, cell: Cell) -> bool:
        """Whether the cell has been run."""
        return self.path_of(cell).exists()

    def write_results(self) -> list[Row]:
        """Write ``results.csv`` from the cells; returns its rows."""
        rows = cell_rows(self.experiment, self.path)
        if rows:
            write_atomically(self.results, to_csv(rows))
        return rows
