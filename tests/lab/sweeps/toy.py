"""A whole experiment: a linear classifier tells whether the sum of some random numbers is positive."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from dat.sweeps.experiment import Axis, CurvesFigure, SweptExperiment
from dat.sweeps.grid import Cell, GridConfig
from dat.training.configs import LoopConfig, MachineConfig, OptimConfig, OutputConfig
from dat.training.device import prepare_device
from dat.training.experiment import Prepared
from dat.training.problem import Problem, TensorExamples, classification_loss


@dataclass(frozen=True)
class ToyConfig:
    experiment: Literal["toy"] = "toy"
    """Experiment of the run."""
    seed: int = 0
    """Seed of the run."""
    kind: Literal["linear", "deep"] = "linear"
    """Kind of network."""
    n_train: int = 16
    """Examples."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimiser."""
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=3, batch_size=8))
    """Length of training."""
    machine: MachineConfig = field(default_factory=MachineConfig)
    """Device and threads."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    @property
    def run_name(self) -> str:
        return self.output.name or "toy"


@dataclass(frozen=True)
class ToyGrid(GridConfig):
    def points(self) -> list[dict[str, Any]]:
        return [{"kind": kind, "n_train": n} for n in (8, 16) for kind in ("linear", "deep")]

    def run_config(self, cell: Cell) -> ToyConfig:
        return ToyConfig(seed=cell.seed, kind=cell["kind"], n_train=cell["n_train"])


class Toy(SweptExperiment[ToyConfig, Prepared]):
    name, title, about_train, Config, Grid = "toy", "sums", "Train a classifier of sums.", ToyConfig, ToyGrid
    axes = (Axis("kind", "kind", "kind", "kinds"), Axis("n_train", "n_train", "examples", "examples", number=True))
    measures: ClassVar = {"val": "new examples"}
    scales: ClassVar = {"tiny": ToyGrid(out="tiny", seeds=2)}
    figures = (CurvesFigure("curves.png", "Sums", ("val",)),)

    def prepare(self, config, *, cache, run=None):
        device, generator = prepare_device(config.machine), torch.Generator().manual_seed(config.seed)
        x = torch.randn(config.n_train + 32, 4, generator=generator)
        data, n = TensorExamples(x, (x.sum(-1) > 0).long(), device=device), config.n_train
        torch.manual_seed(config.seed)
        problem = Problem(self.network(config).to(device), data[:n], classification_loss, {"val": data[n:]})
        return Prepared(problem, device)

    def network(self, config):
        return (
            nn.Linear(4, 2) if config.kind == "linear" else nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        )

    def empty_model(self, config):
        return self.network(config).to("meta")

    def headline(self, result):
        return f"{result['kind']}, {result['n_train']} examples"
