"""An experiment: everything that training, sweeps and the command line ask about it, and nothing that they share."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import torch
from torch import nn

from .configs import LoopConfig, MachineConfig, OptimConfig, OutputConfig, StepLoopConfig
from .loop import Trainer
from .metrics import Row
from .problem import Problem
from .tables import numbers_table


class RunConfig(Protocol):
    """Keys of every run's configuration, ``experiment`` first; an experiment's own is a frozen dataclass with more.

    ``experiment`` is the name of the experiment, ``run_name`` that of the run folder.
    """

    @property
    def experiment(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def optim(self) -> OptimConfig: ...
    @property
    def loop(self) -> LoopConfig | StepLoopConfig: ...
    @property
    def machine(self) -> MachineConfig: ...
    @property
    def output(self) -> OutputConfig: ...
    @property
    def run_name(self) -> str: ...


@dataclass(frozen=True)
class Prepared:
    """A run ready to train: the problem, and the device that its model is on."""

    problem: Problem
    device: torch.device

    def write(self, folder: Path) -> None:
        """Write what the run folder holds beside its configuration before training begins."""

    def arithmetic(self) -> AbstractContextManager[Any]:
        """Context in which the run computes."""
        return nullcontext()


Config = TypeVar("Config", bound=RunConfig)
Ready = TypeVar("Ready", bound=Prepared)


@dataclass(frozen=True)
class Axis:
    """A column of results that says, with the other axes and the seed, which run a row belongs to."""

    name: str  # of the column
    key: str  # dotted key of a run's configuration that holds the value
    title: str  # in figures
    plural: str  # of its values
    number: bool = False  # whether the values are integers; they are texts otherwise
    prefix: str = ""  # before the value in names of cells
    order: tuple[str, ...] = ()  # of the values in tables and figures; others follow, sorted
    labels: Mapping[str, str] = field(default_factory=dict)  # of values, in tables and figures

    def label(self, value: str) -> str:
        """Text of a value in tables and figures."""
        return self.labels.get(value, value)

    def ordered(self, rows: Sequence[Row]) -> list[Any]:
        """Values that occur in ``rows``, in order."""
        order = self.order
        values = {row[self.name] for row in rows}
        return sorted(values, key=lambda value: (order.index(value) if value in order else len(order), value))


@dataclass(frozen=True)
class CurvesFigure:
    """A figure of curves: its file, its title, and the measures that are its rows of panels."""

    file: str
    title: str
    measures: tuple[str, ...]


class Experiment(ABC, Generic[Config, Ready]):
    """One experiment. A subclass gives a configuration, :meth:`prepare` and the description of its results."""

    name: ClassVar[str]  # on the command line and in configurations
    title: ClassVar[str]  # in prose
    about_train: ClassVar[str]  # descriptions of the commands
    about_reproduce: ClassVar[str] = ""
    about_plot: ClassVar[str] = ""
    about_data: ClassVar[str] = ""
    Config: ClassVar[type]  # dataclass of a run's configuration
    Grid: ClassVar[type | None] = None  # that of a sweep, a dual_attention.sweeps.grid.GridConfig; None: no sweeps
    Sheet: ClassVar[type | None] = None  # that of a picture of the data, with a method draw; None: no picture
    presets: ClassVar[Mapping[str, Any]] = {}  # named values of the group of keys `model`
    shipped: ClassVar[Mapping[str, Any]] = {}  # configurations that come with the repository, by their path

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "loss")  # of each evaluation set; sweeps show the first
    set_title: ClassVar[str] = "data"  # heading of the evaluation sets in tables
    set_names: ClassVar[Mapping[str, str]] = {}  # their names there
    counted: ClassVar[str] = "examples"  # what an evaluation set is counted in
    run_curves: ClassVar[tuple[str, str]] = ("loss", "accuracy")  # the metrics of a run's plot

    axes: ClassVar[tuple[Axis, ...]] = ()  # what identifies a run: (panels of a figure,) curves, horizontal axis
    measures: ClassVar[Mapping[str, str]] = {}  # columns of results that are compared, and their titles; see `row`
    scale: ClassVar[float] = 1.0  # factor of the measures
    unit: ClassVar[str] = ""  # their unit
    y_title: ClassVar[str] = ""  # the vertical axis of figures
    log_scale: ClassVar[bool] = False  # its scale
    chance: ClassVar[float | None] = None  # the level that guessing reaches
    caption: ClassVar[str] = ""  # of the table of results
    colours: ClassVar[Mapping[str, str]] = {}  # of curves, by the value of their axis
    figures: ClassVar[tuple[CurvesFigure, ...]] = ()  # drawn from the results of a sweep
    compares: ClassVar[bool] = False  # whether there are published numbers

    # ---- one run

    @abstractmethod
    def prepare(self, config: Config, *, cache: Path, run: Path | None = None) -> Ready:
        """Model, data and loss of a run, on its device.

        Args:
            cache: folder for files that runs share, the one that holds the run folders.
            run: the run folder, if it exists already: what is kept there takes the place of what would be made anew.
        """

    @abstractmethod
    def empty_model(self, config: Config) -> nn.Module:
        """The model of a run on the meta device; random generators are left as they are."""

    def preset(self, name: str) -> Any:
        """The preset of that name; ``ValueError`` naming the known ones, if there is none."""
        if name not in self.presets:
            raise ValueError(f"preset: expected one of {', '.join(self.presets)}; got {name!r}")
        return self.presets[name]

    def identity(self, config: Config) -> dict[str, Any]:
        """The values of the axes in a configuration."""
        return {axis.name: reduce(getattr, axis.key.split("."), config) for axis in self.axes}

    @abstractmethod
    def headline(self, result: Mapping[str, Any]) -> str:
        """One line that says what was trained, from the numbers of a run."""

    def summary(self, config: Config, prepared: Ready, trainer: Trainer, final: Mapping[str, float]) -> dict[str, Any]:
        """The numbers of a finished run: what was trained, how well, how large, how fast.

        Args:
            final: means over each evaluation set, ``{"<set>_<metric>": mean}``.
        """
        problem, loop = trainer.problem, trainer.loop
        steps = isinstance(loop, StepLoopConfig)
        examples = trainer.step * loop.batch_size if steps else loop.epochs * len(problem.train)
        return {
            **self.identity(config),
            "seed": config.seed,
            "parameters": count_parameters(problem.model),
            **{metric: {name: final[f"{name}_{metric}"] for name in problem.evaluation} for metric in self.metrics},
            "steps": trainer.step,
            "seconds": round(trainer.seconds, 3),
            "examples_per_second": round(examples / max(trainer.seconds, 1e-9), 1),
            "device": trainer.device.type,
            "threads": torch.get_num_threads(),
        }

    def evaluation(self, prepared: Ready, name: str, means: dict[str, float]) -> dict[str, Any]:
        """Numbers of the evaluation set ``name``, from the means over it."""
        return {**means, self.counted: len(prepared.problem.evaluation[name])}

    def describe(self, result: Mapping[str, Any], numbers: Mapping[str, Mapping[str, Any]] | None = None) -> Any:
        """Text or rich table of a ``result``, or of ``numbers`` of :meth:`evaluation` by set, if they are given."""
        if numbers is None:
            numbers = {name: {m: result[m][name] for m in self.metrics} for name in result[self.metrics[0]]}
        sized = all(self.counted in values for values in numbers.values())
        columns = (*self.metrics, self.counted) if sized else self.metrics
        named = {self.set_names.get(name, name): values for name, values in numbers.items()}
        return numbers_table(self.headline(result), self.set_title, columns, named)

    def speed(self, result: Mapping[str, Any]) -> str:
        """Speed of a run in words."""
        return f"{result['examples_per_second']:,.0f} {self.counted} a second"

    def hint(self, run: Path) -> str:
        """A further line about a finished run, such as a command to go on with; empty if there is none."""
        return ""

    # ---- sweeps

    def row(self, result: Mapping[str, Any]) -> Row:
        """A line of a table of results from the numbers of one run; here its measures are named as evaluation sets."""
        row: Row = {key: result[key] for key in (*(axis.name for axis in self.axes), "seed", "parameters")}
        values = result[self.metrics[0]]
        names = [*(name for name in self.measures if name in values), *(n for n in values if n not in self.measures)]
        row.update({name: round(self.scale * values[name], 3) for name in names})
        return {**row, "steps": result["steps"], "seconds": result["seconds"]}

    def describe_run(self, row: Row) -> str:
        """The run of a line of results, in words."""
        return f"{', '.join(f'{axis.name} {row[axis.name]}' for axis in self.axes)}, seed {row['seed']}"

    def work(self, config: Config) -> float:
        """Examples that a run trains on; those that it evaluates may be added, as a third of one each."""
        loop = config.loop
        return loop.steps * loop.batch_size if isinstance(loop, StepLoopConfig) else loop.epochs

    def timing_problem(self, config: Config) -> Problem:
        """A problem on which the steps of a run are timed: as costly a step, but quick to prepare."""
        with tempfile.TemporaryDirectory() as folder:
            return self.prepare(config, cache=Path(folder)).problem

    def published(self, measure: str, panel: str, curve: str) -> Sequence[tuple[float, float]]:
        """Points (horizontal axis, measure) of a published curve, sorted; empty if there is none."""
        return []

    def extra_figures(self) -> Mapping[str, Callable[[Sequence[Row], Path], None]]:
        """Further figures: names of files, and functions that draw the rows into a file, or nothing."""
        return {}


AnyExperiment: TypeAlias = Experiment[Any, Any]


def count_parameters(model: nn.Module) -> int:
    """Number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())
