"""Objectives of the user's own: what training learns in place of the loss of the experiment.

Evaluations keep the loss of the experiment, so that runs of different objectives compare, and a trained run is opened
without the code of its objective. Parameters of an objective are trained, averaged, saved and resumed with those of the
model, under the names ``objective.*`` of its state dict, and are left out of the final weights.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .._own_code import class_named, what_failed
from .config_data import build, typed
from .configs import ParallelMachineConfig, RunConfig, check
from .problem import Problem
from .seeding import derive_seed
from .sharding import local, placed

KEY = "loop.objective"
ATTRIBUTE = "objective"
PREFIX = f"{ATTRIBUTE}."
"""Beginning of the names of an objective's own tensors in the state dict of a model."""


class Objective(ABC):
    """An objective of a training. A subclass is made anew in each process, without arguments unless it is a dataclass.

    The fields of a dataclass are its options, ``loop.objective_options``. All that changes during training belongs
    into the tensors of :meth:`begin`, parameters or buffers: nothing else is saved.
    """

    def begin(self, model: Any, device: torch.device) -> nn.Module | None:
        """Make what it needs, on the CPU, before training, and after a stop; the generator is seeded by the run's seed.

        Args:
            model: that is trained; if processes share it, it has no values yet.
            device: of the batches.

        Returns:
            The module with its parameters, which it keeps and calls; None: it has none.
        """
        return None

    @abstractmethod
    def __call__(self, model: Any, *inputs: Tensor, **arguments: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss of a batch and further numbers, means over its examples.

        Args:
            model: that is trained, to be called in any way.
            inputs: of language models, tokens and targets ``(B, N)``, int64; the target of a token is the next one.
            arguments: of the model with these inputs. Of language models with ``data.document_mask``: ``segments``
                and, if positions go on, ``positions``.

        Returns:
            A scalar with its graph, and scalars by name, the same names each time; they become ``train_<name>``.
        """


class Taught(nn.Module):
    """A model and the objective that it is trained by, as one module whose output is the loss.

    Args:
        model: which has the parameters of the objective, too.
        name: of the objective, for errors.
    """

    def __init__(self, model: nn.Module, objective: Objective, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name
        self.objective = objective
        self._names: set[str] | None = None

    def forward(self, *inputs: Tensor, **arguments: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """As :meth:`Objective.__call__`, checked.

        Raises:
            TypeError, ValueError: naming the objective, if it returned something else.
        """
        returned = self.objective(self.model, *inputs, **arguments)
        if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping)):
            raise TypeError(f"{KEY}: {self.name}: expected a loss and a mapping of numbers, got {_described(returned)}")
        loss, numbers = returned
        fits = isinstance(loss, Tensor) and loss.dim() == 0 and loss.is_floating_point()
        if not fits:
            raise ValueError(f"{KEY}: {self.name}: expected a scalar loss, got {_described(loss)}")
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise ValueError(f"{KEY}: {self.name}: expected a loss that depends on parameters, got one without a graph")
        for name, number in numbers.items():
            plain = isinstance(number, Tensor) and number.dim() == 0 and isinstance(name, str) and name != "loss"
            if not plain:
                expected = "numbers that are scalar tensors, by names other than loss"
                raise ValueError(f"{KEY}: {self.name}: expected {expected}, got {name!r}: {_described(number)}")
        if self._names is None:
            self._names = {*numbers}
        if self._names != {*numbers}:
            expected = f"the numbers {', '.join(sorted(self._names)) or 'none'} in each batch"
            raise ValueError(f"{KEY}: {self.name}: expected {expected}, got {', '.join(sorted(numbers)) or 'none'}")
        return loss, {name: number.detach() for name, number in numbers.items()}


def with_objective(problem: Problem, config: RunConfig, device: torch.device, *, source: object = None) -> Problem:
    """A problem that is trained by the objective of a configuration, if it names one.

    Args:
        source: the run folder, if the configuration is from there.

    Raises:
        ValueError: naming the key, if there is no such objective, its options are not its own, or the problem is for
            no other than its loss.
    """
    name, options = config.loop.objective, config.loop.objective_options
    if name is None:
        return problem
    check(problem.own_loss is not None, KEY, "null in this experiment", name)
    check(not hasattr(problem.model, ATTRIBUTE), KEY, "a model without an objective", name)
    machine = config.machine
    sharing = machine.context_parallel if isinstance(machine, ParallelMachineConfig) else 1
    check(sharing == 1, KEY, "null with machine.context_parallel", name)
    objective = _make(class_named(name, Objective, KEY, source=source), name, options or {})
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(derive_seed(config.seed, "objective"))
        try:
            own = objective.begin(problem.model, device)
        except Exception as error:
            raise ValueError(f"{KEY}: {name}: {what_failed(error, objective)}") from error
    if own is not None and not isinstance(own, nn.Module):
        raise TypeError(f"{KEY}: {name}: expected begin to return a module or None, got {_described(own)}")
    draw = problem.draw
    if own is not None:
        if draw is None:
            own.to(device)
        else:
            values = {key: tensor.detach().clone() for key, tensor in own.state_dict().items()}
            own.to("meta")
            draw = _filled(problem.model, draw, own, values)
        problem.model.add_module(ATTRIBUTE, own)
    return replace(problem, taught=Taught(problem.model, objective, name), draw=draw)


def try_objective(problem: Problem) -> None:
    """Compute the loss of one example by the objective of a problem, if it has one, which raises its errors.

    A model without values is left alone.
    """
    if problem.taught is None or problem.draw is not None:
        return
    devices = {parameter.device for parameter in problem.model.parameters() if parameter.is_cuda}
    own = getattr(problem.model, ATTRIBUTE, nn.Module())
    before = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    with torch.random.fork_rng(devices=devices):
        try:
            problem.step_loss(problem.taught, problem.train.batch(torch.zeros(1, dtype=torch.int64)))
        except Exception as error:
            if str(error).startswith(KEY):
                raise
            raise ValueError(f"{KEY}: {problem.taught.name}: {what_failed(error, problem.taught.objective)}") from error
    own.load_state_dict(before)  # it may count batches


def without_objective(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a state dict without those of an objective."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIX)}


def _make(kind: type[Any], name: str, options: Mapping[str, Any]) -> Objective:
    key = f"{KEY}_options"
    if not is_dataclass(kind):
        check(not options, key, f"null, since {name} is no dataclass and has none", dict(options))
        return kind()
    values = typed(kind, options, f"{key}.")
    try:
        return build(kind, values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key}: {error}") from error


def _filled(
    model: nn.Module, draw: Callable[[], None], own: nn.Module, values: Mapping[str, Tensor]
) -> Callable[[], None]:
    """A function that draws the values of a model, and gives those of its objective, which each process has whole."""

    @torch.no_grad()
    def fill() -> None:
        delattr(model, ATTRIBUTE)  # the model draws for all that it has
        draw()
        model.add_module(ATTRIBUTE, own)
        for name, tensor in own.state_dict(keep_vars=True).items():
            local(tensor.detach()).copy_(local(placed(values[name].to(tensor.device), tensor)))

    return fill


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)}".removeprefix("torch.")
    return type(value).__name__
