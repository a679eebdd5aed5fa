"""The parts of a configuration that every experiment shares: frozen dataclasses, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from torch import Tensor


def check(condition: bool, argument: str, expected: str, value: object) -> None:
    """Raise ``ValueError("<argument>: expected <expected>, got <value>")`` unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"{argument}: expected {expected}, got {value!r}")


def check_integers(config: Any, group: str, *names: str, least: int = 1) -> None:
    """Check that fields of ``config``, the group of keys ``group``, are at least ``least``, or null if they may be."""
    for about in fields(config):
        if about.name in names:
            value = getattr(config, about.name)
            expected = f"an integer of at least {least}{' or null' if 'None' in str(about.type) else ''}"
            check(value is None or value >= least, f"{group}.{about.name}".lstrip("."), expected, value)


@dataclass(frozen=True)
class OptimConfig:
    """Optimiser and learning-rate schedule."""

    optimizer: Literal["adam", "adamw"] = "adam"
    """Optimiser: Adam with L2 weight decay, or AdamW with decoupled weight decay."""
    lr: float = 1e-3
    """Learning rate (its peak, when there is a schedule)."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Decay rates of Adam's running means of the gradient and of its square."""
    eps: float = 1e-8
    """Added to Adam's denominator."""
    weight_decay: float = 0.0
    """Weight decay of every parameter."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate after the warm-up: constant, or a half cosine that ends at zero with the last step."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises linearly from zero."""
    grad_clip: float | None = None
    """Largest norm of the whole gradient; null leaves gradients as they are."""

    def __post_init__(self) -> None:
        check(self.lr > 0, "optim.lr", "a positive number", self.lr)
        check(all(0 <= beta < 1 for beta in self.betas), "optim.betas", "two numbers in [0, 1)", self.betas)
        check(self.eps > 0, "optim.eps", "a positive number", self.eps)
        check(self.weight_decay >= 0, "optim.weight_decay", "a number of at least 0", self.weight_decay)
        check(self.warmup_steps >= 0, "optim.warmup_steps", "an integer of at least 0", self.warmup_steps)
        clip = self.grad_clip
        check(clip is None or clip > 0, "optim.grad_clip", "a positive number or null", clip)

    @property
    def lowest_lr(self) -> float:
        """Learning rate at which a cosine ends."""
        return 0.0

    def decays(self, parameter: Tensor) -> bool:
        """Whether the weight decay is of this parameter."""
        return True


@dataclass(frozen=True)
class LoopConfig:
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

    def __post_init__(self) -> None:
        check_integers(self, "loop", "epochs", "batch_size", "eval_batch_size")
        check_integers(self, "loop", "eval_every", "checkpoint_every", least=0)


@dataclass(frozen=True)
class StepLoopConfig:
    """Length of training in steps, for data that is a stream rather than a set to pass through."""

    steps: int = 1000
    """Optimiser steps."""
    batch_size: int = 32
    """Examples in one optimiser step."""
    micro_batch_size: int | None = None
    """Examples in one forward and backward pass; gradients of a step are added up. Changes memory and speed, and
    results by rounding only. null takes the whole batch at once."""
    eval_batch_size: int = 32
    """Examples in one forward pass of an evaluation; changes memory and speed only."""
    report_every: int = 10
    """Steps between rows of metrics; 0 leaves those of evaluations and checkpoints."""
    eval_every: int = 250
    """Steps between evaluations on the validation set; 0 evaluates only after the last step."""
    checkpoint_every: int = 500
    """Steps between checkpoints; Ctrl-C writes one more, after any step. 0 writes only that one."""

    def __post_init__(self) -> None:
        check_integers(self, "loop", "steps", "batch_size", "micro_batch_size", "eval_batch_size")
        check_integers(self, "loop", "report_every", "eval_every", "checkpoint_every", least=0)


@dataclass(frozen=True)
class MachineConfig:
    """Device and threads. Results are reproduced to the bit only with the same device and number of threads."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device: a CUDA GPU when there is one (auto), or the one named."""
    threads: int | None = None
    """CPU threads; null takes PyTorch's choice, one for each core."""

    def __post_init__(self) -> None:
        check_integers(self, "machine", "threads")


@dataclass(frozen=True)
class OutputConfig:
    """Run folder, and display meanwhile."""

    folder: str = "runs"
    """Folder that holds the run folders."""
    name: str | None = None
    """Name of the run folder; null makes one from the task, model, training-set size and seed."""
    tensorboard: bool = True
    """Write TensorBoard event files beside metrics.jsonl."""
    progress: bool = True
    """Show progress: a live bar on a terminal, one line an evaluation elsewhere. False prints nothing."""
