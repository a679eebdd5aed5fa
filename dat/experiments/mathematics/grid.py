"""Grids of mathematics, and those for everyone: a look within minutes, and the paper's Table 2 and Figure 3."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from ...data.mathematics import MODULES, Module
from ...sweeps.grid import AT_THEIR_END, Cell, GridConfig, crossed
from ...training.configs import MOST_EPOCHS, LoopConfig, OptimConfig, PrecisionMachineConfig, check
from .config import MathematicsConfig, QuestionsConfig, paper_optim, tiny_optim
from .model_keys import PRESETS, MathematicsModelKeys
from .published import EPOCHS, published_accuracies


@dataclass(frozen=True)
class MathematicsGrid(GridConfig):
    """Every model on every module for every length of training, from several seeds."""

    out: str = "runs/reproduce-mathematics"
    seeds: int = 2
    modules: tuple[Module, ...] = ("algebra__linear_1d", "algebra__sequence_next_term")
    """Modules."""
    models: tuple[str, ...] = ("T-tiny", "DAT-tiny")
    """Models, by the names of presets."""
    epochs: tuple[int, ...] = (2, 6)
    """Lengths of training in passes through the training set; each is a run of its own."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products."""
    data: QuestionsConfig = field(default_factory=lambda: QuestionsConfig(n_train=2000, n_val=300, n_test=500))
    """Questions."""
    optim: OptimConfig = field(default_factory=tiny_optim)
    """Optimiser."""
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(epochs=6, batch_size=64, eval_batch_size=500, **AT_THEIR_END)
    )
    """Batch sizes. Cells are not evaluated before their end and write no checkpoints; loop.epochs is not used."""

    presets: ClassVar[Mapping[str, MathematicsModelKeys]] = PRESETS

    def __post_init__(self) -> None:
        super().__post_init__()
        check(max(self.epochs) <= MOST_EPOCHS, "epochs", f"integers of at most {MOST_EPOCHS:,}", self.epochs)

    def points(self) -> list[dict[str, Any]]:
        return crossed(module=self.modules, epochs=self.epochs, model=self.models)

    def run_config(self, cell: Cell) -> MathematicsConfig:
        measure_at = tuple(epoch for epoch in self.loop.measure_at if epoch < cell["epochs"])
        loop = replace(self.loop, epochs=cell["epochs"], measure_at=measure_at)
        machine = PrecisionMachineConfig(precision=self.precision)
        keys = self.common_keys(cell, module=cell["module"], data=self.data, loop=loop, machine=machine)
        return MathematicsConfig(**keys)


SCALES = {
    "tiny": MathematicsGrid(out="runs/mathematics-tiny"),
    # Lengths and batches by the logs of the published runs; the paper's text says 50 epochs of batches of 128. The
    # archive's files as they are: every training question, and padding attended to.
    "published": MathematicsGrid(
        out="runs/mathematics-published",
        seeds=5,
        device="cuda",
        workers=1,
        modules=MODULES,
        models=tuple(name for name in PRESETS if any(model == name for _, model in published_accuracies())),
        epochs=(EPOCHS,),
        precision="bfloat16",
        optim=paper_optim(),
        data=QuestionsConfig(
            n_train=1_999_998,
            n_val=0,
            n_test=10_000,
            n_answered=1_000,
            padding="attended",
            official_folder="mathematics_dataset-v1.0",
        ),
        loop=LoopConfig(epochs=EPOCHS, batch_size=512, eval_batch_size=500, **AT_THEIR_END),
    ),
}
