"""The parts of a configuration that every experiment shares: frozen dataclasses, checked when they are made."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from math import ceil, inf
from pathlib import Path, PurePath
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from dual_attention._base.words import listed, printable, suggestion

from .._own_code import check_given


def check(condition: bool, argument: str, expected: str, value: object) -> None:
    """Raise ``ValueError("<argument>: expected <expected>, got <value>")`` unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"{argument}: expected {expected}, got {value!r}")


def check_integers(config: Any, group: str, *names: str, least: int = 1, most: int | None = None) -> None:
    """Check that fields of ``config``, the group of keys ``group``, are at least ``least`` and, if there is such a
    limit, at most ``most``; or null if they may be.
    """
    for about in fields(config):
        if about.name in names:
            value = getattr(config, about.name)
            key, or_null = f"{group}.{about.name}".lstrip("."), " or null" if "None" in str(about.type) else ""
            check(value is None or value >= least, key, f"an integer of at least {least}{or_null}", value)
            if most is not None:
                expected = f"an integer from {least} to {most:,}{or_null}"
                check(value is None or value <= most, key, expected, value)


def check_positive_numbers(config: Any, group: str, *names: str) -> None:
    """Check that fields of ``config``, the group of keys ``group``, are positive and finite; or null if they may be."""
    for about in fields(config):
        if about.name in names:
            value, or_null = getattr(config, about.name), " or null" if "None" in str(about.type) else ""
            fits = value is None or 0 < value < inf
            check(fits, f"{group}.{about.name}", f"a positive number{or_null}", value)


def check_seed(config: Any, group: str = "", name: str = "seed") -> None:
    """Check that a field of ``config`` is a seed that a generator takes, an integer of 64 bits, or null."""
    seed = getattr(config, name)
    allowed = seed is None or -(1 << 63) <= seed < 1 << 64
    check(allowed, f"{group}.{name}".lstrip("."), "an integer of 64 bits, from -2**63 to 2**64 - 1", seed)


def check_names(argument: str, names: Collection[str], known: Collection[str]) -> None:
    """Check that all ``names`` are known ones."""
    for name in names:
        if name not in known:
            raise ValueError(
                f"{argument}: expected names among {listed(list(known))}, got {name!r}{suggestion(name, known)}"
            )


def value_named(argument: str, values: Mapping[str, Any], name: str) -> Any:
    """The one of ``values`` that has the name; ``ValueError`` naming the known ones, if there is none."""
    if name not in values:
        raise ValueError(f"{argument}: expected one of {listed(list(values))}, got {name!r}{suggestion(name, values)}")
    return values[name]


def check_inside(argument: str, name: str, folder: str) -> None:
    """Check that a name is one of a folder inside of another."""
    path = PurePath(name)
    inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts and name == printable(name)
    check(inside and len(name) <= 200, argument, f"the name of a folder inside {folder}", name)


MOST_THREADS = 1024
"""Threads of a process, and processes of a grid."""
MOST_EXAMPLES = 10_000_000
"""Examples of a set that is kept in memory, and of a batch."""
MOST_STEPS = 10_000_000
"""Steps of a training; a model of 10**12 tokens has a tenth of them."""
MOST_EPOCHS = 1_000_000
"""Passes through a set."""
WIDEST = 1 << 20
"""Width, heads, relations and symbols of a model."""


OptimizerName = Literal["adam", "adamw", "muon"]
ScheduleName = Literal["constant", "cosine", "wsd"]


@dataclass(frozen=True)
class OptimConfig:
    """Optimiser and learning-rate schedule."""

    optimizer: OptimizerName = "adam"
    """Optimiser: Adam with L2 weight decay, AdamW with decoupled weight decay, or Muon for the matrices of hidden
    layers beside AdamW for everything else."""
    lr: float = 1e-3
    """Learning rate (its peak, when there is a schedule)."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Decay rates of Adam's running means of the gradient and of its square."""
    eps: float = 1e-8
    """Added to Adam's denominator."""
    weight_decay: float = 0.0
    """Weight decay of every parameter."""
    schedule: ScheduleName = "constant"
    """Learning rate after the warm-up: constant, a half cosine that ends at zero with the last step, or constant until
    it falls to zero on a line (warm-up, stable, decay; see decay_steps)."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises linearly from zero."""
    decay_steps: int | None = None
    """Last steps, over which the learning rate falls with schedule=wsd; null takes a fifth of all steps,
    or as many as follow the warm-up if they are fewer."""
    grad_clip: float | None = None
    """Largest norm of the whole gradient; null leaves gradients as they are."""
    muon_lr: float | None = None
    """Learning rate of Muon's matrices, at the peak of the same schedule; null takes lr, since Muon's steps are made
    as large as those of AdamW."""
    muon_momentum: float = 0.95
    """Momentum of Muon."""
    mup_base_width: int | None = None
    """Width (model.d_model) at which lr and the initial weights are as they say; those of the model follow by muP, so
    that what is tuned at this width serves others. null leaves all as it is."""
    average_decay: float | None = None
    """Decay of the moving average of the weights, 0.999 for instance, which evaluations and the final weights are then
    of; training goes on with the weights themselves. Early steps are averaged over fewer. null keeps no average."""

    def __post_init__(self) -> None:
        check_positive_numbers(self, "optim", "lr", "eps", "grad_clip")
        check(all(0 <= beta < 1 for beta in self.betas), "optim.betas", "two numbers in [0, 1)", self.betas)
        decay = self.weight_decay
        check(0 <= decay < inf, "optim.weight_decay", "a number of at least 0", decay)
        check_integers(self, "optim", "warmup_steps", least=0, most=MOST_STEPS)
        check_integers(self, "optim", "decay_steps", most=MOST_STEPS)
        fits = self.decay_steps is None or self.schedule == "wsd"
        check(fits, "optim.decay_steps", "null without optim.schedule=wsd", self.decay_steps)
        muon, momentum = self.muon_lr, self.muon_momentum
        only = " or null" if self.optimizer == "muon" else f", with optim.optimizer={self.optimizer} only null"
        fits = muon is None or (self.optimizer == "muon" and 0 < muon < inf)
        check(fits, "optim.muon_lr", f"a positive number{only}", muon)
        check(0 <= momentum < 1, "optim.muon_momentum", "a number in [0, 1)", momentum)
        check_integers(self, "optim", "mup_base_width", most=WIDEST)
        average = self.average_decay
        check(average is None or 0 < average < 1, "optim.average_decay", "a number between 0 and 1 or null", average)
        if self.optimizer == "adam" and decay > 0:
            expected = "null with L2 weight decay (optimizer=adam), which no factor makes the same at all widths"
            check(self.mup_base_width is None, "optim.mup_base_width", expected, self.mup_base_width)

    @property
    def lowest_lr(self) -> float:
        """Learning rate at which a schedule ends."""
        return 0.0

    @property
    def held_steps(self) -> int:
        """Steps that share a learning rate, that of the first of them."""
        return 1

    @property
    def cosine_steps(self) -> int | None:
        """Steps of the half cosine; None ends it with the last step of training."""
        return None

    def decays(self, parameter: Tensor) -> bool:
        """Whether the weight decay is of this parameter."""
        return True


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Beginning of a training, what is noted of it, and its early end."""

    continue_from: str | None = None
    """Run of the same data, model and seed, or one of its checkpoints, RUN/checkpoints/NAME, that a new run goes on
    from: its weights, optimiser and place in the data. Steps and learning rates may differ. null begins anew."""
    weights_from: str | None = None
    """Trained model whose weights a new run begins with, and nothing else of it: a run or one of its checkpoints, a
    folder, or OWNER/NAME on the hub. Widths are the same; the new model may have more tokens and another context. null
    draws the weights."""
    objective: str | None = None
    """Class of yours that says what training learns, FILE.py:CLASS or MODULE:CLASS; it is executed. Evaluations keep
    the loss of the experiment, which null trains by."""
    objective_options: dict[str, bool | int | float | str] | None = None
    """Values of the fields of that class, {NAME: VALUE, ...}; null leaves their defaults."""
    activation_stats: bool = False
    """Note in each row the root mean square of the residual stream after each block, of one more forward pass."""
    stop_patience: int | None = None
    """Evaluations without a lower loss on the validation set after which training ends. The final weights are the last
    ones; the checkpoint with the lowest loss is kept, too. null trains to the end."""

    def check_common(self, eval_every: int) -> None:
        """Check these keys; evaluations come every so often."""
        both = self.continue_from is not None and self.weights_from is not None
        check(not both, "loop.weights_from", "null with loop.continue_from", self.weights_from)
        fits = self.objective is not None or self.objective_options is None
        check(fits, "loop.objective_options", "null without loop.objective", self.objective_options)
        check_integers(self, "loop", "stop_patience", most=MOST_STEPS)
        fits = self.stop_patience is None or eval_every > 0
        check(fits, "loop.stop_patience", "null with loop.eval_every=0", self.stop_patience)


@dataclass(frozen=True)
class LoopConfig(TrainingConfig):
    """Length of training, batch sizes, and how often to evaluate and to save."""

    epochs: int = 50
    """Passes through the training set."""
    batch_size: int = 512
    """Examples in one optimiser step; the last, smaller batch of an epoch is kept."""
    eval_batch_size: int = 1000
    """Examples in one forward pass of an evaluation; changes memory and speed only."""
    eval_every: int = 5
    """Epochs between evaluations on the validation set; 0 evaluates only after the last epoch."""
    checkpoint_every: int = 5
    """Epochs between checkpoints; Ctrl-C writes one more, in the middle of an epoch. 0 writes only that one."""
    measure_at: tuple[int, ...] = ()
    """Epochs after which all sets are measured, too, as they are after the last: with a constant learning rate, what
    shorter runs end with. Training is the same with and without."""

    def __post_init__(self) -> None:
        self.check_common(self.eval_every)
        check_integers(self, "loop", "epochs", most=MOST_EPOCHS)
        inside = all(1 <= epoch <= self.epochs for epoch in self.measure_at)
        expected = f"different epochs from 1 to {self.epochs:,} (loop.epochs)"
        check(inside and len({*self.measure_at}) == len(self.measure_at), "loop.measure_at", expected, self.measure_at)
        check_integers(self, "loop", "batch_size", "eval_batch_size", most=MOST_EXAMPLES)
        check_integers(self, "loop", "eval_every", "checkpoint_every", least=0)


@dataclass(frozen=True)
class StepLoopConfig(TrainingConfig):
    """Length of training in steps, for data that is a stream rather than a set to pass through."""

    steps: int = 1000
    """Optimiser steps."""
    batch_size: int = 32
    """Examples in one optimiser step."""
    micro_batch_size: int | None = None
    """Examples in one forward and backward pass; gradients of a step are added up. Changes memory and speed, and
    without dropout results by rounding only. null takes the whole batch at once."""
    eval_batch_size: int = 32
    """Examples in one forward pass of an evaluation; changes memory and speed only."""
    report_every: int = 10
    """Steps between rows of metrics; 0 leaves those of evaluations and checkpoints. Memory holds the indices of all
    examples between two rows, 8 bytes each."""
    eval_every: int = 250
    """Steps between evaluations on the validation set; 0 evaluates only after the last step."""
    checkpoint_every: int = 500
    """Steps between checkpoints; Ctrl-C writes one more, after any step. 0 writes only that one."""
    milestones: tuple[int, ...] = ()
    """Steps after which a checkpoint is written that is kept; of others only the newest two are."""
    milestone_tokens: tuple[int, ...] = ()
    """Tokens of training after which the same is done, with the first step that reaches them."""
    milestone_words: tuple[int, ...] = ()
    """Words after which the same is done, counted in the text to train on, where white space separates them."""

    def __post_init__(self) -> None:
        self.check_common(self.eval_every)
        check_integers(self, "loop", "steps", most=MOST_STEPS)
        self.steps_of("milestones", 1)
        check_integers(self, "loop", "batch_size", "micro_batch_size", "eval_batch_size", most=MOST_EXAMPLES)
        check_integers(self, "loop", "report_every", "eval_every", "checkpoint_every", least=0)

    def steps_of(self, name: str, per_step: float) -> set[int]:
        """The first steps after which milestones of some key are reached, of which each step brings so many.

        Raises:
            ValueError: naming the key, if one of them is none or past the end.
        """
        values, most = getattr(self, name), int(self.steps * per_step)
        expected = f"different integers from 1 to {most:,}, what loop.steps={self.steps:,} has"
        inside = all(1 <= value <= most for value in values)
        check(inside and len({*values}) == len(values), f"loop.{name}", expected, values)
        return {min(ceil(value / per_step), self.steps) for value in values}  # rounding may add one


@dataclass(frozen=True)
class MachineConfig:
    """Device and threads. Results are reproduced to the bit only with the same device and number of threads."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device: a CUDA GPU when there is one (auto), or the one named."""
    threads: int | None = None
    """CPU threads; null takes PyTorch's choice, one for each core."""

    def __post_init__(self) -> None:
        check_integers(self, "machine", "threads", most=MOST_THREADS)


@dataclass(frozen=True)
class PrecisionMachineConfig(MachineConfig):
    """Device, threads and precision; results are reproduced to the bit only with the same device and threads."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products: float32, or bfloat16 by autocast; parameters are float32 always."""

    @property
    def autocast(self) -> torch.dtype | None:
        """The precision of autocast; None without it."""
        return {"float32": None, "bfloat16": torch.bfloat16}[self.precision]


@dataclass(frozen=True)
class ParallelMachineConfig(PrecisionMachineConfig):
    """Device, threads and precision of each process, and the share of the model that it holds."""

    parallel: Literal["replicate", "shard"] = "replicate"
    """Model of the processes that torchrun starts: replicate, a copy in each (DDP), or shard, a part of each weight,
    gradient and state of the optimiser in each, which are put together block by block (FSDP2)."""
    shard_size: int | None = None
    """Processes that share one model, with parallel=shard; the next ones share a copy of it (HSDP). null shares one
    among all."""
    context_parallel: int = 1
    """Processes that share each sequence, neighbours by rank, so that its length is bounded by the memory of all: each
    computes its part of the tokens, and keys and symbols are gathered. A divisor of their number and of the length."""
    peak_flops: float | Literal["measured"] | None = None
    """Operations a second that a device can do at most, in its precision, of which the metric mfu is a share; measured
    times products of matrices before training. null takes those of a known GPU; elsewhere mfu is null."""
    compile: bool = False
    """Compile each block with torch.compile, which needs a C++ compiler on CPUs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "machine", "shard_size", "context_parallel")
        peak = self.peak_flops
        positive = isinstance(peak, str) or peak is None or 0 < peak < inf
        check(positive, "machine.peak_flops", "a positive number, measured or null", peak)
        expected = "null with machine.parallel=replicate"
        check(not (self.compile and self.context_parallel > 1), "machine.compile", "false with context_parallel", True)
        check(self.shard_size is None or self.parallel == "shard", "machine.shard_size", expected, self.shard_size)


@dataclass(frozen=True)
class OutputConfig:
    """Run folder, and display meanwhile."""

    folder: str = "runs"
    """Folder that holds the run folders."""
    name: str | None = None
    """Name of the run folder; null makes one from the task, model, training-set size and seed."""
    tensorboard: bool = True
    """Write TensorBoard event files beside metrics.jsonl."""
    tracker: Literal["wandb", "trackio"] | None = None
    """Send the rows of metrics to Weights & Biases or to trackio, too (the extra of that name); null to none."""
    project: str | None = None
    """Project of that tracker; null takes the name of the experiment."""
    callbacks: tuple[str, ...] = ()
    """Classes of yours that are told how training goes, FILE.py:CLASS or MODULE:CLASS; they are executed, in the first
    process."""
    progress: bool = True
    """Show progress: a live bar on a terminal, one line an evaluation elsewhere. False prints nothing."""

    def __post_init__(self) -> None:
        for name in ("folder", "name"):
            text = getattr(self, name)
            check(text is None or (text != "" and text == printable(text)), f"output.{name}", "a text to print", text)
        check(len({*self.callbacks}) == len(self.callbacks), "output.callbacks", "different classes", self.callbacks)
        fits = self.project is None or (self.tracker is not None and self.project == printable(self.project) != "")
        check(fits, "output.project", "a text to print with output.tracker, otherwise null", self.project)
        if self.name is not None:
            check_inside("output.name", self.name, "output.folder")


class RunConfig(Protocol):
    """Keys of every run's configuration, ``experiment`` first; an experiment's own is a frozen dataclass with more.

    ``experiment`` is the name of the experiment, ``run_name`` that of the run folder.
    """

    @property
    def experiment(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def optim(self) -> OptimConfig: ...
    @property
    def loop(self) -> LoopConfig | StepLoopConfig: ...
    @property
    def machine(self) -> MachineConfig: ...
    @property
    def output(self) -> OutputConfig: ...
    @property
    def run_name(self) -> str: ...


def own_names(config: RunConfig) -> list[str]:
    """The classes of the user's own that a configuration names."""
    others = [name for name in (config.loop.objective, *config.output.callbacks) if name is not None]
    return [*others, *model_parts(config).values()]


def model_parts(config: RunConfig) -> dict[str, str]:
    """The parts of a model among them, by the keys that name them."""
    return getattr(getattr(config, "model", None), "parts", {})


def check_parts_given(config: RunConfig, source: Path) -> None:
    """Raise ``ValueError`` for the first part of the model of a run, in the folder ``source``, that the user has not
    named.
    """
    for key, name in model_parts(config).items():
        check_given(name, key, source=source)
