"""Configurations of runs on sequence tasks, and of grids of them: at one size, or by length."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from ...sweeps.grid import Cell, GridConfig, crossed
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
from ...training.problem import Batch
from ..language.config import LanguageOptimConfig
from ..model_keys import LONGEST
from .model import SequenceModelKeys
from .presets import LENGTH_ARMS, PRESETS, RECALL_ARMS
from .tasks import LENGTH_TASKS, OBJECTS, RECALL_TASKS, TASKS, LengthName, RecallName, draw_task

LARGEST_SIZE = 4096
LONGEST_LENGTH = 1024
SHORTEST = 2
"""Shortest length that is trained on."""
_OF_CELLS = ", which the cells of the folder were run with"


def adamw(lr: float) -> LanguageOptimConfig:
    """AdamW with a cosine, as for language models."""
    return LanguageOptimConfig(lr=lr)


def in_batches(steps: int, eval_batch_size: int, eval_every: int, checkpoint_every: int = 100) -> StepLoopConfig:
    """A loop of batches of 64 that reports nothing in between."""
    return StepLoopConfig(
        steps=steps,
        batch_size=64,
        eval_batch_size=eval_batch_size,
        report_every=0,
        eval_every=eval_every,
        checkpoint_every=checkpoint_every,
    )


@dataclass(frozen=True, kw_only=True)
class SequencesConfig(ABC):
    """One run: train a causal model on one task."""

    experiment: str
    """Experiment of the run."""
    seed: int = 0
    """Seed of the run; initial weights and sequences derive from it."""
    task: str
    data: Any
    """Sequences."""
    model: SequenceModelKeys = field(default_factory=lambda: PRESETS["DAT-symbolic"])
    """Model; --preset NAME fills these keys."""
    optim: LanguageOptimConfig
    """Optimiser."""
    loop: StepLoopConfig
    """Length of training in steps, evaluation and checkpoints."""
    machine: MachineConfig = field(default_factory=MachineConfig)
    """Device and threads."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    @property
    @abstractmethod
    def run_name(self) -> str:
        """Name of the run folder."""

    @property
    @abstractmethod
    def sets(self) -> Mapping[str, tuple[int, int, int]]:
        """Sequences of each set, and their least and largest size: those trained on, and evaluation sets by name."""

    @property
    def size(self) -> int:
        """Size of the task that is trained on, the largest one."""
        return self.sets["train"][2]

    def draw(self, name: str, n: int, seed: int) -> Batch:
        """Draw n sequences to train on (``"train"``) or of an evaluation set; they depend on the arguments only."""
        _, shortest, size = self.sets[name]
        return draw_task(self.task, n, size, self.vocab_size, seed, shortest=shortest)

    @property
    def vocab_size(self) -> int:
        """Tokens that there are."""
        return TASKS[self.task].vocab_size

    @property
    def trained_length(self) -> int:
        """Tokens of a sequence that is trained on."""
        return TASKS[self.task].length(self.size)

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        return TASKS[self.task].length(max(size for _, _, size in self.sets.values()))

    @property
    def sizes(self) -> dict[str, int]:
        """Sequences of the evaluation sets, ``val`` first."""
        return {name: n for name, (n, _, _) in self.sets.items() if name != "train"}


# At one size ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecallSets:
    """Sequences that are measured."""

    n_val: int = 256
    """Validation sequences, evaluated during training."""
    n_test: int = 2000
    """Test sequences, evaluated after training."""

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


@dataclass(frozen=True, kw_only=True)
class RecallConfig(SequencesConfig):
    """One run: train a causal model on one task, and watch when it learns it and where its heads look."""

    experiment: Literal["recall"] = "recall"
    """Experiment of the run."""
    task: RecallName = "in-context-copying"
    """Task: copy what repeats, recall a key's value (mqar), copy scattered letters, or track parity or a product of
    permutations of three or five things (s3, s5)."""
    data: RecallDataConfig = field(default_factory=RecallDataConfig)
    """Sequences."""
    optim: LanguageOptimConfig = field(default_factory=lambda: adamw(1e-3))
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=lambda: in_batches(600, 256, eval_every=20))
    """Length of training in steps, evaluation and checkpoints."""

    def __post_init__(self) -> None:
        check_seed(self)
        task, asked = TASKS[self.task], self.data.vocab_size
        check(self.data.size >= task.least, "data.size", f"at least {task.least}", self.data.size)
        fits = not task.fixed or asked in (None, task.vocab_size)
        check(fits, "data.vocab_size", f"null or {task.vocab_size}, those of {self.task}", asked)
        self.model.check_length(self.length)
        try:
            draw_task(self.task, 1, self.size, self.vocab_size, seed=0)
        except ValueError as error:
            raise ValueError(f"data.size, data.vocab_size: {error}") from None

    @property
    def vocab_size(self) -> int:
        return self.data.vocab_size or super().vocab_size

    @property
    def sets(self) -> Mapping[str, tuple[int, int, int]]:
        sizes = self.data.size, self.data.size
        return {"train": (0, *sizes), "val": (self.data.n_val, *sizes), "test": (self.data.n_test, *sizes)}

    @property
    def run_name(self) -> str:
        return self.output.name or f"{self.task}-{self.data.size}-{self.model.folder_name}-seed{self.seed}"


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
    """Evaluations on the validation set in the course of a run, or a few less, evenly spaced: how exactly it is known
    when a task is learned."""
    models: tuple[str, ...] = RECALL_ARMS
    """Models, by the names of presets."""
    data: RecallSets = field(default_factory=RecallSets)
    """Sequences."""
    optim: LanguageOptimConfig = field(default_factory=lambda: adamw(1e-3))
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=lambda: in_batches(1000, 256, eval_every=0, checkpoint_every=0))
    """Batch sizes. Cells write no checkpoints; loop.steps and loop.eval_every are not used."""

    presets: ClassVar[Mapping[str, SequenceModelKeys]] = PRESETS

    def __post_init__(self) -> None:
        super().__post_init__()
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
        return dict(zip(map(parsed, self.tasks), repeated, strict=True))[parsed(text)]

    def points(self) -> list[dict[str, Any]]:
        settings = [parsed(text) for text in self.tasks]
        return [{"task": task, "size": size, "model": model} for task, size in settings for model in self.models]

    def run_config(self, cell: Cell) -> RecallConfig:
        steps = self.steps_of(f"{cell['task']}-{cell['size']}")
        data = RecallDataConfig(size=cell["size"], **vars(self.data))
        loop = replace(self.loop, steps=steps, eval_every=math.ceil(steps / self.evaluations))
        return RecallConfig(**self.common_keys(cell, task=cell["task"], data=data, loop=loop))


def parsed(text: str) -> tuple[RecallName, int]:
    """Task and size of ``TASK-SIZE``; ``ValueError`` if it is none."""
    name, _, size = text.rpartition("-")
    known = name in RECALL_TASKS and size.isascii() and size.isdigit() and 1 <= int(size) <= LARGEST_SIZE
    check(known, "tasks", f"TASK-SIZE, TASK one of {', '.join(RECALL_TASKS)}, such as mqar-8", text)
    return next(task for task in RECALL_TASKS if task == name), int(size)


# By length -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LengthSets:
    """Lengths that are measured: numbers of objects, or of constants in an equation."""

    lengths: tuple[int, ...] = (4, 6, 8, 10, 12, 14, 16, 20)
    """Lengths of the test sequences, which are evaluated after training."""
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


@dataclass(frozen=True, kw_only=True)
class LengthConfig(SequencesConfig):
    """One run: train a causal model on short sequences of one task, and measure it on longer ones."""

    experiment: Literal["length"] = "length"
    """Experiment of the run."""
    task: LengthName = "argsort"
    """Task: sort objects by an order that is to be learned, or solve a linear equation."""
    data: LengthDataConfig = field(default_factory=LengthDataConfig)
    """Sequences."""
    optim: LanguageOptimConfig = field(default_factory=lambda: adamw(4e-3))
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=lambda: in_batches(1000, 250, eval_every=100))
    """Length of training in steps, evaluation and checkpoints."""

    def __post_init__(self) -> None:
        check_seed(self)
        for name, longest in (("longest", self.data.longest), ("lengths", max(self.data.lengths))):
            possible = self.task != "argsort" or longest <= OBJECTS
            check(possible, f"data.{name}", f"at most {OBJECTS}, all objects", longest)
        self.model.check_length(self.length)

    @property
    def sets(self) -> Mapping[str, tuple[int, int, int]]:
        """Evaluation sets of one length have it as their name."""
        trained = SHORTEST, self.data.longest
        by_length = {str(length): (self.data.n_test, length, length) for length in self.data.lengths}
        return {"train": (0, *trained), "val": (self.data.n_val, *trained), **by_length}

    @property
    def run_name(self) -> str:
        return self.output.name or f"{self.task}-to-{self.data.longest}-{self.model.folder_name}-seed{self.seed}"


@dataclass(frozen=True)
class LengthGrid(GridConfig):
    """Every model on every task, from several seeds."""

    out: str = "runs/reproduce-length"
    seeds: int = 2
    tasks: tuple[LengthName, ...] = LENGTH_TASKS
    """Tasks."""
    longest: tuple[int, ...] = (10,)
    """Longest lengths that are trained on."""
    models: tuple[str, ...] = LENGTH_ARMS
    """Models, by the names of presets."""
    data: LengthSets = field(default_factory=LengthSets)
    """Sequences."""
    optim: LanguageOptimConfig = field(default_factory=lambda: adamw(4e-3))
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=lambda: in_batches(1000, 250, eval_every=0, checkpoint_every=0))
    """Length of training. Cells are not evaluated before their end and write no checkpoints."""

    presets: ClassVar[Mapping[str, SequenceModelKeys]] = PRESETS
    run: ClassVar[type[Any]] = LengthConfig
    run_data: ClassVar[type[Any]] = LengthDataConfig
    known: ClassVar[tuple[str, ...]] = LENGTH_TASKS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("tasks", self.tasks, self.known)
        low, high = 2, LONGEST_LENGTH
        check(low <= min(self.longest) and max(self.longest) <= high, "longest", f"{low} to {high:,}", self.longest)

    def points(self) -> list[dict[str, Any]]:
        return crossed(task=self.tasks, longest=self.longest, model=self.models)

    def run_config(self, cell: Cell) -> Any:
        data = self.run_data(longest=cell["longest"], **vars(self.data))
        return self.run(**self.common_keys(cell, task=cell["task"], data=data))
