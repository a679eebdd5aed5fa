"""Configuration of runs on progressive matrices, and of grids of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, get_args

import torch

from dat.experiments.language.config import LanguageOptimConfig
from dat.experiments.sequences.config import adamw, in_batches
from dat.sweeps.grid import Cell, GridConfig
from dat.training.configs import (
    MOST_EXAMPLES,
    MachineConfig,
    OutputConfig,
    StepLoopConfig,
    check,
    check_integers,
    check_seed,
)
from dat.training.problem import Batch
from dual_attention._base.digests import stream_seed
from studies.matrices.data import (
    CONTEXT,
    DRAWN,
    LEAST_VALUES,
    MOST_VALUES,
    PIXELS,
    Form,
    MatrixRules,
    SetName,
    likeliest_by_counting,
    rendered,
    sample_matrices,
)
from studies.matrices.model import COMPARISON, DAT, PRESETS, MatricesModelKeys

MOST_ATTRIBUTES = 64
CODE_WIDTH = 8


@dataclass(frozen=True)
class MatricesDataConfig(MatrixRules):
    """The matrices; every step of training has new ones."""

    form: Form = "codes"
    """Panels as vectors of random codes, which say nothing of an order of values, of numbers, or as small drawings."""
    width: int | None = None
    """Numbers in a code, or pixels of a drawing's side; null takes 8, or two pixels a value."""
    blind: bool = False
    """Hide the context. What is then above chance has been told by the answers alone."""
    n_val: int = 500
    """Validation matrices, evaluated during training."""
    n_test: int = 2000
    """Matrices of each test set."""

    def __post_init__(self) -> None:
        check_integers(self, "data", "n_val", "n_test", most=MOST_EXAMPLES)
        check_integers(self, "data", "attributes", "ruled", most=MOST_ATTRIBUTES)
        check_integers(self, "data", "values", least=LEAST_VALUES, most=MOST_VALUES)
        fits = 0 < len({*self.rules}) == len(self.rules)
        check(fits, "data.rules", "different rules, at least one", self.rules)
        limits = {
            "held_out_values": (self.values - LEAST_VALUES, f"so that {LEAST_VALUES} of {self.values} are trained on"),
            "held_out_rules": (len(self.rules) - 1, "so that one is trained on"),
            **dict.fromkeys(("noise", "more_noise"), (self.attributes - self.ruled, "the attributes without a rule")),
        }
        for name, (most, why) in limits.items():
            given = getattr(self, name)
            check(0 <= given <= most, f"data.{name}", f"0 to {max(most, 0)}, {why}", given)
        expected = f"a power of two from 2 to {2**self.ruled}, of {self.ruled} attributes with a rule"
        check(self.answers in [2**i for i in range(1, self.ruled + 1)], "data.answers", expected, self.answers)
        check_integers(self, "data", "width", most=1024)
        if self.form == "drawings":
            check(
                self.attributes <= len(DRAWN), "data.attributes", f"at most {len(DRAWN)} in drawings", self.attributes
            )
            least = PIXELS * self.values
            check(self.size >= least, "data.width", f"at least {least} pixels for {self.values} values", self.width)
        for name in self.sets:
            possible = bool(self.allowed(name).any(1).all())
            expected = f"for each attribute one that can be asked in the set {name} with {self.form}"
            check(possible, "data.rules", expected, self.rules)

    @property
    def ordered(self) -> bool:
        return self.form != "codes"

    @property
    def size(self) -> int:
        """The width, or what stands for null."""
        return self.width or (PIXELS * self.values if self.form == "drawings" else CODE_WIDTH)

    @property
    def panel_shape(self) -> tuple[int, ...]:
        """Shape of a panel, as a model reads it."""
        if self.form == "drawings":
            return (self.size, self.size)
        return (self.attributes * (self.size if self.form == "codes" else 1),)

    @property
    def sets(self) -> list[SetName]:
        """Sets of matrices, ``train`` first; those in which nothing would be new are left out."""
        new = {"values": self.held_out_values, "pairs": self.held_out_rules, "noise": self.more_noise - self.noise}
        return ["train", *(name for name in get_args(SetName) if new.get(name, 0) > 0)]


@dataclass(frozen=True, kw_only=True)
class MatricesConfig:
    """One run: train a model to complete matrices, and measure it on values, rules and noise that it has not seen."""

    experiment: str = "matrices"
    """Experiment of the run."""
    seed: int = 0
    """Seed of the run; initial weights, codes and matrices derive from it."""
    data: MatricesDataConfig = field(default_factory=MatricesDataConfig)
    """Matrices."""
    model: MatricesModelKeys = DAT
    """Model; --preset NAME fills these keys."""
    optim: LanguageOptimConfig = field(default_factory=lambda: adamw(1e-3))
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=lambda: in_batches(2000, 250, eval_every=200, checkpoint_every=500))
    """Length of training in steps, evaluation and checkpoints."""
    machine: MachineConfig = field(default_factory=MachineConfig)
    """Device and threads."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    def __post_init__(self) -> None:
        check_seed(self)

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        blind = "-blind" if self.data.blind else ""
        return self.output.name or f"matrices-{self.data.form}{blind}-{self.model.folder_name}-seed{self.seed}"

    def draw(self, name: SetName, n: int, seed: int) -> Batch:
        """Panels of n matrices of a set, their right answers, and those of the untrained rule."""
        data, generator = self.data, torch.Generator().manual_seed(seed)
        panels, labels = sample_matrices(n, data, name, generator)
        shown = rendered(panels, data.form, values=data.values, width=data.size, seed=self.seed)
        if data.blind:
            shown[:, :CONTEXT] = 0
        return shown, labels, likeliest_by_counting(panels)

    def seed_of(self, name: str) -> int:
        """Seed of a set."""
        return stream_seed("matrices", name, self.seed)


@dataclass(frozen=True)
class MatricesGrid(GridConfig):
    """Every model on matrices in every form, from several seeds."""

    out: str = "runs/reproduce-matrices"
    seeds: int = 2
    forms: tuple[Form, ...] = ("codes", "numbers")
    """Forms of panels."""
    steps: tuple[int, ...] = (2000,)
    """Steps of training."""
    models: tuple[str, ...] = COMPARISON
    """Models, by the names of presets."""
    data: MatricesDataConfig = field(default_factory=MatricesDataConfig)
    """Matrices; data.form is not used."""
    optim: LanguageOptimConfig = field(default_factory=lambda: adamw(1e-3))
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=lambda: in_batches(2000, 250, eval_every=0, checkpoint_every=0))
    """Batch sizes. Cells are not evaluated before their end and write no checkpoints; loop.steps is not used."""

    presets: ClassVar[Mapping[str, MatricesModelKeys]] = PRESETS

    def points(self) -> list[dict[str, Any]]:
        return [
            {"form": form, "model": model, "training_steps": steps}
            for form in self.forms
            for steps in self.steps
            for model in self.models
        ]

    def run_config(self, cell: Cell) -> MatricesConfig:
        return MatricesConfig(
            seed=cell.seed,
            data=replace(self.data, form=cell["form"]),
            model=self.presets[cell["model"]],
            optim=self.optim,
            loop=replace(self.loop, steps=cell["training_steps"]),
        )
