"""Grids of language models, and those for everyone: looks within minutes, and the paper's Table 5."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, ClassVar, Literal

from ...sweeps.grid import AT_THEIR_END, Cell, GridConfig
from ...training.configs import MOST_STEPS, StepLoopConfig, check, check_names
from .config import LanguageConfig, LanguageDataConfig, LanguageMachineConfig, LanguageOptimConfig, default_loop
from .data import text_digest, text_origin
from .model_keys import LanguageModelKeys
from .presets import PRESETS


@dataclass(frozen=True)
class LanguageGrid(GridConfig):
    """Curves of perplexity: every model trained for every number of steps, from several seeds."""

    out: str = "runs/reproduce-language"
    seeds: int = 2
    models: tuple[str, ...] = ("DAT-tiny", "T-tiny")
    """Models, by the names of presets."""
    steps: tuple[int, ...] = (100, 200, 400)
    """Lengths of training in steps; each is a run of its own, with a learning rate that falls to its end."""
    longer: dict[str, float] | None = None
    """Factors of the steps of single models, by their names, that are to train for longer than the others."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products: float32, or bfloat16 by autocast."""
    data: LanguageDataConfig = field(default_factory=LanguageDataConfig)
    """Text."""
    optim: LanguageOptimConfig = field(default_factory=LanguageOptimConfig)
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=lambda: replace(default_loop(), **AT_THEIR_END))
    """Batch sizes. Cells are not evaluated before their end and write no checkpoints; loop.steps is not used."""

    presets: ClassVar[Mapping[str, LanguageModelKeys]] = PRESETS

    def __post_init__(self) -> None:
        super().__post_init__()
        factors = self.longer or {}
        check_names("longer", factors, self.models)
        check(all(0 < factor < inf for factor in factors.values()), "longer", "positive numbers", self.longer)
        longest = round(max(self.steps) * max((1.0, *factors.values())))
        check(longest <= MOST_STEPS, "steps", f"integers of at most {MOST_STEPS:,}", longest)

    def length(self, model: str) -> float:
        """Factor of the steps of a model."""
        return (self.longer or {}).get(model, 1.0)

    def check_extends(self, older: Any) -> None:
        super().check_extends(older)
        for model in [model for model in self.models if model in older.models]:
            expected = f"{older.length(model)} for {model}, which the cells of the folder were run with"
            check(self.length(model) == older.length(model), "longer", expected, self.length(model))

    def points(self) -> list[dict[str, Any]]:
        return [
            {"model": model, "steps": max(round(steps * self.length(model)), 1)}
            for steps in self.steps
            for model in self.models
        ]

    def origin(self) -> dict[str, Any]:
        return {"text_digest": text_digest(text_origin(self.data))}

    def run_config(self, cell: Cell) -> LanguageConfig:
        loop = replace(self.loop, steps=cell["steps"])
        machine = LanguageMachineConfig(precision=self.precision)
        return LanguageConfig(**self.common_keys(cell, data=self.data, loop=loop, machine=machine))


SCALES = {
    # On the documentation of Python, byte by byte.
    "tiny": LanguageGrid(
        out="runs/language-tiny",
        seeds=3,
        steps=(75, 150),
        optim=LanguageOptimConfig(lr=8e-3, warmup_steps=20),
        loop=StepLoopConfig(steps=150, batch_size=16, eval_batch_size=16, **AT_THEIR_END),
    ),
    # 10B tokens of FineWeb-Edu (section 4.4), 524,288 in each step, in files of tokens, each document after GPT-2's end
    # token; on a GPU.
    "table-5": LanguageGrid(
        out="runs/language-table-5",
        seeds=1,
        workers=1,
        device="cuda",
        models=("T-353M", "DAT-343M-nr64", "T-757M", "DAT-734M", "T-1.31B", "DAT-1.27B-nr128"),
        steps=(19_073,),
        precision="bfloat16",
        data=LanguageDataConfig(
            path="edu_fineweb10B/edufineweb_train_*.npy",
            val_path="edu_fineweb10B/edufineweb_val_*.npy",
            val_tokens=327_680,
            tokenizer="gpt2",
            order="sequential",
        ),
        optim=LanguageOptimConfig(lr=6e-4, min_lr=6e-5, warmup_steps=715),
        loop=StepLoopConfig(steps=19_073, batch_size=512, micro_batch_size=8, eval_batch_size=8, **AT_THEIR_END),
    ),
}
