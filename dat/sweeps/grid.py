"""The grid of a sweep: which runs there are, which are done, and the numbers of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Literal

from dual_attention._checksums import damaged_files, read_checksums, sha256_of, write_checksums
from dual_attention._files import write_atomically
from dual_attention._words import printable

from ..training.config_io import commented_yaml, read_config
from ..training.configs import (
    MOST_THREADS,
    MachineConfig,
    OutputConfig,
    RunConfig,
    check,
    check_integers,
    check_names,
    check_seed,
)
from ..training.lock import LOCK, locked
from ..training.metrics import Row
from .experiment import MATCH, AnySwept, Axis
from .protocol import CONFIG, differing_settings, digests, settings_of
from .results import LR, cell_files, cell_rows, check_provenance, columns_of_cell, named_cell, sound_cells, to_csv

SETTINGS = ("data", "optim", "loop", "device", "precision", "match", "match_to")
"""Keys of a grid, if it has them, that must be equal for all cells in one folder."""
MOST_TRIALS = 10_000
"""Trials of a point."""


@dataclass(frozen=True)
class Given:
    """Differences of an arm from what its grid says of all: a learning rate of its own, or what makes it match."""

    changes: tuple[tuple[str, Any], ...] = ()
    """Dotted keys of the configuration of its runs, and their values."""
    numbers: tuple[tuple[str, Any], ...] = ()
    """Further columns of its lines of results."""

    def __add__(self, more: Given) -> Given:
        return Given(self.changes + more.changes, self.numbers + more.numbers)


def given_rate(lr: float) -> Given:
    """A learning rate of an arm's own."""
    return Given((("optim.lr", lr),), ((LR, lr),))


@dataclass(frozen=True)
class Cell:
    """One run of a grid: the values of its axes, in their order, its seed, and what its arm was given."""

    values: tuple[tuple[str, Any], ...]
    seed: int
    name: str
    """Name of the cell's file, without its ending."""
    given: Given = Given()

    @classmethod
    def of(cls, axes: Sequence[Axis], values: Mapping[str, Any], seed: int, lr: float | None = None) -> Cell:
        """The cell with these values of ``axes`` and, in a sweep of learning rates, this one of them."""
        pairs = tuple((axis.name, values[axis.name]) for axis in axes)
        rate = [] if lr is None else [f"{LR}{lr:g}"]
        name = "__".join([*(f"{axis.prefix}{values[axis.name]}" for axis in axes), *rate, f"seed{seed}"])
        return cls(pairs, seed, name, Given() if lr is None else given_rate(lr))

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
    lrs: tuple[float, ...] | None = None
    """Learning rates, each of which every point is run with; learning_rates.md names the best of each arm. null takes
    optim.lr."""
    lr_of: dict[str, float] | None = None
    """Learning rates of single arms, by their names; the others take optim.lr."""
    match: Literal["parameters", "operations", "time"] | None = None
    """Give arms what the reference arm has: as many parameters, by the width of their feed-forward blocks; or training
    of such a length that it takes as many operations, or as much time. null leaves arms as they are."""
    match_to: str | None = None
    """The reference arm; null takes the first."""

    def __post_init__(self) -> None:
        check(self.out == printable(self.out) != "", "out", "a text to print", self.out)
        check_integers(self, "", "seeds", most=MOST_TRIALS)
        check_integers(self, "", "workers", most=MOST_THREADS)
        check_seed(self, name="first_seed")
        check(self.match_to is None or self.match is not None, "match_to", "null without match", self.match_to)
        self._check_rates()
        for about in fields(self):
            values = getattr(self, about.name)
            if isinstance(values, tuple):
                check(len(values) > 0, about.name, "a list that is not empty", values)
                if isinstance(values[0], int):
                    check(min(values) >= 1, about.name, "integers of at least 1", values)

    def _check_rates(self) -> None:
        check(self.lrs is None or self.lr_of is None, "lr_of", "null with lrs", self.lr_of)
        check(self.lrs is None or len({*self.lrs}) == len(self.lrs), "lrs", "different numbers", self.lrs)
        for name, rates in (("lrs", self.lrs or ()), ("lr_of", (self.lr_of or {}).values())):
            check(all(0 < rate < inf for rate in rates), name, "positive numbers", getattr(self, name))

    @abstractmethod
    def points(self) -> list[dict[str, Any]]:
        """The points of one trial, each with a value for every axis of the experiment."""

    @abstractmethod
    def run_config(self, cell: Cell) -> RunConfig:
        """The configuration of a cell's run; its machine and output are set by :meth:`config`."""

    def check_extends(self, older: Any) -> None:
        """Raise ``ValueError`` unless cells of this grid and of an older one may lie in one folder."""
        for name in SETTINGS:
            if not hasattr(self, name):
                continue
            for key, before, now in differing(name, getattr(older, name), getattr(self, name)):
                raise ValueError(
                    f"{key}: {self.out} holds cells run with {before}, got {now}; give another --out or the same "
                    "settings"
                )

    def origin(self) -> dict[str, Any]:
        """Digests, by their columns, of what the runs are made of beside their configuration, such as files."""
        return {}

    def config(self, cell: Cell) -> Any:
        """The complete configuration of a cell's run."""
        config: Any = changed(self.run_config(cell), cell.given.changes)
        machine: MachineConfig = replace(config.machine, device=self.device, threads=1)
        return replace(config, machine=machine, output=OutputConfig(name=cell.name, tensorboard=False, progress=False))


def differing(key: str, older: Any, newer: Any) -> Iterator[tuple[str, Any, Any]]:
    """The dotted keys, and both values, in which two settings differ; those of a group one by one."""
    if is_dataclass(newer) and type(older) is type(newer):
        for about in fields(newer):
            yield from differing(f"{key}.{about.name}", getattr(older, about.name), getattr(newer, about.name))
    elif older != newer:
        yield key, older, newer


def changed(config: Any, changes: Sequence[tuple[str, Any]]) -> Any:
    """``config`` with other values of these dotted keys; those of a group are changed together."""
    own, groups = {}, {}
    for key, value in changes:
        group, _, name = key.rpartition(".")
        (groups.setdefault(group, {}) if group else own)[name] = value
    own |= {group: replace(getattr(config, group), **values) for group, values in groups.items()}
    return replace(config, **own) if own else config


def cells(experiment: AnySwept, grid: GridConfig) -> list[Cell]:
    """All cells, one trial of everything before the next trial: an unfinished grid is a complete smaller one.

    What the grid lists twice is one cell. Arms have the learning rates that the grid gives them; what
    :mod:`.matching` gives them is not there yet.

    Raises:
        ValueError: if a learning rate is of an arm that the grid has not.
    """
    points, arm, own = grid.points(), experiment.curve_axis.name, grid.lr_of or {}
    check_names("lr_of", own, list(dict.fromkeys(point[arm] for point in points)))
    seeds = range(grid.first_seed, grid.first_seed + grid.seeds)
    found = [
        replace(cell, given=given_rate(own[point[arm]])) if point[arm] in own else cell
        for seed in seeds
        for point in points
        for lr in grid.lrs or (None,)
        for cell in (Cell.of(experiment.axes, point, seed, lr),)
    ]
    return list(dict.fromkeys(found))


def reference_arm(experiment: AnySwept, grid: GridConfig) -> str | None:
    """The arm that the others are matched to: the one named, or else the first; None if nothing is matched.

    Raises:
        ValueError: if the grid has no arm of that name.
    """
    if grid.match is None:
        return None
    arms = list(dict.fromkeys(point[experiment.curve_axis.name] for point in grid.points()))
    check_names("match_to", [] if grid.match_to is None else [grid.match_to], arms)
    return grid.match_to or arms[0]


class GridFolder:
    """Files of a grid: ``grid.yaml``, ``cells/*.json``, ``results.csv``, ``comparison.md`` and ``figures/``.

    Where cells were measured on the way, ``epochs.csv`` has the lines that shorter runs would have.
    ``checksums.json`` has the checksums of the cells that are done. A cell without one, of an older version or of a
    process that was killed at that moment, is used as it is.
    """

    def __init__(self, experiment: AnySwept, path: str | Path) -> None:
        self.experiment = experiment
        self.path = Path(path)
        self.config = self.path / "grid.yaml"
        self.results = self.path / "results.csv"
        self.on_the_way = self.path / "epochs.csv"
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
        """Make the folder, or :meth:`check` it."""
        self.check(grid)
        self.cells.mkdir(parents=True, exist_ok=True)
        self.figures.mkdir(exist_ok=True)
        write_atomically(self.config, commented_yaml(replace(grid, out=str(self.path))))

    def check(self, grid: GridConfig) -> None:
        """Check that the cells in the folder, if there are any, were run with the same settings, on the same data.

        A grid that failed before its first result leaves no cell, and so may be given anew, with its mistake mended.

        Raises:
            ValueError: if they were not.
            FileExistsError: if there is something else at the path.
        """
        if self.config.exists():
            old = read_config(type(grid), self.config)
            if cell_files(self.path):
                self._with_reference(grid).check_extends(self._with_reference(old))
                self._check_swept(old, grid)
                self._check_cells(grid)
        self._refuse_other()

    def _with_reference(self, grid: GridConfig) -> GridConfig:
        """A grid that names the arm that it matches the others to."""
        return replace(grid, match_to=reference_arm(self.experiment, grid))

    def _check_swept(self, old: GridConfig, new: GridConfig) -> None:
        """Check that a sweep of learning rates remains one, and nothing else becomes one."""
        if (old.lrs is None) != (new.lrs is None):
            raise ValueError(
                f"lrs: {self.path} holds cells run with {old.lrs}, got {new.lrs}; a sweep of learning rates has a "
                "folder of its own: give another --out"
            )

    def _check_cells(self, grid: GridConfig) -> None:
        """Check that the cells in the folder, whichever grid asked for them, were run as those of this one will be.

        Cells that were damaged do not count: they are run again.
        """
        rows: list[Row] = []
        settings: dict[tuple[Any, ...], tuple[Path, Mapping[str, Any]]] = {}
        found = sound_cells(self.path)
        for file, result in found.items():
            with named_cell(file):
                row = columns_of_cell(self.experiment, result)
                rows.append(row)
                if CONFIG in result:
                    settings[tuple(row[axis.name] for axis in self.experiment.axes)] = file, result[CONFIG]
        if grid.lrs is None:
            self._check_rates(grid, rows)
        planned = cells(self.experiment, grid)
        origin = {} if all(self.path_of(cell) in found for cell in planned) else grid.origin()
        made = []
        for cell in {cell.values: cell for cell in planned}.values():  # a trial of each point
            config = grid.config(replace(cell, given=Given()))
            now, point = settings_of(config), tuple(value for _, value in cell.values)
            if point in settings:
                self._check_settings(*settings[point], now)
            told = digests(self.experiment, {CONFIG: now, **origin})
            matched = {} if grid.match is None else {MATCH: grid.match}
            run = {**dict(cell.values), "seed": cell.seed, **self.experiment.identity(config)}
            made.append({**run, **told, **matched})
        check_provenance(self.experiment, [*made, *rows], self.path)

    def _check_rates(self, grid: GridConfig, rows: Sequence[Row]) -> None:
        """Check that arms have the learning rates that they have in the folder."""
        arm, own = self.experiment.curve_axis.name, grid.lr_of or {}
        for name in dict.fromkeys(point[arm] for point in grid.points()):
            for before in {row.get(LR) for row in rows if row[arm] == name} - {own.get(name)}:
                raise ValueError(
                    f"lr_of: {self.path} holds cells of {name} run with {before or 'optim.lr'}, got "
                    f"{own.get(name) or 'optim.lr'}; give another --out or the same learning rates"
                )

    def _check_settings(self, file: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Check that the trials of a point have the same settings, ``before`` being those of a cell."""
        for key, older, newer in differing_settings(before, now):
            raise ValueError(
                f"{key}: {file} was run with {older}, got {newer}; give another --out or the same settings"
            )

    def path_of(self, cell: Cell) -> Path:
        """File of a cell's result."""
        return self.cells / f"{cell.name}.json"

    def weights_of(self, cell: Cell) -> Path:
        """File of a cell's final weights, if they are kept."""
        return self.cells / f"{cell.name}.safetensors"

    def done(self, cell: Cell) -> bool:
        """Whether the cell has been run."""
        return self.path_of(cell).exists()

    def left(self, every: Sequence[Cell]) -> list[Cell]:
        """Cells that are to be run: not done, or done and no longer as they were."""
        damaged = set(damaged_files(self.path))
        return [cell for cell in every if not self.done(cell) or damaged & self._files_of(cell).keys()]

    def not_run(self) -> list[Cell]:
        """Cells of ``grid.yaml`` that have no result."""
        if not self.config.is_file():
            return []
        grid = read_config(self.experiment.Grid, self.config)
        return [cell for cell in cells(self.experiment, grid) if not self.done(cell)]

    def _files_of(self, cell: Cell) -> dict[str, Path]:
        files = (self.path_of(cell), self.weights_of(cell))
        return {path.relative_to(self.path).as_posix(): path for path in files}

    def record(self, cell: Cell) -> None:
        """Keep the checksums of a cell that is done."""
        own = {name: sha256_of(path) for name, path in self._files_of(cell).items() if path.is_file()}
        write_checksums(self.path, {**read_checksums(self.path), **own})

    def forget(self, forgotten: Sequence[Cell]) -> list[Path]:
        """Remove what there is of these cells; returns the files that had a checksum."""
        files = {name: path for cell in forgotten for name, path in self._files_of(cell).items()}
        checksums = read_checksums(self.path)
        known = [path for name, path in files.items() if checksums.pop(name, None) is not None]
        if known:
            write_checksums(self.path, checksums)
        for path in files.values():
            path.unlink(missing_ok=True)
        return known

    def write_results(self) -> list[Row]:
        """Write ``results.csv`` and, if a cell has such lines, ``epochs.csv``; returns the rows of the former."""
        rows = cell_rows(self.experiment, self.path)
        if rows:
            write_atomically(self.results, to_csv(rows))
        if earlier := cell_rows(self.experiment, self.path, self.experiment.rows_on_the_way):
            write_atomically(self.on_the_way, to_csv(earlier))
        return rows
