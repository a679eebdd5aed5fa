"""Configuration of a run on Theorem 1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...training.configs import (
    MOST_EXAMPLES,
    WIDEST,
    MachineConfig,
    OptimConfig,
    OutputConfig,
    StepLoopConfig,
    check,
    check_integers,
    check_seed,
)
from ..model_keys import NamedConfig

ModelName = Literal["relational", "symmetric", "standard"]

MOST_SENDERS = 1024
WIDEST_MARGIN = 1.0
"""Of margins that draws can keep: with eight senders about one draw in nine has a gap of 1 between the best two."""


@dataclass(frozen=True)
class SelectionDataConfig:
    """Draws of a receiver and its senders."""

    senders: int = 8
    """Senders of each receiver."""
    margin: float = 0.05
    """Least gap between the utilities of the best sender and of the second; draws below it are drawn again."""
    n_val: int = 1000
    """Draws looked at during training."""
    n_test: int = 5000
    """Draws of the numbers at the end."""

    def __post_init__(self) -> None:
        check_integers(self, "data", "senders", least=2, most=MOST_SENDERS)
        check_integers(self, "data", "n_val", "n_test", most=MOST_EXAMPLES)
        check(0 <= self.margin <= WIDEST_MARGIN, "data.margin", f"a number from 0 to {WIDEST_MARGIN}", self.margin)


@dataclass(frozen=True, kw_only=True)
class SelectionModelConfig(NamedConfig):
    """One attention whose queries and keys are perceptrons with two hidden layers."""

    name: ModelName = "relational"
    """Attention: relational with W_r = I and no symbols, as in the theorem; the same with one perceptron for both
    sides of its relations, which makes them symmetric; or standard, whose values are a perceptron of the sender."""
    width: int = 32
    """Width of the hidden layers."""
    features: int = 16
    """Width of queries and keys, of the attention and of each relation."""

    def __post_init__(self) -> None:
        check_integers(self, "model", "width", "features", most=WIDEST)


def selection_optim() -> OptimConfig:
    """Adam with a cosine."""
    return OptimConfig(lr=2e-3, betas=(0.9, 0.999), schedule="cosine")


@dataclass(frozen=True)
class Theorem1Config:
    """One run: train an attention to select one of several objects, and to tell a relation with it."""

    experiment: Literal["theorem-1"] = "theorem-1"
    """Experiment of the run."""
    seed: int = 0
    """Seed of the run; initial weights and draws derive from it."""
    data: SelectionDataConfig = field(default_factory=SelectionDataConfig)
    """Draws."""
    model: SelectionModelConfig = field(default_factory=SelectionModelConfig)
    """Model; --preset NAME fills these keys."""
    optim: OptimConfig = field(default_factory=selection_optim)
    """Optimiser."""
    loop: StepLoopConfig = field(
        default_factory=lambda: StepLoopConfig(
            steps=3000, batch_size=256, eval_batch_size=5000, report_every=100, eval_every=500, checkpoint_every=1000
        )
    )
    """Length of training; every step has draws of its own."""
    machine: MachineConfig = field(default_factory=MachineConfig)
    """Device and threads."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    def __post_init__(self) -> None:
        check_seed(self)

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"theorem-1-{self.model.name}-width{self.model.width}-seed{self.seed}"


PRESETS: dict[str, SelectionModelConfig] = {
    "relational": SelectionModelConfig(name="relational"),
    "symmetric": SelectionModelConfig(name="symmetric"),
    "standard": SelectionModelConfig(name="standard"),
}
"""The attention of the theorem, and two controls."""
