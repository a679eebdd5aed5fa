"""The plan of a training: the examples of each step, and the steps after which to report, evaluate and save.

A plan divides the steps into spans, epochs or stretches of steps; a row is logged at the end of each.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import torch
from torch import Tensor

from .checkpoint import step_of
from .configs import LoopConfig, RunConfig, StepLoopConfig, check
from .problem import Problem
from .seeding import epoch_order


class Plan(ABC):
    """Steps of a training, divided into spans; both count from 0.

    Args:
        loop: its configuration.
        ends: for each span, the steps that are done after it.
        done: for each span, the epochs or steps that are done after it, by which evaluations and checkpoints are due.

    Attributes:
        unit: name of a span, in rows and names of checkpoints.
        spans, total_steps: how many there are.
        milestones: steps after which a checkpoint is written that is kept.
        micro_batch_size: examples in one forward and backward pass, of those of a step; None takes all at once.
    """

    unit: str
    micro_batch_size: int | None = None
    milestones: Set[int] = frozenset()

    def __init__(self, loop: LoopConfig | StepLoopConfig, ends: Sequence[int], done: Sequence[int]) -> None:
        self.loop, self.spans, self.total_steps = loop, len(ends), ends[-1]
        self._ends, self._done = ends, done

    def spans_until(self, step: int) -> int:
        """Number of spans that end by a step."""
        return bisect_right(self._ends, step)

    def first_step(self, span: int) -> int:
        """The first step of a span."""
        return 0 if span == 0 else self._ends[span - 1]

    @abstractmethod
    def batches(self, span: int) -> Sequence[Tensor]:
        """For each step of a span, the indices of its examples, 1-D int64 on the CPU."""

    def evaluates(self, span: int) -> bool:
        """Whether the watched sets are evaluated after the span."""
        return self._due(span, self.loop.eval_every)

    def measures(self, span: int) -> bool:
        """Whether all sets are measured after the span."""
        return False

    def saves(self, span: int) -> bool:
        """Whether a checkpoint is written after the span."""
        return self._due(span, self.loop.checkpoint_every) or self._ends[span] in self.milestones

    def _due(self, span: int, every: int) -> bool:
        """Whether something that happens every so often, and at last, happens now; never, if ``every`` is 0."""
        return bool(every) and (self._done[span] % every == 0 or span == self.spans - 1)


class EpochPlan(Plan):
    """Passes through n examples, each in an order of its own that the seed decides."""

    unit = "epoch"

    def __init__(self, loop: LoopConfig, n: int, seed: int) -> None:
        steps, epochs = -(-n // loop.batch_size), range(1, loop.epochs + 1)
        super().__init__(loop, [epoch * steps for epoch in epochs], epochs)
        self.n, self.seed, self._measure_at = n, seed, loop.measure_at

    def batches(self, span: int) -> Sequence[Tensor]:
        return epoch_order(self.n, self.seed, span).split(self.loop.batch_size)

    def measures(self, span: int) -> bool:
        return span + 1 in self._measure_at


class StepPlan(Plan):
    """A number of steps through an endless stream of examples: step s takes the next ``batch_size`` of them.

    The examples decide what the stream holds and in which order; their indices grow without end. Where training goes
    on from another run's checkpoint, a span ends there, and so does one at each milestone.
    """

    unit = "report"

    def __init__(self, loop: StepLoopConfig, per_step: Mapping[str, float] | None = None) -> None:
        intervals = (loop.report_every, loop.eval_every, loop.checkpoint_every)
        ends = {end for every in intervals if every for end in range(every, loop.steps, every)}
        milestones, per_step = loop.steps_of("milestones", 1), per_step or {}
        for unit in ("tokens", "words"):
            if values := getattr(loop, key := f"milestone_{unit}"):
                check(unit in per_step, f"loop.{key}", f"none in an experiment without {unit}", values)
                milestones |= loop.steps_of(key, per_step[unit])
        self.milestones = milestones
        start = start_of(loop.continue_from)
        steps = sorted({end for end in ends | milestones if end > start} | {start, loop.steps} - {0})
        super().__init__(loop, steps, steps)
        self.micro_batch_size = loop.micro_batch_size

    def batches(self, span: int) -> Sequence[Tensor]:
        size = self.loop.batch_size
        return torch.arange(self.first_step(span) * size, self._ends[span] * size).split(size)


def make_plan(config: RunConfig, problem: Problem) -> Plan:
    """The plan of a configuration for the examples of a problem.

    Raises:
        ValueError: naming the key, if training would end where it begins, a milestone is past the end, the learning
            rate falls for longer than it can, or there is no set whose loss could end it early.
    """
    loop, optim = config.loop, config.optim
    steps = isinstance(loop, StepLoopConfig)
    plan = StepPlan(loop, problem.per_step) if steps else EpochPlan(loop, len(problem.train), config.seed)
    patient = loop.stop_patience is not None and not problem.watched
    check(not patient, "loop.stop_patience", "null without a validation set", loop.stop_patience)
    start, total, warmup = start_of(loop.continue_from), plan.total_steps, min(optim.warmup_steps, plan.total_steps)
    key = "loop.steps" if plan.unit == "report" else "loop.epochs"
    expected = f"more than the {start:,} steps of the checkpoint in loop.continue_from"
    check(total > start, key, expected, f"{total:,} steps")
    expected = f"at most {total - warmup:,}, the steps after the warm-up"
    check((optim.decay_steps or 0) <= total - warmup, "optim.decay_steps", expected, optim.decay_steps)
    return plan


def start_of(checkpoint: str | None) -> int:
    """Steps that were done at the checkpoint where training goes on; 0 without one."""
    step = 0 if checkpoint is None else step_of(Path(checkpoint))
    check(step is not None, "loop.continue_from", "RUN/checkpoints/NAME", checkpoint)
    return step or 0
