"""An experiment: everything that training and the command line ask about its runs, and nothing that experiments share.

One whose runs are also swept and compared is a :class:`~dat.sweeps.experiment.SweptExperiment`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_buffer_registration_hook
from torch.overrides import TorchFunctionMode

from dual_attention._base.files import write_json

from .configs import RunConfig, StepLoopConfig, value_named
from .loop import Trainer
from .problem import Problem
from .tables import RunTable, numbers_table

ORIGIN = "data.json"
"""File of a run folder that says which data it began with."""


@dataclass(frozen=True)
class Prepared:
    """A run ready to train.

    Attributes:
        problem: what is trained, and on what.
        device: that the model is on.
        chance: the accuracy that guessing reaches.
        about: what was read of the data and what of it is not used, in lines for people.
        origin: what identifies the data, as JSON, for :data:`ORIGIN`; None where they follow from the configuration.
    """

    problem: Problem
    device: torch.device
    chance: float | None = field(default=None, kw_only=True)
    about: str = field(default="", kw_only=True)
    origin: dict[str, Any] | None = field(default=None, kw_only=True)

    def write_files(self, folder: Path) -> None:
        """Write what the run folder holds beside its configuration before training begins."""
        if self.origin is not None:
            write_json(folder / ORIGIN, self.origin)

    def arithmetic(self) -> AbstractContextManager[Any]:
        """Context in which the run computes."""
        return nullcontext()


Config = TypeVar("Config", bound=RunConfig)
Ready = TypeVar("Ready", bound=Prepared)


class Experiment(ABC, Generic[Config, Ready]):
    """One experiment. A subclass gives a configuration, :meth:`prepare` and the table of its results."""

    source: str = ""  # FILE.py:CLASS of one in a file of the user's, which is its name in configurations
    name: ClassVar[str]  # on the command line and in configurations
    title: ClassVar[str]  # in prose
    about: ClassVar[Mapping[str, str]] = {}  # descriptions of its commands: train, reproduce and data
    Config: ClassVar[type]  # dataclass of a run's configuration
    Sheet: ClassVar[type | None] = None  # of `dat data`: a picture or a file, made by its method draw; None: none
    presets: ClassVar[Mapping[str, Any]] = {}  # named values of the group of keys `model`
    table: ClassVar[RunTable] = RunTable()  # what the numbers of its runs are called

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

    def model_of_run(self, config: Config, run: Path) -> nn.Module:
        """The same of a run that is there already; its folder may know what its data no longer say."""
        return self.empty_model(config)

    @abstractmethod
    def headline(self, result: Mapping[str, Any]) -> str:
        """One line that says what was trained, from the numbers of a run."""

    def export(self, config: Config, model: nn.Module, folder: Path, **saving: Any) -> None:
        """Write a trained model into a folder for transformers.

        Args:
            saving: arguments of ``save_pretrained``.

        Raises:
            ValueError: if transformers has no class for such a model.
        """
        raise ValueError(f"{self.name}: expected a model that transformers has a class for, got {type(model).__name__}")

    def preset_config(self, name: str) -> Any:
        """The default run with the preset of that name; ``ValueError`` naming the known ones, if there is none."""
        return replace(self.Config(), model=value_named("preset", self.presets, name))

    def online(self, config: Config) -> Mapping[str, str]:
        """The data of a run that may be on the network, by the keys that name them."""
        return {}

    def identity(self, config: Config) -> dict[str, Any]:
        """Values of a configuration that tell its run apart, beside the seed."""
        return {}

    def summary(self, config: Config, prepared: Ready, trainer: Trainer, final: Mapping[str, float]) -> dict[str, Any]:
        """The numbers of a finished run: what was trained, how well, how large, how fast.

        Args:
            final: means over each evaluation set, ``{"<set>_<metric>": mean}``.
        """
        problem, loop, metrics = prepared.problem, config.loop, self.table.metrics
        steps = isinstance(loop, StepLoopConfig)
        examples = trainer.step * loop.batch_size if steps else trainer.epoch * len(problem.train)
        measured = []
        for row in trainer.measured:
            numbers = {name: numbers_of_set(problem, name, row) for name in problem.evaluation}
            measured.append({"epochs": row["epoch"], "steps": row["step"], **by_metric(metrics, numbers)})
        ends = {name: self.evaluation(prepared, name, final) for name in problem.evaluation}
        return {
            **self.identity(config),
            "seed": config.seed,
            "parameters": count_parameters(problem.model),
            **by_metric(metrics, ends),
            **({"measured": measured} if measured else {}),
            **({"best": trainer.best, "ended_early": trainer.ended_early} if trainer.best is not None else {}),
            "steps": trainer.step,
            "seconds": round(trainer.seconds, 3),
            "examples_per_second": round(examples / max(trainer.seconds, 1e-9), 1),
            "device": prepared.device.type,
            "threads": torch.get_num_threads(),
        }

    def evaluation(self, prepared: Ready, name: str, means: Mapping[str, float]) -> dict[str, Any]:
        """Numbers of the evaluation set ``name`` at the end, from means ``{"<set>_<metric>": mean}``."""
        numbers = numbers_of_set(prepared.problem, name, means)
        known = {metric: numbers[metric] for metric in self.table.metrics if metric in numbers}
        return {**known, self.table.counted: len(prepared.problem.evaluation[name])}

    def describe(self, result: Mapping[str, Any], numbers: Mapping[str, Mapping[str, Any]] | None = None) -> Any:
        """Text or rich table of a ``result``, or of ``numbers`` of :meth:`evaluation` by set, if they are given.

        A checkpoint of an unfinished run has numbers, and an empty result.
        """
        table = self.table
        if numbers is None:
            known = [metric for metric in table.metrics if metric in result]
            numbers = {name: {m: result[m][name] for m in known} for name in result[table.metrics[0]]}
        columns = (*table.metrics, table.counted)
        shown = [column for column in columns if all(column in values for values in numbers.values())]
        named = {table.set_names.get(name, name): values for name, values in numbers.items()}
        return numbers_table(self.headline(result) if result else "", table.set_title, shown, named, table.shares)


AnyExperiment: TypeAlias = Experiment[Any, Any]


def numbers_of_set(problem: Problem, name: str, means: Mapping[str, float]) -> dict[str, Any]:
    """Means over an evaluation set, and what follows from them, from ``{"<set>_<metric>": mean}`` of several."""
    found = {**means, **problem.derive(means)}
    return {key.removeprefix(f"{name}_"): value for key, value in found.items() if key.startswith(f"{name}_")}


def by_metric(metrics: Sequence[str], numbers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Numbers of evaluation sets as ``{metric: {set: number}}``, of those metrics that all sets have."""
    known = [metric for metric in metrics if all(metric in values for values in numbers.values())]
    return {metric: {name: values[metric] for name, values in numbers.items()} for metric in known}


def count_parameters(model: nn.Module) -> int:
    """Number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


LONGEST_TABLE = 1 << 17
"""Positions up to which tables are computed for models without values; longer ones are worth PyTorch's slow import."""


class _Undrawn(TorchFunctionMode):
    """Weights without values, made without the functions that PyTorch has only in Python for them.

    Tables of positions, which begin with ``torch.arange``, are computed on the CPU until they are registered.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.randn, torch.rand):
            return torch.empty(*args, **kwargs)
        if func is torch.arange:
            places = torch.arange(*args, **{**kwargs, "device": "cpu"})
            return places if len(places) <= LONGEST_TABLE else places.to("meta")
        if func in (Tensor.normal_, Tensor.uniform_):
            return args[0]
        if getattr(func, "__module__", None) == nn.init.__name__:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


@contextmanager
def without_values() -> Iterator[None]:
    """Context in which modules are made on the meta device, to be counted; random generators are left as they are.

    Their weights are not drawn: on the meta device PyTorch does that by Python code, which takes seconds to import.
    """
    hook = register_module_buffer_registration_hook(_without_its_values)
    with hook, torch.random.fork_rng(devices=[]), torch.device("meta"), _Undrawn():
        yield


def _without_its_values(module: nn.Module, name: str, buffer: Tensor | None) -> Any:  # torch types it as None
    return None if buffer is None else buffer.to("meta")
