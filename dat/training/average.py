"""The exponential moving average of the weights, kept in the state of the optimiser beside its own means.

So it is saved, sharded, checked and resumed as they are. Training does not see it: evaluations exchange it with the
weights, and exchange them back.

Math: after step t, average <- b average + (1 - b) weights with b = min(decay, (1 + t) / (10 + t)), so that the initial
weights are soon forgotten; the average of a parameter begins as what its first step made of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .sharding import local

AVERAGE = "average"
"""Entry of the state of a parameter."""
DECAY = "average_decay"
"""Setting of a group of parameters of which there is an average."""


@torch.no_grad()
def update_average(optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Take the weights after step number ``steps``, from 1, into the average, if there is one."""
    for group in optimizer.param_groups:
        if DECAY not in group:
            continue
        averages: list[Tensor] = []
        weights: list[Tensor] = []
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)  # none before its first gradient: it is its own average
            if state is None:
                continue
            if AVERAGE not in state:
                state[AVERAGE] = parameter.detach().clone()
            else:
                averages.append(local(state[AVERAGE]))
                weights.append(local(parameter.detach()))
        if averages:
            decay = min(group[DECAY], (1 + steps) / (10 + steps))
            torch._foreach_lerp_(averages, weights, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]


@torch.no_grad()
def exchange_average(optimizer: torch.optim.Optimizer) -> None:
    """Exchange the weights and their average, where there is one; one tensor at a time is there twice."""
    for parameter, state in optimizer.state.items():
        if AVERAGE in state:
            weights, average = local(parameter.detach()), local(state[AVERAGE])
            before = weights.clone()
            weights.copy_(average)
            average.copy_(before)


@contextmanager
def averaged(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Context in which the model has the average of its weights, if there is one; afterwards the very weights again."""
    exchange_average(optimizer)
    try:
        yield
    finally:
        exchange_average(optimizer)
