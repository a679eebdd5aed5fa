"""Grids of runs on mathematics: a first look, the announced study, and the published runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...data.mathematics import MODULES, Module
from ...sweeps.grid import Cell, GridConfig
from ...training.configs import MOST_EPOCHS, LoopConfig, OptimConfig, PrecisionMachineConfig, check, check_names
from .ablations import ABLATED, ACTIVATED, COMPOSED, CROSS, OTHER_SYMBOLS, RANKED, SYMMETRIC
from .config import MathematicsConfig, QuestionsConfig, paper_optim, tiny_optim
from .model_keys import PRESETS, MathematicsModelKeys
from .published import EPOCHS, published_accuracies

MODELS = PRESETS | ABLATED
"""Models of grids by name."""


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
        default_factory=lambda: LoopConfig(
            epochs=6, batch_size=64, eval_batch_size=500, eval_every=0, checkpoint_every=0
        )
    )
    """Batch sizes. Cells are not evaluated before their end and write no checkpoints; loop.epochs is not used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("models", self.models, MODELS)
        check(max(self.epochs) <= MOST_EPOCHS, "epochs", f"integers of at most {MOST_EPOCHS:,}", self.epochs)

    def points(self) -> list[dict[str, Any]]:
        return [
            {"module": module, "model": model, "epochs": epochs}
            for module in self.modules
            for epochs in self.epochs
            for model in self.models
        ]

    def run_config(self, cell: Cell) -> MathematicsConfig:
        measure_at = tuple(epoch for epoch in self.loop.measure_at if epoch < cell["epochs"])
        return MathematicsConfig(
            seed=cell.seed,
            module=cell["module"],
            data=self.data,
            model=MODELS[cell["model"]],
            optim=self.optim,
            loop=replace(self.loop, epochs=cell["epochs"], measure_at=measure_at),
            machine=PrecisionMachineConfig(precision=self.precision),
        )


# The archive's files as they are: every training question, and padding attended to.
OFFICIAL = QuestionsConfig(
    n_train=1_999_998,
    n_val=0,
    n_test=10_000,
    n_answered=1_000,
    padding="attended",
    official_folder="mathematics_dataset-v1.0",
)


def paper_loop(epochs: int = EPOCHS, *, eval_every: int = 5, checkpoint_every: int = 1) -> LoopConfig:
    """Length and batches of the published runs, by their logs; the paper's text says 50 epochs of batches of 128."""
    return LoopConfig(
        epochs=epochs,
        batch_size=512,
        eval_batch_size=500,
        eval_every=eval_every,
        checkpoint_every=checkpoint_every,
    )


# The announced study, see experiments/mathematics/ANNOUNCED.md.
STUDY = MathematicsGrid(
    out="runs/mathematics-study",
    seeds=5,
    models=("T-871K", "DAT-832K"),
    optim=paper_optim(),
    epochs=(10,),
    data=QuestionsConfig(n_train=25_600, n_val=1_200, n_test=2_000, n_answered=500),
    loop=LoopConfig(
        epochs=10,
        batch_size=128,
        eval_batch_size=500,
        eval_every=0,
        checkpoint_every=0,
        measure_at=(1, 2, 5),
    ),
)


def ablation(
    name: str, models: Sequence[MathematicsModelKeys], module: Module = "algebra__linear_1d"
) -> MathematicsGrid:
    """Models to be read beside DAT-832K of the study, on one of its modules with the same seeds."""
    of_models = tuple(model.name for model in models)
    return replace(STUDY, out=f"runs/mathematics-{name}", modules=(module,), models=of_models)


GRIDS = {
    # A look at everything within minutes.
    "tiny": MathematicsGrid(out="runs/mathematics-tiny"),
    "study": STUDY,
    # Table 2 and Figure 3.
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
        data=OFFICIAL,
        loop=paper_loop(eval_every=0, checkpoint_every=0),
    ),
    # Ablations of DAT-832K: relational cross-attention, heads, symmetry, number against width of relations, symbols
    # and activations of relations.
    "rca": ablation("rca", CROSS),
    "heads": ablation("heads", COMPOSED),
    "symmetry": ablation("symmetry", SYMMETRIC),
    "rank": ablation("rank", RANKED),
    "symbols": ablation("symbols", OTHER_SYMBOLS),
    "activation": ablation("activation", ACTIVATED),
    # A control of the study: what on sequences is due to relations, and what to symbols of relative positions.
    "sequences": ablation("sequences", (OTHER_SYMBOLS[0], CROSS[0]), "algebra__sequence_next_term"),
}
"""The grids that come with the repository."""
