"""Theorem 1 as an experiment: relational attention is to select the sender of highest utility, and to relate to it.

A receiver x prefers the sender that lies where x comes to lie when it is turned by 90 degrees; what it is to tell is
three relations with that sender, of which the third is not symmetric.

Math: u(x, y) = -|A x - y|^2,  i* = argmax_i u(x, y_i),  R(x, y) = (<x, y>, |x - y|^2, sin(3 x_1 + 2 y_2))

Utility (up to a term of x only, which the softmax does not see) and relations are inner products of few features,
so relational attention with these features computes the function exactly, as its scores grow: the construction of the
proof (arXiv 2405.16727, appendix A).

Shapes: B draws, M senders, R = 3 relations, D = 3 and p = 4 features of the construction.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from dat.experiments.model_keys import NamedConfig
from dat.experiments.stream import Stream
from dat.sweeps.durations import EVALUATION_SHARE
from dat.sweeps.experiment import Cost, SweptExperiment
from dat.sweeps.grid import Cell, GridConfig
from dat.sweeps.table import Axis, ResultTable
from dat.training.configs import (
    MOST_EXAMPLES,
    WIDEST,
    MachineConfig,
    OptimConfig,
    OutputConfig,
    StepLoopConfig,
    check,
    check_integers,
    check_names,
    check_seed,
)
from dat.training.device import prepare_device
from dat.training.experiment import Prepared, without_values
from dat.training.loop import Trainer
from dat.training.metrics import Row
from dat.training.problem import Batch, Problem, TensorExamples
from dat.training.seeding import derive_seed
from dual_attention.functional import attention, relational_attention

DIMENSIONS = 2
RELATIONS = 3


def turned(x: Tensor) -> Tensor:
    """A x: turned by 90 degrees."""
    return torch.stack((-x[..., 1], x[..., 0]), -1)


def utility(x: Tensor, y: Tensor) -> Tensor:
    """u of receivers ``(B, 2)`` for senders ``(B, M, 2)``: ``(B, M)``."""
    return -(turned(x)[:, None] - y).square().sum(-1)


def relations(x: Tensor, y: Tensor) -> Tensor:
    """R of receivers ``(B, 2)`` and senders ``(B, M, 2)``: ``(B, M, 3)``."""
    x = x[:, None]
    mixed = torch.sin(3 * x[..., 0] + 2 * y[..., 1])
    return torch.stack(((x * y).sum(-1), (x - y).square().sum(-1), mixed), -1)


def wanted(x: Tensor, y: Tensor) -> Tensor:
    """R(x, Select(x, y)): ``(B, 3)``."""
    best = utility(x, y).argmax(-1)
    return relations(x, y)[torch.arange(len(x), device=x.device), best]


class Features(NamedTuple):
    """Queries and keys of the attention, ``(B, 1, 1, D)`` and ``(B, 1, M, D)``, and of relations, ``(B, 1, R, p)`` and
    ``(B, M, R, p)``."""

    q: Tensor
    k: Tensor
    u: Tensor
    w: Tensor


def draw(n: int, senders: int, margin: float, seed: int) -> tuple[Tensor, Tensor]:
    """Receivers ``(n, 2)`` and senders ``(n, senders, 2)``, uniform in [-1, 1]^2, given that the best two utilities
    differ by ``margin``; they depend on the arguments only.
    """
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.empty(n, DIMENSIONS), torch.empty(n, senders, DIMENSIONS)
    left = torch.arange(n)
    while len(left):
        x[left] = 2 * torch.rand(len(left), DIMENSIONS, generator=generator) - 1
        y[left] = 2 * torch.rand(len(left), senders, DIMENSIONS, generator=generator) - 1
        best, second = utility(x[left], y[left]).topk(2).values.unbind(-1)
        left = left[best - second < margin]
    return x, y


class Draws(Stream):
    """Receivers, senders and what is wanted of them, without end.

    Args:
        device: where batches are made.
    """

    def __init__(self, senders: int, margin: float, seed: int, device: torch.device | str = "cpu") -> None:
        self.senders, self.margin = senders, margin
        super().__init__(self._drawn, seed, device)

    def _drawn(self, n: int, seed: int) -> Batch:
        x, y = draw(n, self.senders, self.margin, seed)
        return x, y, wanted(x, y)


ModelName = Literal["relational", "symmetric", "standard"]

MOST_SENDERS = 1024
WIDEST_MARGIN = 8.0
"""Largest margin accepted, times the number of senders: with eight senders about one draw in nine has a gap of 1
between the best two, with 160 one in 500 has a gap of 0.05."""


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
        widest = min(1.0, WIDEST_MARGIN / self.senders)
        check(0 <= self.margin <= widest, "data.margin", f"a number from 0 to {widest}", self.margin)


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

    experiment: str = "theorem-1"
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


class Selected(NamedTuple):
    """Output of the attention ``(B, 3)``, and its weights ``(B, M)``."""

    output: Tensor
    weights: Tensor


def relate_to_selected(features: Features, *, scale: float, rel_scale: float = 1.0) -> Selected:
    """Relational attention as in the theorem: W_r is the identity, and there are no symbols."""
    q, k, u, w = features
    identity = torch.eye(RELATIONS, dtype=q.dtype, device=q.device)[None]
    symbols = q.new_zeros(1, 1, k.shape[2], RELATIONS)
    attended = relational_attention(q, k, u, w, symbols, identity, scale=scale, rel_scale=rel_scale, need_weights=True)
    assert attended.weights is not None  # asked for
    return Selected(attended.output[:, 0, 0], attended.weights[:, 0, 0])


def perceptron(width: int, out: int) -> nn.Sequential:
    """Two hidden layers with ReLU."""
    layers = nn.Linear(DIMENSIONS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out)
    return nn.Sequential(*layers)


class SelectAndRelate(nn.Module):
    """Attention from a receiver to its senders, by perceptrons of both.

    Args:
        config: kind, width and features.
    """

    def __init__(self, config: SelectionModelConfig) -> None:
        super().__init__()
        self.features, width = config.features, config.width
        self.query, self.key = perceptron(width, self.features), perceptron(width, self.features)
        self.value = perceptron(width, RELATIONS) if config.name == "standard" else None
        self.receiver = self.sender = None
        if self.value is None:
            self.receiver = perceptron(width, RELATIONS * self.features)
            symmetric = config.name == "symmetric"
            self.sender = self.receiver if symmetric else perceptron(width, RELATIONS * self.features)

    def forward(self, x: Tensor, y: Tensor, sharpness: float = 1.0) -> Selected:
        """Relations of receivers ``(B, 2)`` with what they select of their senders ``(B, M, 2)``.

        Args:
            sharpness: factor of the scores, the inverse of a temperature.
        """
        scale = 1 / math.sqrt(self.features)
        q, k = self.query(x)[:, None, None], self.key(y)[:, None]
        if self.value is not None:
            output, weights = attention(q, k, self.value(y)[:, None], scale=sharpness * scale, need_weights=True)
            assert weights is not None  # asked for
            return Selected(output[:, 0, 0], weights[:, 0, 0])
        assert self.receiver is not None and self.sender is not None  # whatever has no values has relations
        sizes = (RELATIONS, self.features)
        u, w = self.receiver(x)[:, None].unflatten(-1, sizes), self.sender(y).unflatten(-1, sizes)
        return relate_to_selected(Features(q, k, u, w), scale=sharpness * scale, rel_scale=scale)


def largest_error(output: Tensor, target: Tensor) -> Tensor:
    """The largest error of the three relations of each draw, ``(B,)``."""
    return (output - target).abs().amax(-1)


LABELS = {
    "relational": "relational attention",
    "symmetric": "relational, symmetric relations",
    "standard": "standard attention",
}
COLOURS = {"relational": "#1f6fb4", "symmetric": "#63b0e8", "standard": "#8c8c8c"}
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
    about: ClassVar = {
        "train": "Train one attention to select an object by a preference that depends on the receiver, and to tell "
        "a relation with what it selected, in a new run folder. Half a minute.",
        "reproduce": "Error of relational attention against width and temperature, beside two controls: 75 runs, "
        "about half an hour of one core. With the study it writes its figure and constructed.csv, too, the "
        "construction of the proof.",
    }
    Config = Theorem1Config
    Grid = Theorem1Grid
    presets = PRESETS
    table = ResultTable(
        metrics=("error", "selected", "weight", "loss"),
        run_curves=("loss", "error"),
        set_title="draws",
        counted="draws",
        axes=(
            Axis("model", "model.name", "attention", "models", order=tuple(PRESETS), labels=LABELS),
            Axis("width", "model.width", "width of hidden layers", "widths", number=True, prefix="width"),
        ),
        measures={
            "error": "largest error of three relations, mean over draws",
            "error_99": "the same, 99 % of draws are below",
            "loss": "mean squared error",
            "selected": "share of draws whose best sender has the highest weight",
            "weight": "mean weight of the best sender",
        },
        digests=("data", "loop", "optim"),
        decimals=4,
        caption="New draws after the last step",
        y_title="value",
        colours=COLOURS,
    )

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
        row.update({name: result[name]["test"] for name in self.table.metrics})
        row["error_99"] = result["error_99"]
        row.update({f"error_x{factor}": error for factor, error in result["sharpened"].items()})
        numbers = {key: value if isinstance(value, str | int) else round(value, 6) for key, value in row.items()}
        return {**numbers, "steps": result["steps"], "seconds": result["seconds"]}

    def cost(self, config: Theorem1Config) -> Cost:
        evaluated, draws = config.data.n_val + config.data.n_test, config.loop.batch_size
        inputs = torch.empty(draws, DIMENSIONS), torch.empty(draws, config.data.senders, DIMENSIONS)
        return Cost(config.loop.steps * draws + EVALUATION_SHARE * evaluated, inputs=inputs)


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
