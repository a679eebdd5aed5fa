"""The grid of a sweep: which runs there are, which are done, and the numbers of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dual_attention._base.checksums import damaged_files, read_checksums, sha256_of, write_checksums
from dual_attention._base.files import write_atomically
from dual_attention._base.words import printable, suggestion

from ..training.config_data import differing
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
from .experiment import AnySwept
from .results import (
    CONFIG,
    LR,
    cell_files,
    cell_rows,
    check_provenance,
    columns_of_cell,
    differing_settings,
    digests,
    each_cell,
    rows_on_the_way,
    settings_of,
    sound_cells,
    to_csv,
    whole_cells,
)
from .table import Axis

if TYPE_CHECKING:
    from typing_extensions import Self

AT_THEIR_END: dict[str, Any] = {"eval_every": 0, "checkpoint_every": 0}
"""Options of loops that are not evaluated before their end and write no checkpoints, as those of cells."""

SETTINGS = ("data", "optim", "loop", "device", "precision")
"""Keys of a grid, if it has them, that must be equal for all cells in one folder."""


@dataclass(frozen=True)
class Cell:
    """One run of a grid: the values of its axes, in their order, its seed, and the learning rate of its arm."""

    values: tuple[tuple[str, Any], ...]
    seed: int
    name: str
    """Name of the cell's file, without its ending."""
    lr: float | None = None
    """Learning rate of the arm's own; None takes optim.lr."""

    @classmethod
    def of(cls, axes: Sequence[Axis], values: Mapping[str, Any], seed: int, lr: float | None = None) -> Cell:
        """The cell with these values of ``axes``."""
        pairs = tuple((axis.name, values[axis.name]) for axis in axes)
        name = "__".join([*(f"{axis.prefix}{values[axis.name]}" for axis in axes), f"seed{seed}"])
        return cls(pairs, seed, name, lr)

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
    lr_of: dict[str, float] | None = None
    """Learning rates of single arms, by their names; the others take optim.lr."""

    gone: ClassVar[Mapping[str, Any]] = {"lrs": None, "match": None, "match_to": None}
    """Keys of earlier versions, and the values that changed nothing."""
    presets: ClassVar[Mapping[str, Any]] = {}
    """The models that a grid may name."""

    @classmethod
    def with_presets(cls, more: Mapping[str, Any]) -> type[Self]:
        """This kind of grid, which may name further models."""
        same = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
        kind: Any = type(cls.__name__, (cls,), {**same, "presets": {**cls.presets, **more}})
        return kind

    def __post_init__(self) -> None:
        check(self.out == printable(self.out) != "", "out", "a text to print", self.out)
        check_integers(self, "", "seeds", most=10_000)
        check_integers(self, "", "workers", most=MOST_THREADS)
        check_seed(self, name="first_seed")
        rates = (self.lr_of or {}).values()
        check(all(0 < rate < inf for rate in rates), "lr_of", "positive numbers", self.lr_of)
        for name in ("continue_from", "stop_patience", "objective"):
            value = getattr(getattr(self, "loop", None), name, None)
            check(value is None, f"loop.{name}", "null in a grid", value)
        for about in fields(self):
            values = getattr(self, about.name)
            if isinstance(values, tuple):
                check(len(values) > 0, about.name, "a list that is not empty", values)
                if isinstance(values[0], int):
                    check(min(values) >= 1, about.name, "integers of at least 1", values)
        self._check_models()

    def _check_models(self) -> None:
        """Raise ``ValueError`` unless all models are presets, if a grid of this kind has any."""
        models = getattr(self, "models", ()) if self.presets else ()
        for name in (name for name in models if name not in self.presets):
            known = f"{', '.join(self.presets)} (others are of a study: --study FILE)"
            hint = suggestion(str(name), self.presets)
            raise ValueError(f"models: expected names among {known}, got {name!r}{hint}")

    @abstractmethod
    def points(self) -> list[dict[str, Any]]:
        """The points of one trial, each with a value for every axis of the experiment."""

    @abstractmethod
    def run_config(self, cell: Cell) -> RunConfig:
        """The configuration of a cell's run; its machine and output are set by :meth:`config`."""

    def common_keys(self, cell: Cell, **more: Any) -> dict[str, Any]:
        """Keys of a cell's run that it has from the seed, the presets and the groups of keys of a grid, and more."""
        own: Any = self
        return {"seed": cell.seed, "model": self.presets[cell["model"]], "optim": own.optim, "loop": own.loop, **more}

    def check_extends(self, older: Any) -> None:
        """Raise ``ValueError`` unless cells of this grid and of an older one may lie in one folder."""
        for name in SETTINGS:
            for key, before, now in differing(getattr(older, name, None), getattr(self, name, None), name):
                raise ValueError(
                    f"{key}: {self.out} holds cells run with {before}, got {now}; give another --out or the same "
                    "settings"
                )

    def origin(self) -> dict[str, Any]:
        """Digests, by their columns, of what the runs are made of beside their configuration, such as files."""
        return {}

    def config(self, cell: Cell) -> Any:
        """The complete configuration of a cell's run."""
        config: Any = self.run_config(cell)
        if cell.lr is not None:
            config = replace(config, optim=replace(config.optim, lr=cell.lr))
        machine: MachineConfig = replace(config.machine, device=self.device, threads=1)
        return replace(config, machine=machine, output=OutputConfig(name=cell.name, tensorboard=False, progress=False))


def crossed(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Every combination of values of some axes, those of the last one first."""
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def cells(experiment: AnySwept, grid: GridConfig) -> list[Cell]:
    """All cells, one trial of everything before the next trial: an unfinished grid is a complete smaller one.

    What the grid lists twice is one cell.

    Raises:
        ValueError: if a learning rate is of an arm that the grid has not.
    """
    points, arm, own = grid.points(), experiment.table.curve_axis.name, grid.lr_of or {}
    check_names("lr_of", own, list(dict.fromkeys(point[arm] for point in points)))
    seeds = range(grid.first_seed, grid.first_seed + grid.seeds)
    found = [Cell.of(experiment.table.axes, point, seed, own.get(point[arm])) for seed in seeds for point in points]
    return list(dict.fromkeys(found))


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
        self._refuse_other()
        if self.config.exists():
            old = read_config(type(grid), self.config)
            if cell_files(self.path):
                grid.check_extends(old)
                self._check_cells(grid)

    def _check_cells(self, grid: GridConfig) -> None:
        """Check that the cells in the folder, whichever grid asked for them, were run as those of this one will be.

        Cells that were damaged do not count: they are run again.
        """
        found, axes = sound_cells(self.path), self.experiment.table.axes
        rows = list(each_cell(found, lambda result: columns_of_cell(self.experiment, result)))
        settings = {
            tuple(row[axis.name] for axis in axes): (file, result[CONFIG])
            for row, (file, result) in zip(rows, found.items(), strict=True)
            if CONFIG in result
        }
        self._check_rates(grid, rows)
        planned = cells(self.experiment, grid)
        origin = {} if all(self.path_of(cell) in found for cell in planned) else grid.origin()
        made = []
        for cell in {cell.values: cell for cell in planned}.values():  # a trial of each point
            config = grid.config(replace(cell, lr=None))
            now, point = settings_of(config), tuple(value for _, value in cell.values)
            file, before = settings.get(point, (None, {}))
            for key, older, newer in differing_settings(before, now):  # the trials of a point have the same settings
                raise ValueError(
                    f"{key}: {file} was run with {older}, got {newer}; give another --out or the same settings"
                )
            told = digests(self.experiment.table, {CONFIG: now, **origin})
            run = {**dict(cell.values), "seed": cell.seed, **self.experiment.identity(config)}
            made.append({**run, **told})
        check_provenance(self.experiment, [*made, *rows], self.path)

    def _check_rates(self, grid: GridConfig, rows: Sequence[Row]) -> None:
        """Check that arms have the learning rates that they have in the folder."""
        arm, own = self.experiment.table.curve_axis.name, grid.lr_of or {}
        for name in dict.fromkeys(point[arm] for point in grid.points()):
            for before in {row.get(LR) for row in rows if row[arm] == name} - {own.get(name)}:
                raise ValueError(
                    f"lr_of: {self.path} holds cells of {name} run with {before or 'optim.lr'}, got "
                    f"{own.get(name) or 'optim.lr'}; give another --out or the same learning rates"
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
        damaged = {Path(name).stem for name in damaged_files(self.path)}
        return [cell for cell in every if cell.name in damaged or not self.done(cell)]

    def without_weights(self, every: Sequence[Cell]) -> list[Cell]:
        """Cells that are done and have no file of weights."""
        return [cell for cell in every if self.done(cell) and not self.weights_of(cell).exists()]

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
        found = whole_cells(self.path)
        rows, earlier = cell_rows(self.experiment, found), rows_on_the_way(self.experiment, found)
        for file, lines in ((self.results, rows), (self.on_the_way, earlier)):
            if lines:
                write_atomically(file, to_csv(lines))
        return rows
