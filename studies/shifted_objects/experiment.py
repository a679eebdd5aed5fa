"""Relations between six objects, asked of objects whose codes were never seen.

An object is a code, a vector. A network learns on sequences of 32 objects, and is asked about sequences of other codes:
new objects, and the known ones with all codes shifted, rescaled or rotated. None of this changes an answer.

====  ==================================================================================================
same  does any object occur twice?
last  is the last object the one with the largest value? It is a coordinate of the code, always the same
====  ==================================================================================================

Shapes: B sequences, N = 6 objects, D = 16 numbers of a code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from dat.sweeps.experiment import Cost, SweptExperiment
from dat.sweeps.grid import Cell, GridConfig
from dat.sweeps.table import Axis, ResultTable
from dat.training.configs import LoopConfig, MachineConfig, OptimConfig, OutputConfig, check_integers, check_seed
from dat.training.device import prepare_device
from dat.training.experiment import Prepared, without_values
from dat.training.problem import Problem, TensorExamples, classification_loss
from dat.training.seeding import derive_seed
from dual_attention import DualAttnEncoderBlock, EncoderBlock, LearnedPositionalEmbeddings, PositionalSymbolRetriever
from dual_attention.baselines import Abstractor, CoRelNet

OBJECTS, LENGTH, CODE, WIDTH = 32, 6, 16, 32

Task = Literal["same", "last"]
Arm = Literal["transformer", "dat", "ra", "distance", "rca", "disrca", "abstractor", "corelnet"]
TASKS: tuple[Task, ...] = ("same", "last")
HEADS = {"dat": (2, 2), "ra": (0, 4), "distance": (0, 4), "rca": (0, 4), "disrca": (0, 4)}
KINDS = {"rca": "rca", "disrca": "disrca"}
DFF = {"transformer": 138, "dat": 128, "ra": 102, "distance": 118, "rca": 136, "disrca": 104, "abstractor": 68}
"""Widths of feed-forward blocks with which arms are as large as ``dat`` to 1 %: 26,978 parameters, CoRelNet 11,282."""
UNSEEN = ("new", "shifted", "rescaled", "rotated")


def distinct(n: int, generator: torch.Generator) -> Tensor:
    """Sequences of different objects by number, ``(n, 6)``."""
    return torch.rand(n, OBJECTS, generator=generator).argsort(-1)[:, :LENGTH]


def sequences(task: Task, values: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Objects by number, ``(n, 6)``, and answers ``(n,)``, as many of each kind.

    Args:
        values: of the objects, ``(32,)``.
    """
    answers = torch.arange(n) % 2
    objects = distinct(n, generator)
    if task == "same":
        places = torch.rand(n, LENGTH, generator=generator).argsort(-1)
        first, second = places[:, :1], places[:, 1:2]
        twice = objects.scatter(1, second, objects.gather(1, first))
        objects = torch.where(answers.bool()[:, None], twice, objects)
    else:
        largest = values[objects].argmax(1)
        others = torch.randint(LENGTH - 1, (n,), generator=generator)
        wanted = torch.where(answers.bool(), LENGTH - 1, others)
        moved = objects.gather(1, wanted[:, None])
        swapped = objects.scatter(1, wanted[:, None], objects.gather(1, largest[:, None]))
        objects = swapped.scatter(1, largest[:, None], moved)
    return objects, answers


def code_sets(seed: int) -> dict[str, Tensor]:
    """Codes of 32 objects, ``(32, 16)``, by the name of the set; the first coordinate is the value."""
    generator = torch.Generator().manual_seed(seed)
    known, new = torch.randn(2, OBJECTS, CODE, generator=generator)
    direction = torch.randn(CODE, generator=generator)
    turn = torch.eye(CODE)  # of all coordinates but the value
    turn[1:, 1:] = torch.linalg.qr(torch.randn(CODE - 1, CODE - 1, generator=generator))[0]
    shift = CODE**0.5 * direction / direction.norm()  # as long as a code
    return {"test": known, "new": new, "shifted": known + shift, "rescaled": 2 * known, "rotated": known @ turn.T}


class Judge(nn.Module):
    """A classifier of sequences of codes: ``(B, 6, 16) -> (B, 2)``."""

    def __init__(self, arm: Arm) -> None:
        super().__init__()
        self.embed, self.positions = (
            nn.Linear(CODE, WIDTH),
            LearnedPositionalEmbeddings(WIDTH, scale=False, dropout=0.0, max_len=LENGTH),
        )
        self.symbols = PositionalSymbolRetriever(WIDTH, LENGTH) if arm in HEADS else None
        blocks: list[Any]
        if arm == "corelnet":
            blocks, features = [CoRelNet(WIDTH, LENGTH, activation="identity", symmetric_rels=False)], LENGTH**2
        elif arm == "abstractor":
            symbols = {"symbol_dim": WIDTH, "max_length": LENGTH}
            how = {"dropout_rate": 0.0, "activation": "gelu", "norm_first": True}
            abstract = Abstractor(
                WIDTH, 2, 4, DFF[arm], **how, symbol_retrieval="positional_symbols", symbol_retrieval_kwargs=symbols
            )
            blocks, features = [abstract], WIDTH
        elif arm == "transformer":
            blocks, features = [EncoderBlock(WIDTH, 4, DFF[arm], bias=False) for _ in range(2)], WIDTH
        else:
            kind: Any = KINDS.get(arm, "relational_attention")
            distance = {"rel_score": "squared_distance", "symmetric_rels": True} if arm == "distance" else None
            made = [
                DualAttnEncoderBlock(WIDTH, *HEADS[arm], DFF[arm], ra_kwargs=distance, ra_type=kind, bias=False)
                for _ in range(2)
            ]
            blocks, features = [*made], WIDTH
        self.pools = arm != "corelnet"
        self.blocks, self.norm, self.classify = nn.ModuleList(blocks), nn.LayerNorm(features), nn.Linear(features, 2)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.embed(codes)
        if self.pools:
            x = self.positions(x)
        symbols = () if self.symbols is None else (self.symbols(x),)
        for block in self.blocks:
            x = block(x, *symbols)
        return self.classify(self.norm(x.mean(1) if self.pools else x))


def short_loop() -> LoopConfig:
    return LoopConfig(epochs=13, batch_size=64, eval_batch_size=2000, eval_every=0, checkpoint_every=0)


@dataclass(frozen=True)
class ShiftedConfig:
    """One run: train a network on sequences of known objects, and ask it about codes that it never saw."""

    experiment: str = "shifted-objects"
    seed: int = 0
    """Seed of the run; codes, sequences and initial weights derive from it."""
    task: Task = "same"
    """What is asked of the six objects."""
    arm: Arm = "dat"
    """Network."""
    n_train: int = 10_000
    """Sequences to train on."""
    optim: OptimConfig = field(default_factory=lambda: OptimConfig(lr=3e-3, schedule="cosine"))
    """Optimiser."""
    loop: LoopConfig = field(default_factory=short_loop)
    """Length of training."""
    machine: MachineConfig = field(default_factory=MachineConfig)
    """Device and threads."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    def __post_init__(self) -> None:
        check_seed(self)
        check_integers(self, "", "n_train", most=10**6)

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"shifted-{self.task}-{self.arm}-n{self.n_train}-seed{self.seed}"


@dataclass(frozen=True)
class ShiftedGrid(GridConfig):
    """Every network on every task, with few sequences and with many, for as many steps."""

    out: str = "runs/shifted-objects"
    seeds: int = 10
    arms: tuple[str, ...] = get_args(Arm)
    """Networks."""
    tasks: tuple[str, ...] = TASKS
    """What is asked."""
    sizes: tuple[int, ...] = (1000, 10_000)
    """Sequences to train on."""
    steps: int = 2000
    """Steps of 64 sequences."""

    def points(self) -> list[dict[str, Any]]:
        return [
            {"task": task, "arm": arm, "n_train": n} for n in self.sizes for task in self.tasks for arm in self.arms
        ]

    def run_config(self, cell: Cell) -> ShiftedConfig:
        n = cell["n_train"]
        loop = LoopConfig(**{**vars(short_loop()), "epochs": round(self.steps / -(-n // 64))})
        return ShiftedConfig(seed=cell.seed, task=cell["task"], arm=cell["arm"], n_train=n, loop=loop)


class ShiftedObjects(SweptExperiment[ShiftedConfig, Prepared]):
    """Sequences of objects whose codes were never seen."""

    name, title, Config, Grid = "shifted-objects", "shifted objects", ShiftedConfig, ShiftedGrid
    about: ClassVar = {"train": "Train a network on relations of known objects, and ask it about unseen codes."}
    table = ResultTable(
        axes=(
            Axis("task", "task", "task", "tasks", order=TASKS),
            Axis("arm", "arm", "network", "arms"),
            Axis("n_train", "n_train", "sequences", "sizes", number=True, prefix="n"),
        ),
        measures={name: f"accuracy, {name} codes" for name in ("test", *UNSEEN)},
        decimals=1,
        caption="New sequences after the last step",
    )

    def prepare(self, config: ShiftedConfig, *, cache: Path, run: Path | None = None) -> Prepared:
        device, sets = prepare_device(config.machine), {}
        codes = code_sets(derive_seed(config.seed, "codes"))
        for name, n in (("train", config.n_train), *((name, 2000) for name in codes)):
            generator = torch.Generator().manual_seed(derive_seed(config.seed, f"{config.task} {name}"))
            own = codes.get(name, codes["test"])
            objects, answers = sequences(config.task, own[:, 0], n, generator)
            sets[name] = TensorExamples(own[objects], answers, device=device)
        torch.manual_seed(derive_seed(config.seed, "weights"))
        model, train = Judge(config.arm).to(device), sets.pop("train")
        return Prepared(Problem(model, train, classification_loss, sets, watch=("test",)), device, chance=0.5)

    def empty_model(self, config: ShiftedConfig) -> nn.Module:
        with without_values():
            return Judge(config.arm)

    def cost(self, config: ShiftedConfig) -> Cost:
        return Cost(config.loop.epochs * config.n_train + 10_000, inputs=(torch.empty(64, LENGTH, CODE),))

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{result['task']}, {result['arm']}, {result['n_train']:,} sequences"
