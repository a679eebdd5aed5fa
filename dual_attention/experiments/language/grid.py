"""The grid of small language models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ...language_presets import LANGUAGE_PRESETS
from ...sweeps.grid import Cell, GridConfig
from ...training.configs import MOST_STEPS, StepLoopConfig, check, check_names
from .config import LanguageConfig, LanguageDataConfig, LanguageOptimConfig, default_loop
from .model_keys import model_preset


@dataclass(frozen=True)
class LanguageGrid(GridConfig):
    """Curves of perplexity: every model trained for every number of steps, from several seeds."""

    out: str = "runs/reproduce-language"
    seeds: int = 2
    models: tuple[str, ...] = ("DAT-tiny", "T-tiny")
    """Models, by the names of presets."""
    steps: tuple[int, ...] = (100, 200, 400)
    """Lengths of training in steps; each is a run of its own, with a learning rate that falls to its end."""
    data: LanguageDataConfig = field(default_factory=LanguageDataConfig)
    """Text."""
    optim: LanguageOptimConfig = field(default_factory=LanguageOptimConfig)
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=lambda: replace(default_loop(), eval_every=0, checkpoint_every=0))
    """Batch sizes. Cells are not evaluated before their end and write no checkpoints; loop.steps is not used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("models", self.models, LANGUAGE_PRESETS)
        check(max(self.steps) <= MOST_STEPS, "steps", f"integers of at most {MOST_STEPS:,}", self.steps)

    def points(self) -> list[dict[str, Any]]:
        return [{"model": model, "steps": steps} for steps in self.steps for model in self.models]

    def run_config(self, cell: Cell) -> LanguageConfig:
        return LanguageConfig(
            seed=cell.seed,
            data=self.data,
            model=model_preset(cell["model"]),
            optim=self.optim,
            loop=replace(self.loop, steps=cell["steps"]),
        )
