"""Configurations of Relational Games that are measured on things trained on and on things never trained on."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from dat.experiments.relational_games.config import GamesModelConfig, GamesRunConfig
from dat.experiments.relational_games.presets import PRESETS
from dat.sweeps.grid import Cell, GridConfig, crossed
from dat.training.configs import MOST_EXAMPLES, LoopConfig, OptimConfig, check, check_integers, check_seed


@dataclass(frozen=True)
class Sets:
    """Images that are measured."""

    n_val: int = 1000
    """Validation images, of things trained on, looked at during training."""
    n_test: int = 5000
    """Test images, of things trained on."""
    n_unseen: int = 5000
    """Test images, of things that are not trained on."""

    def __post_init__(self) -> None:
        check_integers(self, "data", "n_val", "n_test", "n_unseen", most=MOST_EXAMPLES)


@dataclass(frozen=True)
class TrainedSets(Sets):
    """The images of a run."""

    n_train: int = 2000
    """Training images."""
    seed: int | None = None
    """Seed of the images, and of what they are drawn from in each split; null takes the seed of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "data", "n_train", most=MOST_EXAMPLES)
        check_seed(self, "data")

    @property
    def n_images(self) -> int:
        """Images of a run in all."""
        return self.n_train + self.n_val + self.n_test + self.n_unseen


@dataclass(frozen=True)
class UnseenGrid(GridConfig):
    """Every model on every task at every training-set size, from several seeds."""

    tasks: tuple[Any, ...] = ()
    """Tasks."""
    sizes: tuple[int, ...] = (1000,)
    """Training-set sizes."""
    models: tuple[str, ...] = ()
    """Models, by the names of presets."""
    data: Any = field(default_factory=Sets)
    """Images."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimiser."""
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(eval_every=0, checkpoint_every=0))
    """Length of training and batch sizes. Cells are not evaluated before their end and write no checkpoints."""

    presets: ClassVar[Mapping[str, GamesModelConfig]] = PRESETS
    run: ClassVar[type[GamesRunConfig]]
    """Configuration of a run."""
    images: ClassVar[type[TrainedSets]]
    """Configuration of its images."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(max(self.sizes) <= MOST_EXAMPLES, "sizes", f"integers of at most {MOST_EXAMPLES:,}", self.sizes)

    def points(self) -> list[dict[str, Any]]:
        return crossed(task=self.tasks, n_train=self.sizes, model=self.models)

    def run_config(self, cell: Cell) -> GamesRunConfig:
        keys: dict[str, Any] = {
            "task": cell["task"],
            "seed": cell.seed,
            "data": self.images(n_train=cell["n_train"], **asdict(self.data)),
            "model": self.presets[cell["model"]],
        }
        return self.run(**keys, optim=self.optim, loop=self.loop)
