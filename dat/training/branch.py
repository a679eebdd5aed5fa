"""Runs that go on from a checkpoint of another run: with other steps, or another learning rate, on the same data."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from math import isclose
from typing import Any, TypeVar

import torch

from .average import AVERAGE, DECAY
from .config_data import differing
from .config_io import read_config
from .configs import OptimConfig, RunConfig, check
from .optim import learning_rate
from .plan import Plan
from .run_folder import RunFolder

KEY = "loop.continue_from"
FREE = ("experiment", "optim", "loop", "machine", "output")
"""Keys of a configuration in which a run may differ from the one that it goes on from."""

Config = TypeVar("Config", bound=RunConfig)


def resolved(kind: type, config: Config) -> tuple[Config, RunFolder | None]:
    """A configuration with the whole path of the checkpoint that it goes on from, and the run that this is of.

    Args:
        kind: dataclass of the configuration.

    Raises:
        FileNotFoundError: if there is no such run or checkpoint.
        ValueError: naming the first key in which the run is of other data, another model or another seed.
    """
    given = config.loop.continue_from
    if given is None:
        return config, None
    try:
        run, checkpoint = RunFolder.at(given)
        folder = run.open(run.path)
        folder.check_beginning()
        checkpoint = checkpoint or folder.checkpoints.latest()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{KEY}: {error}") from error
    if checkpoint is None:
        raise FileNotFoundError(f"{KEY}: {given} has no checkpoint")
    source = read_config(kind, folder.config)
    for key, before, now in differing(source, config, free=FREE):
        check(False, key, f"{before!r}, that of the run in {KEY}", now)
    size, ours = source.loop.batch_size, config.loop.batch_size
    check(size == ours, "loop.batch_size", f"{size}, that of the run in {KEY}", ours)
    loop = replace(config.loop, continue_from=str(checkpoint.resolve()))
    return replace(config, loop=loop), folder  # pyright: ignore[reportArgumentType]


def rate_jump(state: Mapping[str, Any], config: OptimConfig, plan: Plan) -> str | None:
    """Sentence on a learning rate that does not go on where it was, as after the end of a schedule; None if it does.

    Args:
        state: of a checkpoint of another run, from which one with this configuration and plan goes on.
    """
    group, step = state["optimizer"]["param_groups"][0], state["step"]
    before = group["lr"] / group.get("lr_scale", 1.0)
    expected, now = (learning_rate(config, at, plan.total_steps) for at in (step - 1, step))
    if step == 0 or isclose(before, expected, rel_tol=0.02, abs_tol=0.002 * config.lr):
        return None
    return f"{KEY}: the learning rate jumps from {before:.3g} in step {step:,} there to {now:.3g} in step {step + 1:,}"


def rebase(state: dict[str, Any], plan: Plan, optimizer: torch.optim.Optimizer) -> None:
    """Make the state of a checkpoint of another run that of the beginning of this one, which is to be checked.

    An average of the weights is dropped unless this run has one. Running means of steps begin here; those of an epoch
    go on. What was watched is kept: it is of the steps that this run has taken.
    """
    state.update(metrics=None, measured=[])
    if plan.unit != "epoch" and type(state.get("step")) is int:
        state.update(epoch=plan.spans_until(state["step"]), sums={}, count=0)
    if not any(DECAY in group for group in optimizer.param_groups):
        with suppress(AttributeError, KeyError, TypeError):  # what is no state of an optimiser the check says
            for entry in state["optimizer"]["state"].values():
                entry.pop(AVERAGE, None)
