"""Configuration of a comparison on one's own data: the data, the models, and the grids of runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dual_attention.configs import FieldsConfig

from ...data.tables import Task
from ...sweeps.grid import AT_THEIR_END, Cell, GridConfig
from ...training.config_data import PartName
from ...training.configs import (
    MOST_EPOCHS,
    MOST_EXAMPLES,
    WIDEST,
    LoopConfig,
    MachineConfig,
    OptimConfig,
    OutputConfig,
    check,
    check_integers,
    check_names,
    check_seed,
)
from ..model_keys import LONGEST

RULE = "untrained"
"""Name of the rule that answers every example alike."""
OWN = "own"
"""Name of the model with heads of the user's own."""
ARMS = ("dat", "transformer", "gated", "relational", "distances", OWN)
"""Models: half of the heads relational; none; none, and a linear gate on what heads bring; all heads relational; half,
by squared distances; heads of the user's own."""
NO_HEADS = {"heads": None, "heads_digest": None}
"""Keys of the other models."""
RATES = (3e-3, 1e-3, 1e-2, 3e-4, 3e-2, 1e-4)
"""Learning rates, in the order in which a larger budget tries them."""
OPTIM = OptimConfig(
    optimizer="adamw", lr=RATES[0], weight_decay=0.01, schedule="cosine", warmup_steps=20, grad_clip=1.0
)


@dataclass(frozen=True, kw_only=True)
class OwnSource(FieldsConfig):
    """Data, the target to predict, and the split."""

    path: str = ""
    """A table (CSV, TSV, Parquet), a folder with a folder of pictures for each class, or texts: a file or a folder."""
    target: str | None = None
    """Column of a table that is predicted."""
    test: str | None = None
    """Table or texts to test on; null keeps a fifth apart. Pictures to test on are in the folders train and test."""
    task: Task | None = None
    """Prediction of a column: classes, or a number; null takes classes for texts and for few whole numbers."""
    categories: tuple[str, ...] | None = None
    """Columns whose values are categories, whatever they look like."""
    leave_out: tuple[str, ...] | None = None
    """Columns that are not used, such as numbers of rows."""
    image_size: int = 32
    """Width and height that pictures are given."""
    context: int = 64
    """Bytes of a text that a model sees at once; items that are kept of a sequence in a table."""
    split_seed: int = 0
    """Seed of the split of rows and pictures. All runs have the same split; that of texts has no seed."""
    n_train: int | None = None
    """Examples to train on; null takes all that are not kept apart."""
    contents: str | None = None
    """Digest of the data, which the command fills in: results on other data are never mixed."""


@dataclass(frozen=True, kw_only=True)
class ArmSize(FieldsConfig):
    """The size of all models."""

    d_model: int = 64
    """Width of the models."""
    n_layers: int = 2
    """Blocks of each model."""
    n_heads: int = 4
    """Heads of each block, an even number: a DAT has half of them of each kind."""
    dropout_rate: float = 0.1
    """Dropout rate."""
    heads: PartName | None = None
    """Heads of your own, FILE.py:CLASS, or a score or an alignment for them: those of the model named own."""
    heads_digest: str | None = None
    """Digest of the file of heads, which the command fills in: results of other heads are never mixed."""


@dataclass(frozen=True, kw_only=True)
class ArmConfig(ArmSize):
    """A model of the comparison."""

    name: str
    """Name in results."""
    arm: str
    """Kind of model, one of :data:`ARMS`, or :data:`RULE`."""


@dataclass(frozen=True, kw_only=True)
class ComparisonConfig:
    """One run: train a model on the data."""

    experiment: str = "compare"
    seed: int = 0
    data: OwnSource
    model: ArmConfig
    tuning: bool = False
    """Measure on the validation set alone."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"compare-{self.model.name}-seed{self.seed}"


@dataclass(frozen=True, kw_only=True)
class ComparisonGrid(OwnSource, ArmSize, GridConfig):
    """Models on data of yours, at learning rates that validation chooses, from several seeds."""

    out: str = "runs/compare"
    """Folder of the comparison, by default runs/compare-NAME. The same command continues it; more models or seeds
    extend it."""
    seeds: int = 5
    """Trials of each model; their seeds are first_seed, first_seed + 1 and so on."""
    models: tuple[str, ...] = ARMS[:3]
    """Models, the first of which the others are compared with: dat (half of the heads relational), transformer, gated
    (a Transformer with a linear gate), relational (all heads), distances (a dat whose relations are squared distances),
    own (see heads). As large as a dat, within a hundredth or so, except for own."""
    budget: int = 3
    """Learning rates that are tried for each model, one run each, of which the best on the validation set is taken; 1
    tries none, and takes 3e-3 for all."""
    epochs: int | None = None
    """Passes through the data of a training; null takes as many as have about 200 steps, and at least 2."""
    batch_size: int = 32
    """Examples in one step of training."""

    def __post_init__(self) -> None:
        GridConfig.__post_init__(self)
        check_names("models", self.models, ARMS)
        fits = (self.heads is not None) == (OWN in self.models)
        check(fits, "heads", f"FILE.py:CLASS with {OWN} among models", self.heads)
        check_integers(self, "", "n_train", "batch_size", most=MOST_EXAMPLES)
        check_integers(self, "", "image_size", least=8, most=1024)
        check(self.image_size % 4 == 0, "image_size", "a multiple of 4, the patches along a side", self.image_size)
        check_integers(self, "", "context", least=8, most=LONGEST)
        check_seed(self, name="split_seed")
        check_integers(self, "", "d_model", "n_heads", "n_layers", most=WIDEST)
        fits = self.n_heads % 2 == 0 and self.d_model % (2 * self.n_heads) == 0
        check(fits, "n_heads", f"an even number that divides half of d_model={self.d_model}", self.n_heads)
        check(0 <= self.dropout_rate < 1, "dropout_rate", "a number in [0, 1)", self.dropout_rate)
        check_integers(self, "", "budget", most=len(RATES))
        check_integers(self, "", "epochs", most=MOST_EPOCHS)

    @property
    def data(self) -> OwnSource:
        """The keys of the data alone."""
        return OwnSource.of(vars(self))

    def check_extends(self, older: Any) -> None:
        super().check_extends(older)
        for name in ("budget", "first_seed") if older.budget > 1 else ("budget",):
            value, before = getattr(self, name), getattr(older, name)
            expected = f"{before}, by which the learning rates in {self.out} were chosen, or another --out"
            check(value == before, name, expected, value)

    def arms(self) -> list[str]:
        """Names of the models of a trial."""
        return [*dict.fromkeys(self.models), RULE]

    def points(self) -> list[dict[str, Any]]:
        return [{"model": name, "n_train": self.n_train} for name in self.arms()]

    def run_config(self, cell: Cell) -> ComparisonConfig:
        arm, steps = cell["model"].partition("-lr")[0], -(-cell["n_train"] // self.batch_size)
        epochs = 1 if arm == RULE else self.epochs or max(2, round(200 / steps))
        return ComparisonConfig(
            seed=cell.seed,
            data=self.data,
            model=ArmConfig.of({**vars(self), **({} if arm == OWN else NO_HEADS)}, name=cell["model"], arm=arm),
            tuning=isinstance(self, RatesGrid),
            optim=OPTIM,
            loop=LoopConfig(epochs=epochs, batch_size=self.batch_size, **AT_THEIR_END),
        )


@dataclass(frozen=True, kw_only=True)
class RatesGrid(ComparisonGrid):
    """Every model at every learning rate of the budget, from one seed."""

    @classmethod
    def before(cls, grid: ComparisonGrid) -> RatesGrid:
        """The runs that choose the learning rates of a comparison."""
        tried = RATES[: grid.budget] if grid.budget > 1 else ()
        rates = {f"{model}-lr{rate:g}": rate for model in grid.arms()[:-1] for rate in tried}
        return cls(**{**vars(grid), "out": f"{grid.out}/rates", "seeds": 1, "keep_weights": False, "lr_of": rates})

    def arms(self) -> list[str]:
        return list(self.lr_of or {})
