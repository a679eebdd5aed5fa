"""An experiment: everything that training and the command line ask about its runs, and nothing that experiments share.

One whose runs are also swept and compared is a :class:`~dat.sweeps.experiment.SweptExperiment`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dual_attention._words import listed, suggestion

from .configs import RunConfig, StepLoopConfig
from .loop import Trainer
from .problem import Problem
from .tables import numbers_table


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


class Experiment(ABC, Generic[Config, Ready]):
    """One experiment. A subclass gives a configuration, :meth:`prepare` and the description of its results."""

    source: str = ""  # FILE.py:CLASS of one in a file of the user's, which is its name in configurations
    name: ClassVar[str]  # on the command line and in configurations
    title: ClassVar[str]  # in prose
    about_train: ClassVar[str]  # descriptions of the commands
    about_data: ClassVar[str] = ""
    Config: ClassVar[type]  # dataclass of a run's configuration
    Sheet: ClassVar[type | None] = None  # of `dat data`: a picture or a file, made by its method draw; None: none
    presets: ClassVar[Mapping[str, Any]] = {}  # named values of the group of keys `model`

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "loss")  # of each evaluation set; sweeps show the first
    shares: ClassVar[tuple[str, ...]] = ("accuracy",)  # metrics that tables show in percent
    set_title: ClassVar[str] = "data"  # heading of the evaluation sets in tables
    set_names: ClassVar[Mapping[str, str]] = {}  # their names there
    cached: ClassVar[tuple[str, ...]] = ()  # folders that runs share, beside theirs; see `prepare`
    counted: ClassVar[str] = "examples"  # what an evaluation set is counted in
    run_curves: ClassVar[tuple[str, str]] = ("loss", "accuracy")  # the metrics of a run's plot

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

    @abstractmethod
    def headline(self, result: Mapping[str, Any]) -> str:
        """One line that says what was trained, from the numbers of a run."""

    def preset(self, name: str) -> Any:
        """The preset of that name; ``ValueError`` naming the known ones, if there is none."""
        if name not in self.presets:
            raise ValueError(
                f"preset: expected one of {listed(list(self.presets))}, got {name!r}{suggestion(name, self.presets)}"
            )
        return self.presets[name]

    def preset_config(self, name: str) -> Any:
        """The default run with the preset of that name."""
        return replace(self.Config(), model=self.preset(name))

    def identity(self, config: Config) -> dict[str, Any]:
        """Values of a configuration that tell its run apart, beside the seed."""
        return {}

    def chance_accuracy(self, config: Config) -> float | None:
        """The accuracy that guessing reaches; None where there is no accuracy."""
        return None

    def notices(self, config: Config) -> list[str]:
        """Settings that a user may not have meant, in words; shown before training."""
        warmup, loop = config.optim.warmup_steps, config.loop
        if isinstance(loop, StepLoopConfig) and warmup >= loop.steps:
            return [
                f"the warm-up of {warmup:,} steps (optim.warmup_steps) is not shorter than the training of "
                f"{loop.steps:,} (loop.steps): the learning rate rises to its very end"
            ]
        return []

    def summary(self, config: Config, prepared: Ready, trainer: Trainer, final: Mapping[str, float]) -> dict[str, Any]:
        """The numbers of a finished run: what was trained, how well, how large, how fast.

        Args:
            final: means over each evaluation set, ``{"<set>_<metric>": mean}``.
        """
        problem, loop = prepared.problem, config.loop
        steps = isinstance(loop, StepLoopConfig)
        examples = trainer.step * loop.batch_size if steps else loop.epochs * len(problem.train)
        measured = [
            {"epochs": row["epoch"], "steps": row["step"], **self.by_metric(problem, row)} for row in trainer.measured
        ]
        return {
            **self.identity(config),
            "seed": config.seed,
            "parameters": count_parameters(problem.model),
            **self.by_metric(problem, final),
            **({"measured": measured} if measured else {}),
            "steps": trainer.step,
            "seconds": round(trainer.seconds, 3),
            "examples_per_second": round(examples / max(trainer.seconds, 1e-9), 1),
            "device": prepared.device.type,
            "threads": torch.get_num_threads(),
        }

    def by_metric(self, problem: Problem, means: Mapping[str, float]) -> dict[str, Any]:
        """Means over each evaluation set, ``{"<set>_<metric>": mean}``, as ``{metric: {set: mean}}``."""
        return {metric: {name: means[f"{name}_{metric}"] for name in problem.evaluation} for metric in self.metrics}

    def evaluation(self, prepared: Ready, name: str, means: dict[str, float]) -> dict[str, Any]:
        """Numbers of the evaluation set ``name``, from the means over it."""
        return {**means, self.counted: len(prepared.problem.evaluation[name])}

    def describe(self, result: Mapping[str, Any], numbers: Mapping[str, Mapping[str, Any]] | None = None) -> Any:
        """Text or rich table of a ``result``, or of ``numbers`` of :meth:`evaluation` by set, if they are given."""
        if numbers is None:
            known = [metric for metric in self.metrics if metric in result]
            numbers = {name: {m: result[m][name] for m in known} for name in result[self.metrics[0]]}
        sized = all(self.counted in values for values in numbers.values())
        shown = tuple(metric for metric in self.metrics if all(metric in values for values in numbers.values()))
        columns = (*shown, self.counted) if sized else shown
        named = {self.set_names.get(name, name): values for name, values in numbers.items()}
        return numbers_table(self.headline(result), self.set_title, columns, named, self.shares)

    def speed(self, result: Mapping[str, Any]) -> str:
        """Speed of a run in words."""
        return f"{result['examples_per_second']:,.0f} {self.counted} a second"

    def hint(self, run: Path) -> str:
        """A further line about a finished run, such as a command to go on with; empty if there is none."""
        return ""


AnyExperiment: TypeAlias = Experiment[Any, Any]


def count_parameters(model: nn.Module) -> int:
    """Number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


_DRAWN = (Tensor.normal_, Tensor.uniform_)
_ELEMENTWISE = (Tensor.neg, Tensor.div, Tensor.__rpow__, Tensor.cos, Tensor.sin)


class _Undrawn(TorchFunctionMode):
    """Tensors without values, made without the functions that PyTorch has only in Python for them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.randn, torch.rand):
            return torch.empty(*args, **kwargs)
        if func is torch.arange:
            return torch.arange(*args, **{**kwargs, "device": "cpu"}).to("meta")
        if func is torch.outer:
            return torch.empty(len(args[0]), len(args[1]))
        if func in _ELEMENTWISE and not any(isinstance(argument, Tensor) for argument in args[1:]):
            return torch.empty(args[0].shape, dtype=args[0].dtype)
        if func in _DRAWN:
            return args[0]
        if getattr(func, "__module__", None) == nn.init.__name__:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


@contextmanager
def without_values() -> Iterator[None]:
    """Context in which modules are made on the meta device, to be counted; random generators are left as they are.

    Their weights are not drawn: on the meta device PyTorch does that by Python code, which takes seconds to import.
    """
    with torch.random.fork_rng(devices=[]), torch.device("meta"), _Undrawn():
        yield
