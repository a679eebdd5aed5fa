"""The plan of a training: the examples of each step, and the steps after which to report, evaluate and save.

A plan divides the steps into spans, epochs or stretches of steps; a row is logged at the end of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from .configs import LoopConfig, StepLoopConfig
from .seeding import epoch_order


class Plan(Protocol):
    """Steps of a training, divided into spans; both count from 0.

    Attributes:
        unit: name of a span, in rows and names of checkpoints.
        spans, total_steps: how many there are.
        micro_batch_size: examples in one forward and backward pass, of those of a step; None takes all at once.
    """

    @property
    def unit(self) -> str: ...
    @property
    def spans(self) -> int: ...
    @property
    def total_steps(self) -> int: ...
    @property
    def micro_batch_size(self) -> int | None: ...

    def first_step(self, span: int) -> int:
        """The first step of a span."""
        ...

    def batches(self, span: int) -> Sequence[Tensor]:
        """For each step of a span, the indices of its examples, 1-D int64 on the CPU."""
        ...

    def evaluates(self, span: int) -> bool:
        """Whether the watched sets are evaluated after the span."""
        ...

    def saves(self, span: int) -> bool:
        """Whether a checkpoint is written after the span."""
        ...


class EpochPlan:
    """Passes through n examples, each in an order of its own that the seed decides."""

    unit = "epoch"
    micro_batch_size = None

    def __init__(self, loop: LoopConfig, n: int, seed: int) -> None:
        self.loop, self.n, self.seed = loop, n, seed
        self.spans = loop.epochs
        self.steps_per_epoch = -(-n // loop.batch_size)
        self.total_steps = loop.epochs * self.steps_per_epoch

    def first_step(self, span: int) -> int:
        return span * self.steps_per_epoch

    def batches(self, span: int) -> Sequence[Tensor]:
        return epoch_order(self.n, self.seed, span).split(self.loop.batch_size)

    def evaluates(self, span: int) -> bool:
        return due(span + 1, self.loop.eval_every, last=self.spans)

    def saves(self, span: int) -> bool:
        return due(span + 1, self.loop.checkpoint_every, last=self.spans)


class StepPlan:
    """A number of steps through an endless stream of examples: step s takes the next ``batch_size`` of them.

    The examples decide what the stream holds and in which order; their indices grow without end.
    """

    unit = "report"

    def __init__(self, loop: StepLoopConfig) -> None:
        self.loop = loop
        self.total_steps = loop.steps
        self.micro_batch_size = loop.micro_batch_size
        intervals = (loop.report_every, loop.eval_every, loop.checkpoint_every)
        ends = {end for every in intervals if every for end in range(every, loop.steps, every)}
        self._ends = sorted(ends | {loop.steps})
        self.spans = len(self._ends)

    def first_step(self, span: int) -> int:
        return 0 if span == 0 else self._ends[span - 1]

    def batches(self, span: int) -> Sequence[Tensor]:
        size = self.loop.batch_size
        return torch.arange(self.first_step(span) * size, self._ends[span] * size).split(size)

    def evaluates(self, span: int) -> bool:
        return due(self._ends[span], self.loop.eval_every, last=self.total_steps)

    def saves(self, span: int) -> bool:
        return due(self._ends[span], self.loop.checkpoint_every, last=self.total_steps)


def due(done: int, every: int, *, last: int) -> bool:
    """Whether something that happens every so often, and at last, happens now; never, if ``every`` is 0."""
    return bool(every) and (done % every == 0 or done == last)


def make_plan(loop: LoopConfig | StepLoopConfig, n: int, seed: int) -> Plan:
    """The plan of a configuration for ``n`` examples."""
    return StepPlan(loop) if isinstance(loop, StepLoopConfig) else EpochPlan(loop, n, seed)
