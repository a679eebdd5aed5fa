"""Configuration of a run on lengths, and of a grid of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch

from ...data.sequences import Sequences, argsort, linear_equation
from ...data.sequences.equations import VOCABULARY
from ...sweeps.grid import Cell, GridConfig
from ...training.configs import (
    MOST_EXAMPLES,
    MachineConfig,
    OutputConfig,
    StepLoopConfig,
    check,
    check_integers,
    check_names,
    check_seed,
)
from ..language.config import LanguageOptimConfig
from ..sequence_model import SequenceModelKeys
from .presets import ARMS, PRESETS

TaskName = Literal["argsort", "equation"]
TASK_NAMES: tuple[TaskName, ...] = get_args(TaskName)
LONGEST_LENGTH = 1024
SHORTEST = 2
"""The least length that is trained on."""
OBJECTS = 48
"""Objects that are sorted, and names of places."""


@dataclass(frozen=True)
class LengthSets:
    """Lengths that are measured: numbers of objects, or of constants in an equation."""

    lengths: tuple[int, ...] = (4, 6, 8, 10, 12, 14, 16, 20)
    """Lengths of the sequences of the numbers at the end."""
    n_val: int = 256
    """Validation sequences, of the lengths trained on."""
    n_test: int = 500
    """Sequences of each length."""

    def __post_init__(self) -> None:
        expected = f"different lengths from 2 to {LONGEST_LENGTH:,}, ascending"
        fits = self.lengths and min(self.lengths) >= 2 and max(self.lengths) <= LONGEST_LENGTH
        check(bool(fits) and list(self.lengths) == sorted({*self.lengths}), "data.lengths", expected, self.lengths)
        check_integers(self, "data", "n_val", "n_test", most=MOST_EXAMPLES)


@dataclass(frozen=True)
class LengthDataConfig(LengthSets):
    """The sequences of a run; every step of training has sequences of its own."""

    longest: int = 10
    """Longest length that is trained on; all from 2 to this are, equally often."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "data", "longest", least=2, most=LONGEST_LENGTH)


def length_optim() -> LanguageOptimConfig:
    """AdamW with a cosine, as for language models, at a higher rate."""
    return LanguageOptimConfig(lr=4e-3)


def default_loop() -> StepLoopConfig:
    """Long enough to sort: two minutes."""
    return StepLoopConfig(
        steps=1000, batch_size=64, eval_batch_size=250, report_every=0, eval_every=100, checkpoint_every=100
    )


@dataclass(frozen=True)
class LengthConfig:
    """One run: train a causal model on short sequences of one task, and measure it on longer ones."""

    experiment: Literal["length"] = "length"
    """Experiment of the run."""
    seed: int = 0
    """Seed of the run; initial weights and sequences derive from it."""
    task: TaskName = "argsort"
    """Task: sort objects by an order that is to be learned, or solve a linear equation."""
    data: LengthDataConfig = field(default_factory=LengthDataConfig)
    """Sequences."""
    model: SequenceModelKeys = field(default_factory=lambda: PRESETS["DAT-symbolic"])
    """Model; --preset NAME fills these keys."""
    optim: LanguageOptimConfig = field(default_factory=length_optim)
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=default_loop)
    """Length of training in steps, evaluation and checkpoints."""
    machine: MachineConfig = field(default_factory=MachineConfig)
    """Device and threads."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    def __post_init__(self) -> None:
        check_seed(self)
        for name, longest in (("longest", self.data.longest), ("lengths", max(self.data.lengths))):
            possible = self.task != "argsort" or longest <= OBJECTS
            check(possible, f"data.{name}", f"at most {OBJECTS}, all objects", longest)
        self.model.check_length(self.length)

    @property
    def vocab_size(self) -> int:
        """Tokens that there are."""
        return 2 * OBJECTS + 2 if self.task == "argsort" else VOCABULARY

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        return self._tokens(max(self.data.longest, *self.data.lengths))

    @property
    def trained_length(self) -> int:
        """Tokens of a sequence that is trained on."""
        return self._tokens(self.data.longest)

    def _tokens(self, length: int) -> int:
        return 3 * length if self.task == "argsort" else length + 3

    @property
    def sizes(self) -> dict[str, int]:
        """Sequences of the evaluation sets; those of a length have it as their name."""
        return {"val": self.data.n_val, **{str(length): self.data.n_test for length in self.data.lengths}}

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"{self.task}-to-{self.data.longest}-{self.model.name}-seed{self.seed}"


def draw_lengths(task: TaskName, n: int, shortest: int, longest: int, seed: int) -> Sequences:
    """Draw n sequences of a task, of lengths between two; they depend on the arguments only."""
    generator = torch.Generator().manual_seed(seed)
    if task == "equation":
        return linear_equation(n, shortest=shortest, longest=longest, generator=generator)
    return argsort(n, shortest=shortest, longest=longest, objects=OBJECTS, places=OBJECTS, generator=generator)


@dataclass(frozen=True)
class LengthGrid(GridConfig):
    """Every model on every task, from several seeds."""

    out: str = "runs/reproduce-length"
    seeds: int = 2
    tasks: tuple[TaskName, ...] = TASK_NAMES
    """Tasks."""
    longest: tuple[int, ...] = (10,)
    """Longest lengths that are trained on."""
    models: tuple[str, ...] = ARMS
    """Models, by the names of presets."""
    data: LengthSets = field(default_factory=LengthSets)
    """Sequences."""
    optim: LanguageOptimConfig = field(default_factory=length_optim)
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=lambda: replace(default_loop(), eval_every=0, checkpoint_every=0))
    """Length of training. Cells are not evaluated before their end and write no checkpoints."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("tasks", self.tasks, TASK_NAMES)
        check_names("models", self.models, PRESETS)
        low, high = 2, LONGEST_LENGTH
        check(low <= min(self.longest) and max(self.longest) <= high, "longest", f"{low} to {high:,}", self.longest)

    def points(self) -> list[dict[str, Any]]:
        return [
            {"task": task, "longest": longest, "model": model}
            for task in self.tasks
            for longest in self.longest
            for model in self.models
        ]

    def run_config(self, cell: Cell) -> LengthConfig:
        data = LengthDataConfig(longest=cell["longest"], **vars(self.data))
        model = PRESETS[cell["model"]]
        return LengthConfig(seed=cell.seed, task=cell["task"], data=data, model=model, optim=self.optim, loop=self.loop)
