"""Theorem 1 as an experiment: its runs, and their error against width and temperature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...sweeps.durations import EVALUATION_SHARE
from ...sweeps.experiment import Axis, SweptExperiment
from ...sweeps.grid import Cell, GridConfig
from ...training.configs import WIDEST, OptimConfig, StepLoopConfig, check, check_names
from ...training.device import prepare_device
from ...training.experiment import Prepared, without_values
from ...training.loop import Trainer
from ...training.metrics import Row
from ...training.problem import Batch, Problem, TensorExamples
from ...training.seeding import derive_seed
from .config import PRESETS, SelectionDataConfig, SelectionModelConfig, Theorem1Config, selection_optim
from .constructed import write_constructed
from .figure import COLOURS, LABELS, draw_theorem
from .model import SelectAndRelate, largest_error
from .task import DIMENSIONS, Draws, draw, utility, wanted

SHARPENED = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Factors of the scores of a trained model, the inverse of a temperature."""


def selection_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean squared error; the mean over draws of the largest of three errors, the share of draws in which the best
    sender has the highest weight, and that weight."""
    x, y, target = batch
    output, weights = model(x, y)
    best = utility(x, y).argmax(-1)
    numbers = {
        "error": largest_error(output.detach(), target).mean(),
        "selected": (weights.detach().argmax(-1) == best).to(torch.float32).mean(),
        "weight": weights.detach().gather(1, best[:, None]).mean(),
    }
    return (output - target).square().mean(), numbers


@dataclass(frozen=True)
class Theorem1Grid(GridConfig):
    """Every attention at every width, from several seeds."""

    out: str = "runs/reproduce-theorem-1"
    seeds: int = 5
    models: tuple[str, ...] = tuple(PRESETS)
    """Attentions, by the names of presets."""
    widths: tuple[int, ...] = (8, 16, 32, 64, 128)
    """Widths of the hidden layers."""
    data: SelectionDataConfig = field(default_factory=SelectionDataConfig)
    """Draws."""
    optim: OptimConfig = field(default_factory=selection_optim)
    """Optimiser."""
    loop: StepLoopConfig = field(
        default_factory=lambda: StepLoopConfig(
            steps=3000, batch_size=256, eval_batch_size=5000, report_every=0, eval_every=0, checkpoint_every=0
        )
    )
    """Length of training. Cells are not evaluated before their end and write no checkpoints."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("models", self.models, PRESETS)
        check(max(self.widths) <= WIDEST, "widths", f"integers of at most {WIDEST:,}", self.widths)

    def points(self) -> list[dict[str, Any]]:
        return [{"model": model, "width": width} for width in self.widths for model in self.models]

    def run_config(self, cell: Cell) -> Theorem1Config:
        model = SelectionModelConfig(name=cell["model"], width=cell["width"])
        return Theorem1Config(seed=cell.seed, data=self.data, model=model, optim=self.optim, loop=self.loop)


class Theorem1(SweptExperiment[Theorem1Config, Prepared]):
    """Theorem 1 and appendix A of arXiv 2405.16727."""

    name = "theorem-1"
    title = "Theorem 1"
    about_train = (
        "Train one attention to select an object by a preference that depends on the receiver, and to tell a relation "
        "with what it selected, in a new run folder. Half a minute."
    )
    about_reproduce = (
        "Error of relational attention against width and temperature, beside two controls: 75 runs, about half an hour "
        "of one core. Cells that are done are skipped, so the same command continues after Ctrl-C. Writes results.csv, "
        "comparison.md and figures/ into the folder, among them the construction of the proof (constructed.csv)."
    )
    about_plot = "Table and figure from the results of one or several grids, finished or not."
    Config = Theorem1Config
    Grid = Theorem1Grid
    presets = PRESETS
    shipped: ClassVar[Mapping[str, Any]] = {
        **{f"configs/{name}.yaml": Theorem1Config(model=model) for name, model in PRESETS.items()},
        "grids/theorem-1.yaml": Theorem1Grid(out="runs/theorem-1"),
    }

    metrics = ("error", "selected", "weight", "loss")
    run_curves = ("loss", "error")
    set_title = "draws"
    counted = "draws"

    axes = (
        Axis("model", "model.name", "attention", "models", order=tuple(PRESETS), labels=LABELS),
        Axis("width", "model.width", "width of hidden layers", "widths", number=True, prefix="width"),
    )
    digests = ("data", "loop", "optim")
    measures: ClassVar[Mapping[str, str]] = {
        "error": "largest error of three relations, mean over draws",
        "error_99": "the same, 99 % of draws are below",
        "loss": "mean squared error",
        "selected": "share of draws whose best sender has the highest weight",
        "weight": "mean weight of the best sender",
    }
    decimals = 4
    y_title = "value"
    caption = "New draws after the last step"
    colours = COLOURS

    def prepare(self, config: Theorem1Config, *, cache: Path, run: Path | None = None) -> Prepared:
        device = prepare_device(config.machine)
        data = config.data
        torch.manual_seed(derive_seed(config.seed, "weights"))
        model = SelectAndRelate(config.model).to(device)
        train = Draws(data.senders, data.margin, derive_seed(config.seed, "train"), device)
        sets = {}
        for name, n in (("val", data.n_val), ("test", data.n_test)):
            x, y = draw(n, data.senders, data.margin, derive_seed(config.seed, name))
            sets[name] = TensorExamples(x, y, wanted(x, y), device=device)
        return Prepared(Problem(model=model, train=train, loss=selection_loss, evaluation=sets), device)

    def empty_model(self, config: Theorem1Config) -> nn.Module:
        with without_values():
            return SelectAndRelate(config.model)

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{LABELS[result['model']]}, width {result['width']}"

    def summary(
        self, config: Theorem1Config, prepared: Prepared, trainer: Trainer, final: Mapping[str, float]
    ) -> dict[str, Any]:
        numbers = super().summary(config, prepared, trainer, final)
        test: Any = prepared.problem.evaluation["test"]
        return {**numbers, **temperature_numbers(prepared.problem.model, test.tensors)}

    def row(self, result: Mapping[str, Any]) -> Row:
        row: Row = {key: result[key] for key in ("model", "width", "seed", "parameters")}
        row.update({name: result[name]["test"] for name in self.metrics})
        row["error_99"] = result["error_99"]
        row.update({f"error_x{factor}": error for factor, error in result["sharpened"].items()})
        numbers = {key: value if isinstance(value, str | int) else round(value, 6) for key, value in row.items()}
        return {**numbers, "steps": result["steps"], "seconds": result["seconds"]}

    def work(self, config: Theorem1Config) -> float:
        evaluated = config.data.n_val + config.data.n_test
        return config.loop.steps * config.loop.batch_size + EVALUATION_SHARE * evaluated

    def example_call(self, config: Theorem1Config) -> dict[str, Any]:
        draws = config.loop.batch_size
        return {"inputs": (torch.empty(draws, DIMENSIONS), torch.empty(draws, config.data.senders, DIMENSIONS))}

    def extra_figures(self) -> Mapping[str, Callable[[Sequence[Row], Path], None]]:
        return {
            "theorem-1.png": lambda rows, path: draw_theorem(self, rows, path),
            "constructed.csv": lambda _, path: write_constructed(path),
        }


@torch.inference_mode()
def temperature_numbers(model: nn.Module, batch: Sequence[Tensor]) -> dict[str, Any]:
    """The 99 % quantile of the error, and the mean error for scores times each factor of :data:`SHARPENED`."""
    x, y, target = batch
    model.eval()
    errors = {factor: largest_error(model(x, y, sharpness=factor).output, target) for factor in SHARPENED}
    return {
        "error_99": errors[1.0].quantile(0.99).item(),
        "sharpened": {f"{factor:g}": error.mean().item() for factor, error in errors.items()},
    }
