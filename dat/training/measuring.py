"""Means over examples: running ones of training, those of an evaluation, and sizes of what flows through a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention.generation import evaluating

from .distributed import Workers
from .interrupt import Interrupted
from .placement import Placement
from .problem import Batch, Examples, LossFunction, Weigh
from .sharding_groups import blocks_of


class RunningMeans:
    """Means of scalars over examples, summed in float64 on the device."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, values: dict[str, Tensor], count: int) -> None:
        """Add means ``values`` over ``count`` examples."""
        self.add_sums({name: value.detach().double() * count for name, value in values.items()}, count)

    def add_sums(self, sums: dict[str, Tensor], count: int) -> None:
        """Add float64 sums over ``count`` examples."""
        for name, term in sums.items():
            self.sums[name] = self.sums[name] + term if name in self.sums else term
        self.count += count

    def means(self) -> dict[str, float]:
        """The means so far."""
        return {name: float(total) / self.count for name, total in self.sums.items()}

    def gathered(self, workers: Workers, count: int) -> RunningMeans:
        """Those of all processes, which have taken ``count`` examples and added numbers of the same names."""
        if workers.size == 1:
            return self
        names, found = list(self.sums), RunningMeans()
        sums = workers.sum(torch.stack([self.sums[name] for name in names]))
        found.add_sums(dict(zip(names, sums, strict=True)), count)
        return found


def never() -> bool:
    """The stop condition of a loop that nobody interrupts."""
    return False


def mean_measures(
    model: nn.Module,
    examples: Examples,
    loss: LossFunction,
    *,
    batch_size: int,
    weights: Mapping[str, Weigh] | None = None,
    stop: Callable[[], bool] = never,
    placement: Placement | None = None,
) -> dict[str, float]:
    """Mean loss and metrics of ``model`` over all ``examples`` in evaluation mode; its mode is left as it was.

    Args:
        weights: see :attr:`.problem.Problem.weights`; with them the means do not depend on ``batch_size``.
        stop: looked at before each batch; the same in all processes.
        placement: of the model in several processes, which take the batches in turn; None: whole in this one.

    Raises:
        Interrupted: if ``stop()`` became true.
    """
    placement = placement or Placement(model)
    workers, weights = placement.workers, weights or {}
    totals, counts = RunningMeans(), RunningMeans()
    batches = torch.arange(len(examples)).split(batch_size)
    with evaluating(model), placement.measuring():
        for first in range(0, len(batches), workers.size):
            if stop():
                raise Interrupted
            number = first + workers.rank
            indices = batches[min(number, len(batches) - 1)]  # at the end some only keep step with the others
            batch = examples.batch(indices)
            value, metrics = loss(model, batch)
            means = {name: mean.detach().double() for name, mean in {"loss": value, **metrics}.items()}
            n = value.new_tensor(len(indices), dtype=torch.float64)
            own = {name: weigh(batch).double() for name, weigh in weights.items()}
            taken = number < len(batches)
            count = {name: own.get(name.partition("/")[0], n) * taken for name in means}
            totals.add_sums({name: mean * count[name] for name, mean in means.items()}, 0)
            counts.add_sums(count, 0)
    totals, counts = (sums.gathered(workers, len(examples)).sums for sums in (totals, counts))
    return {name: float(total / counts[name]) for name, total in totals.items()}


def stream_sizes(model: nn.Module, batch: Batch, loss: LossFunction, placement: Placement) -> dict[str, float]:
    """Root mean square of the residual stream after each block, at its first call by the loss, in evaluation mode.

    Each process gives a batch of its own; what is returned is of all of them.
    """
    names = {block: f"rms_block_{number}" for number, block in enumerate(blocks_of(model))}
    squares: dict[str, Tensor] = {}

    def note(block: nn.Module, inputs: Any, output: Any) -> None:
        stream = output[0] if isinstance(output, tuple) else output
        squares.setdefault(names[block], stream.detach().double().square().mean())

    with ExitStack() as hooks, evaluating(model), placement.measuring():
        for block in names:
            hooks.enter_context(block.register_forward_hook(note))
        loss(model, batch)
    if not squares:
        return {}
    means = placement.workers.sum(torch.stack([*squares.values()])) / placement.workers.size
    return {name: float(mean.sqrt()) for name, mean in zip(squares, means, strict=True)}
