"""Configuration of a run on recall, and of a grid of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...sweeps.grid import Cell, GridConfig
from ...training.configs import (
    MOST_EXAMPLES,
    MOST_STEPS,
    MachineConfig,
    OutputConfig,
    StepLoopConfig,
    check,
    check_integers,
    check_names,
    check_seed,
)
from ..language.config import LanguageOptimConfig
from ..model_keys import LONGEST
from ..sequence_model import SequenceModelKeys
from .presets import ARMS, PRESETS
from .tasks import TASK_NAMES, TASKS, TaskName, draw_task

LARGEST_SIZE = 4096
"""Of a task."""
_OF_CELLS = ", which the cells of the folder were run with"


@dataclass(frozen=True)
class RecallSets:
    """Sequences that are measured."""

    n_val: int = 256
    """Validation sequences, looked at during training."""
    n_test: int = 2000
    """Sequences of the numbers at the end."""

    def __post_init__(self) -> None:
        check_integers(self, "data", "n_val", "n_test", most=MOST_EXAMPLES)


@dataclass(frozen=True)
class RecallDataConfig(RecallSets):
    """The sequences of a run; every step of training has sequences of its own."""

    size: int = 16
    """Size of the task: tokens of the longest repeated part, pairs, letters to remember, bits or permutations."""
    vocab_size: int | None = None
    """Tokens that there are, where the task leaves it open; null takes 64, for selective copying 10."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "data", "size", most=LARGEST_SIZE)
        check_integers(self, "data", "vocab_size", most=LONGEST)


def recall_optim() -> LanguageOptimConfig:
    """AdamW with a cosine, as for language models, at a lower rate."""
    return LanguageOptimConfig(lr=1e-3)


def default_loop() -> StepLoopConfig:
    """Long enough for in-context copying: a minute."""
    return StepLoopConfig(
        steps=600, batch_size=64, eval_batch_size=256, report_every=0, eval_every=20, checkpoint_every=100
    )


@dataclass(frozen=True)
class RecallConfig:
    """One run: train a causal model on one task, and watch when it learns it and where its heads look."""

    experiment: Literal["recall"] = "recall"
    """Experiment of the run."""
    seed: int = 0
    """Seed of the run; initial weights and sequences derive from it."""
    task: TaskName = "in-context-copying"
    """Task: copy what repeats, recall a key's value (mqar), copy scattered letters, or track parity or a product of
    permutations of three or five things (s3, s5)."""
    data: RecallDataConfig = field(default_factory=RecallDataConfig)
    """Sequences."""
    model: SequenceModelKeys = field(default_factory=lambda: PRESETS["DAT-symbolic"])
    """Model; --preset NAME fills these keys."""
    optim: LanguageOptimConfig = field(default_factory=recall_optim)
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=default_loop)
    """Length of training in steps, evaluation and checkpoints."""
    machine: MachineConfig = field(default_factory=MachineConfig)
    """Device and threads."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    def __post_init__(self) -> None:
        check_seed(self)
        task, asked = TASKS[self.task], self.data.vocab_size
        check(self.data.size >= task.least, "data.size", f"at least {task.least}", self.data.size)
        fits = not task.fixed or asked in (None, task.vocab_size)
        check(fits, "data.vocab_size", f"null or {task.vocab_size}, those of {self.task}", asked)
        self.model.check_length(self.length)
        try:
            draw_task(self.task, 1, self.data.size, self.vocab_size, seed=0)
        except ValueError as error:
            raise ValueError(f"data.size, data.vocab_size: {error}") from None

    @property
    def vocab_size(self) -> int:
        """Tokens that there are."""
        return self.data.vocab_size or TASKS[self.task].vocab_size

    @property
    def length(self) -> int:
        """Tokens of a sequence."""
        return TASKS[self.task].length(self.data.size)

    @property
    def trained_length(self) -> int:
        """Tokens of a sequence."""
        return self.length

    @property
    def sizes(self) -> dict[str, int]:
        """Sequences of the evaluation sets."""
        return {"val": self.data.n_val, "test": self.data.n_test}

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"{self.task}-{self.data.size}-{self.model.name}-seed{self.seed}"


def grid_loop() -> StepLoopConfig:
    """Batches of the cells of a grid."""
    return StepLoopConfig(batch_size=64, eval_batch_size=256, report_every=0, eval_every=0, checkpoint_every=0)


@dataclass(frozen=True)
class RecallGrid(GridConfig):
    """Every model on every task at its sizes, from several seeds."""

    out: str = "runs/reproduce-recall"
    seeds: int = 2
    tasks: tuple[str, ...] = ("mqar-2", "s3-8")
    """Tasks with their sizes, TASK-SIZE."""
    steps: tuple[int, ...] = (500,)
    """Steps of training on each of the tasks, in their order; one number is that of all."""
    evaluations: int = 20
    """Evaluations on the validation set in the course of a run, evenly spaced: how exactly it is known when a task is
    learned."""
    models: tuple[str, ...] = ARMS
    """Models, by the names of presets."""
    data: RecallSets = field(default_factory=RecallSets)
    """Sequences."""
    optim: LanguageOptimConfig = field(default_factory=recall_optim)
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=grid_loop)
    """Batch sizes. Cells write no checkpoints; loop.steps and loop.eval_every are not used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("models", self.models, PRESETS)
        for text in self.tasks:
            parsed(text)
        n, given = len(self.tasks), len(self.steps)
        check(given in (1, n), "steps", f"one number, or {n}, one for each of the tasks", self.steps)
        check(max(self.steps) <= MOST_STEPS, "steps", f"integers of at most {MOST_STEPS:,}", self.steps)
        most = min(self.steps)
        check(1 <= self.evaluations <= most, "evaluations", f"an integer from 1 to {most:,} (steps)", self.evaluations)

    def check_extends(self, older: Any) -> None:
        super().check_extends(older)
        check(self.evaluations == older.evaluations, "evaluations", f"{older.evaluations}{_OF_CELLS}", self.evaluations)
        for task in [task for task in self.tasks if task in older.tasks]:
            expected = f"{older.steps_of(task)} for {task}{_OF_CELLS}"
            check(self.steps_of(task) == older.steps_of(task), "steps", expected, self.steps_of(task))

    def steps_of(self, text: str) -> int:
        """Steps of training on one of the tasks."""
        repeated = self.steps * (len(self.tasks) // len(self.steps))
        return dict(zip(self.tasks, repeated, strict=True))[text]

    def points(self) -> list[dict[str, Any]]:
        settings = [parsed(text) for text in self.tasks]
        return [{"task": task, "size": size, "model": model} for task, size in settings for model in self.models]

    def run_config(self, cell: Cell) -> RecallConfig:
        steps = self.steps_of(f"{cell['task']}-{cell['size']}")
        return RecallConfig(
            seed=cell.seed,
            task=cell["task"],
            data=RecallDataConfig(size=cell["size"], **vars(self.data)),
            model=PRESETS[cell["model"]],
            optim=self.optim,
            loop=replace(self.loop, steps=steps, eval_every=steps // self.evaluations),
        )


def parsed(text: str) -> tuple[TaskName, int]:
    """Task and size of ``TASK-SIZE``; ``ValueError`` if it is none."""
    name, _, size = text.rpartition("-")
    known = name in TASKS and size.isascii() and size.isdigit() and 1 <= int(size) <= LARGEST_SIZE
    check(known, "tasks", f"TASK-SIZE, TASK one of {', '.join(TASK_NAMES)}, such as mqar-8", text)
    return next(task for task in TASK_NAMES if task == name), int(size)
