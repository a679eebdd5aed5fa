"""The grid of the learning curves: which runs there are, which are done, and what each one gave."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..._files import read_json, write_atomically
from ...training.config_io import commented_yaml, read_config
from ...training.configs import LoopConfig, MachineConfig, OptimConfig, OutputConfig, check
from .config import TASK_NAMES, DataConfig, RelationalGamesConfig, Task
from .presets import COMPARISON, PRESETS, preset
from .problem import TEST_SETS

SIZES = tuple(range(250, 2501, 250))
MATCH_PATTERN_SIZES = tuple(range(5000, 25001, 2500))

Row = dict[str, Any]


@dataclass(frozen=True)
class GridData:
    """Images of every cell."""

    n_val: int = 1000
    """Validation images (pentominoes); measured once, after training."""
    n_test: int = 10000
    """Test images (pentominoes)."""
    n_heldout: int = 5000
    """Images of each held-out object set, in generated data."""
    official_folder: str | None = None
    """Folder with the official npz files; null generates the images."""


@dataclass(frozen=True)
class GridConfig:
    """Learning curves: every model on every task at every training-set size, from several seeds."""

    out: str = "runs/reproduce-relational-games"
    """Folder of the grid. Cells found done there are skipped, so the same command continues an interrupted grid and a
    longer list extends a finished one."""
    tasks: tuple[Task, ...] = TASK_NAMES
    """Tasks."""
    sizes: tuple[int, ...] = SIZES
    """Training-set sizes, except for match_pattern."""
    match_pattern_sizes: tuple[int, ...] = MATCH_PATTERN_SIZES
    """Training-set sizes for match_pattern."""
    models: tuple[str, ...] = COMPARISON
    """Models, by the names of presets."""
    seeds: int = 5
    """Trials of each point; their seeds are first_seed, first_seed + 1 and so on."""
    first_seed: int = 0
    """Seed of the first trial."""
    workers: int | None = None
    """Processes that train at the same time, one CPU thread each; null takes one for each core."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of every worker."""
    keep_weights: bool = False
    """Keep the final weights of every cell beside its result, 1.7 MB each."""
    data: GridData = field(default_factory=GridData)
    """Images."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimiser."""
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(eval_every=0, checkpoint_every=0))
    """Length of training and batch sizes. Cells are not evaluated before their end and write no checkpoints."""

    def __post_init__(self) -> None:
        for name in ("tasks", "models", "sizes", "match_pattern_sizes"):
            check(len(getattr(self, name)) > 0, name, "a list that is not empty", getattr(self, name))
        for name in self.models:
            check(name in PRESETS, "models", f"names among {', '.join(PRESETS)}", name)
        for name in ("sizes", "match_pattern_sizes"):
            check(min(getattr(self, name)) >= 1, name, "integers of at least 1", getattr(self, name))
        check(self.seeds >= 1, "seeds", "an integer of at least 1", self.seeds)
        check(self.workers is None or self.workers >= 1, "workers", "an integer of at least 1 or null", self.workers)


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    task: Task
    model: str
    n_train: int
    seed: int

    @property
    def name(self) -> str:
        """Name of the cell's file, without its ending."""
        return f"{self.task}__{self.model}__n{self.n_train}__seed{self.seed}"

    def config(self, grid: GridConfig) -> RelationalGamesConfig:
        """The complete configuration of the cell's run."""
        return RelationalGamesConfig(
            task=self.task,
            seed=self.seed,
            data=DataConfig(n_train=self.n_train, **asdict(grid.data)),
            model=preset(self.model),
            optim=grid.optim,
            loop=grid.loop,
            machine=MachineConfig(device=grid.device, threads=1),
            output=OutputConfig(name=self.name, tensorboard=False, progress=False),
        )

    def steps(self, grid: GridConfig) -> int:
        """Optimiser steps of the run."""
        return grid.loop.epochs * -(-self.n_train // grid.loop.batch_size)


def sizes_of(grid: GridConfig, task: str) -> tuple[int, ...]:
    """Training-set sizes of ``task``."""
    return grid.match_pattern_sizes if task == "match_pattern" else grid.sizes


def cells(grid: GridConfig) -> list[Cell]:
    """All cells, one trial of everything before the next trial: an unfinished grid is a complete smaller one."""
    seeds = range(grid.first_seed, grid.first_seed + grid.seeds)
    return [
        Cell(task, model, n_train, seed)
        for seed in seeds
        for task in grid.tasks
        for n_train in sizes_of(grid, task)
        for model in grid.models
    ]


class GridFolder:
    """Files of a grid: ``grid.yaml``, ``cells/*.json``, ``results.csv``, ``comparison.md`` and ``figures/``."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "grid.yaml"
        self.results = self.path / "results.csv"
        self.comparison = self.path / "comparison.md"
        self.cells = self.path / "cells"
        self.figures = self.path / "figures"

    def open(self, grid: GridConfig) -> None:
        """Make the folder, or check that the cells in it were run with the same settings.

        Raises:
            ValueError: if they were run with other settings of data, optimiser or loop.
            FileExistsError: if there is something else at the path.
        """
        if self.config.exists():
            old = read_config(GridConfig, self.config)
            for name in ("data", "optim", "loop", "device"):
                if getattr(old, name) != getattr(grid, name):
                    raise ValueError(
                        f"{name}: {self.path} holds cells run with {getattr(old, name)}, received "
                        f"{getattr(grid, name)}; give another --out or the same settings"
                    )
        elif self.path.exists() and any(self.path.iterdir()):
            raise FileExistsError(f"{self.path}: there already and no folder of a grid; give another --out")
        self.cells.mkdir(parents=True, exist_ok=True)
        self.figures.mkdir(exist_ok=True)
        write_atomically(self.config, commented_yaml(replace(grid, out=str(self.path))))

    def path_of(self, cell: Cell) -> Path:
        """File of a cell's result."""
        return self.cells / f"{cell.name}.json"

    def weights_of(self, cell: Cell) -> Path:
        """File of a cell's final weights, if they are kept."""
        return self.cells / f"{cell.name}.safetensors"

    def done(self, cell: Cell) -> bool:
        """Whether the cell has been run."""
        return self.path_of(cell).exists()

    def rows(self) -> list[Row]:
        """Results of all cells in the folder, whichever grid asked for them."""
        return [flat(read_json(path)) for path in sorted(self.cells.glob("*.json"))]

    def write_results(self) -> list[Row]:
        """Write ``results.csv`` from the cells; returns its rows."""
        rows = self.rows()
        if rows:
            write_atomically(self.results, to_csv(rows))
        return rows


def flat(result: dict[str, Any]) -> Row:
    """One line of results.csv from the result of a cell; accuracies in percent."""
    row = {key: result[key] for key in ("task", "model", "n_train", "seed", "parameters")}
    accuracy = result["accuracy"]
    row.update({name: round(100 * accuracy[name], 3) for name in (*TEST_SETS, "val") if name in accuracy})
    row.update({key: result[key] for key in ("steps", "seconds")})
    return row


def to_csv(rows: list[Row]) -> str:
    """``rows`` as CSV text, with the columns of all of them."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_results(path: Path) -> list[Row]:
    """Rows of a results.csv; numbers as numbers."""
    with open(path, newline="", encoding="utf-8") as file:
        return [
            {key: value if key in ("task", "model") else float(value) for key, value in row.items() if value != ""}
            for row in csv.DictReader(file)
        ]
