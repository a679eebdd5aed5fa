"""Callbacks: objects of the user's own, or trackers, that are told how training goes and change none of its numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from .._own_code import class_named, what_failed
from .._terminal import tell
from .checkpoint import random_state, restore_random_state
from .configs import OutputConfig, RunConfig
from .metrics import Row

KEY = "output.callbacks"


@dataclass
class RunView:
    """A run, as callbacks see it.

    Attributes:
        folder: of the run.
        config: of the run.
        total_steps: at its end.
        step: steps that are done.
        means: gives the means of loss and metrics since the last row, for which it waits for the device.
        model: to look at, and to call; None where processes share its weights.
    """

    folder: Path
    config: RunConfig
    total_steps: int = 0
    step: int = 0
    means: Callable[[], dict[str, float]] = dict
    model: Any = None


class Callback:
    """An observer of a training, in the first process; a subclass is made without arguments.

    Draws of random numbers and the mode of the model are as before afterwards, so training has the numbers that it has
    without. One that raises an error is left out from then on, and training goes on.
    """

    rows_only: ClassVar[bool] = False  # on_step is only for steps after which there is a row

    def on_step(self, run: RunView, row: Row | None) -> None:
        """After each step of the optimiser; ``row`` is that of ``metrics.jsonl``, if one was written after the step."""

    def on_evaluation(self, run: RunView, row: Row) -> None:
        """After each evaluation during training, with its row. The model has the average of its weights, if any."""

    def on_end(self, run: RunView, numbers: Mapping[str, float] | None) -> None:
        """At the end, with the means over the evaluation sets; None if training stops before, to be resumed perhaps."""


class Callbacks:
    """The callbacks of a run, which are called here and nowhere else.

    Args:
        named: each with its name for people.
        view: what they are given.
    """

    def __init__(self, named: Sequence[tuple[str, Callback]], view: RunView) -> None:
        self._named, self.view = [*named], view

    def __bool__(self) -> bool:
        return bool(self._named)

    def call(self, method: str, argument: Any) -> None:
        """Call a method of each.

        Raises:
            ValueError: naming one that has changed weights, with which the run is no longer what it was.
        """
        for entry in [*self._named]:
            name, callback = entry
            if callback.rows_only and method == "on_step" and argument is None:
                continue
            before = self._state()
            try:
                getattr(callback, method)(self.view, argument)
            except (Exception, SystemExit) as error:
                self._named.remove(entry)
                said = what_failed(error, callback)
                tell(f"{name} failed in {method} ({said}); training goes on without it")
            self._restore(before, name)

    def _state(self) -> tuple[Any, bool, list[int]]:
        model = self.view.model
        if model is None:
            return random_state(torch.device("cpu")), False, []
        parameters = [*model.parameters()]
        versions = [parameter._version for parameter in parameters]
        return random_state(parameters[0].device), model.training, versions

    def _restore(self, state: tuple[Any, bool, list[int]], name: str) -> None:
        model, (generators, training, versions) = self.view.model, state
        device = torch.device("cpu") if model is None else next(model.parameters()).device
        restore_random_state(generators, device)
        if model is None:
            return
        if model.training != training:
            model.train(training)
        if [parameter._version for parameter in model.parameters()] != versions:
            raise ValueError(f"{KEY}: {name}: expected a callback that leaves the weights as they are")


def callbacks_of(output: OutputConfig, *, source: object = None) -> list[tuple[str, type[Any]]]:
    """The classes of the callbacks that a configuration names, each with its name.

    Args:
        source: the run folder, if the configuration is from there.

    Raises:
        ValueError: naming the key, if there is no such class, or the user has not named it.
    """
    return [(name, class_named(name, Callback, KEY, source=source)) for name in output.callbacks]


def made(kinds: Sequence[tuple[str, type[Any]]]) -> list[tuple[str, Callback]]:
    """The callbacks of their classes; ``ValueError`` naming one that cannot be made."""
    found = []
    for name, kind in kinds:
        try:
            found.append((name, kind()))
        except Exception as error:
            raise ValueError(f"{KEY}: {name}: {what_failed(error, kind)}") from error
    return found
