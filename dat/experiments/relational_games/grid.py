"""The grid of the learning curves on Relational Games."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from ...sweeps.grid import AT_THEIR_END, Cell, GridConfig
from ...training.configs import MOST_EXAMPLES, LoopConfig, OptimConfig, check
from .config import EPOCHS, TASK_NAMES, GamesDataConfig, GamesModelConfig, GridData, RelationalGamesConfig, Task
from .presets import COMPARISON, PRESETS

SIZES = tuple(range(250, 2501, 250))
MATCH_PATTERN_SIZES = tuple(range(5000, 25001, 2500))


@dataclass(frozen=True)
class GamesGrid(GridConfig):
    """Learning curves: every model on every task at every training-set size, from several seeds."""

    out: str = "runs/reproduce-relational-games"
    seeds: int = 5
    keep_weights: bool = False
    """Keep the final weights of every cell beside its result, 1.7 MB each."""
    tasks: tuple[Task, ...] = TASK_NAMES
    """Tasks."""
    sizes: tuple[int, ...] = SIZES
    """Training-set sizes, except for match_pattern."""
    match_pattern_sizes: tuple[int, ...] = MATCH_PATTERN_SIZES
    """Training-set sizes for match_pattern."""
    models: tuple[str, ...] = COMPARISON
    """Models, by the names of presets."""
    data: GridData = field(default_factory=GridData)
    """Images."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimiser."""
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=EPOCHS, **AT_THEIR_END))
    """Length of training and batch sizes. Cells are not evaluated before their end and write no checkpoints."""

    presets: ClassVar[Mapping[str, GamesModelConfig]] = PRESETS

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("sizes", "match_pattern_sizes"):
            sizes = getattr(self, name)
            check(max(sizes) <= MOST_EXAMPLES, name, f"integers of at most {MOST_EXAMPLES:,}", sizes)

    def points(self) -> list[dict[str, Any]]:
        return [
            {"task": task, "model": model, "n_train": n_train}
            for task in self.tasks
            for n_train in (self.match_pattern_sizes if task == "match_pattern" else self.sizes)
            for model in self.models
        ]

    def run_config(self, cell: Cell) -> RelationalGamesConfig:
        data = GamesDataConfig(n_train=cell["n_train"], **asdict(self.data))
        return RelationalGamesConfig(**self.common_keys(cell, task=cell["task"], data=data))
