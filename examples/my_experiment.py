"""A whole experiment: can a network tell from four numbers whether their sum is positive?

dat train examples/my_experiment.py --kind deep --n_train 1000 --loop.epochs 20
dat reproduce examples/my_experiment.py --out runs/sums && dat plot examples/my_experiment.py runs/sums --out plots
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import nn

from dat.sweeps.experiment import Cost, SweptExperiment
from dat.sweeps.grid import GridConfig
from dat.sweeps.table import Axis, CurvesFigure, ResultTable
from dat.training.configs import LoopConfig, MachineConfig, OptimConfig, OutputConfig
from dat.training.device import prepare_device
from dat.training.experiment import Prepared
from dat.training.problem import Problem, TensorExamples, classification_loss


@dataclass(frozen=True)
class SumsConfig:
    experiment: str = "sums"
    seed: int = 0
    kind: Literal["linear", "deep"] = "linear"
    n_train: int = 16
    """Examples."""  # a text below a field is its help on the command line
    optim: OptimConfig = field(default_factory=OptimConfig)
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=3, batch_size=8))
    machine: MachineConfig = field(default_factory=MachineConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    @property
    def run_name(self):
        return self.output.name or f"sums-{self.kind}-{self.seed}"


@dataclass(frozen=True)
class SumsGrid(GridConfig):
    def points(self):
        return [{"kind": kind, "n_train": n} for n in (8, 16) for kind in ("linear", "deep")]

    def run_config(self, cell):
        return SumsConfig(seed=cell.seed, kind=cell["kind"], n_train=cell["n_train"])


class Sums(SweptExperiment[SumsConfig, Prepared]):
    name, title, Config, Grid = "sums", "sums", SumsConfig, SumsGrid
    about: ClassVar = {"train": "Train a classifier of sums."}
    scales: ClassVar = {"tiny": SumsGrid(out="tiny", seeds=2)}  # dat reproduce … --scale tiny
    table = ResultTable(
        axes=(Axis("kind", "kind", "kind", "kinds"), Axis("n_train", "n_train", "examples", "examples", number=True)),
        measures={"val": "share right of new examples"},
        figures={"curves.png": CurvesFigure("Sums", ("val",))},
    )

    def prepare(self, config, *, cache, run=None):
        device, generator = prepare_device(config.machine), torch.Generator().manual_seed(config.seed)
        x = torch.randn(config.n_train + 32, 4, generator=generator)
        data, n = TensorExamples(x, (x.sum(-1) > 0).long(), device=device), config.n_train
        torch.manual_seed(config.seed)
        problem = Problem(network(config).to(device), data[:n], classification_loss, {"val": data[n:]})
        return Prepared(problem, device)

    def empty_model(self, config):
        return network(config).to("meta")

    def cost(self, config):  # examples trained on, and what the model takes
        return Cost(config.loop.epochs * config.n_train, inputs=(torch.empty(1, 4),))

    def headline(self, result):
        return f"{result['kind']}, {result['n_train']} examples"


def network(config):
    return nn.Linear(4, 2) if config.kind == "linear" else nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
