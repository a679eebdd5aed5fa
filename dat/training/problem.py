"""The problem that the training loop solves, and batches of data that fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .optim import Factors

Batch = tuple[Tensor, ...]
LossFunction = Callable[[nn.Module, Batch], tuple[Tensor, dict[str, Tensor]]]
"""``loss(model, batch)`` returns the mean loss, a scalar with its graph, and further scalar means over the batch."""
Derive = Callable[[Mapping[str, Any]], Mapping[str, float | None]]
"""``derive(row)`` returns further numbers that follow from those of a row and how many ``processes`` there are, as a
perplexity follows from a mean loss; None where one is not known. At the end it is given the means over evaluation sets
alone."""
Weigh = Callable[[Batch], Tensor]
"""``weigh(batch)`` returns how many things the loss, or a metric, of a batch is a mean over, a scalar on its device."""


def nothing(row: Mapping[str, Any]) -> dict[str, float | None]:
    """No further numbers."""
    return {}


class Examples(Protocol):
    """A set of examples from which batches are taken by index."""

    def __len__(self) -> int:
        """Number of examples."""
        ...

    def batch(self, indices: Tensor) -> Batch:
        """The examples at ``indices``, a 1-D int64 tensor on the CPU, on the device of the model."""
        ...


@dataclass(frozen=True)
class Problem:
    """A model to train on ``train`` by ``loss`` and to evaluate on every set in ``evaluation``.

    ``watch`` names the evaluation sets looked at during training; all are evaluated after the last epoch. ``derive``
    adds to each row of metrics. ``factors`` are those of learning rates by muP, by the names of parameters, if the
    model was scaled by it (:mod:`.mup`).

    ``weigh`` is for losses that are means over something of which examples have different numbers, such as scored
    tokens: so a step that is divided, and an evaluation, has the loss of all of its examples at once.
    ``metric_weights`` is the same for metrics, by the parts of their names before a slash. A ``model`` on the meta
    device has a function ``draw`` that gives it its initial values on whatever device it is then (:mod:`.deferred`).
    ``per_step`` says how many ``tokens`` or ``words`` a step takes, of those by which milestones are given.

    ``own_loss`` is in place of ``loss`` where a user's own objective trains, and passes to the module that it is given,
    ``taught``, what :class:`.objective.Objective` is called with; None takes no such objective.
    """

    model: nn.Module
    train: Examples
    loss: LossFunction
    evaluation: Mapping[str, Examples] = field(default_factory=dict)
    watch: tuple[str, ...] = ("val",)
    derive: Derive = nothing
    factors: Mapping[str, Factors] | None = None
    weigh: Weigh | None = None
    metric_weights: Mapping[str, Weigh] = field(default_factory=dict)
    draw: Callable[[], None] | None = None
    per_step: Mapping[str, float] = field(default_factory=dict)
    own_loss: LossFunction | None = None
    taught: Any = None

    def __post_init__(self) -> None:
        if len(self.train) == 0:
            raise ValueError("train: expected at least one example, got an empty set")
        for name, examples in self.evaluation.items():
            if len(examples) == 0:
                raise ValueError(f"evaluation: expected at least one example in {name}, got an empty set")

    @property
    def watched(self) -> tuple[str, ...]:
        """The sets of ``watch`` that there are; the loss of the first may end training early."""
        return tuple(name for name in self.watch if name in self.evaluation)

    @property
    def step_loss(self) -> LossFunction:
        """The loss that training lowers, of ``taught`` if that is there, and of ``model`` otherwise."""
        return self.loss if self.taught is None or self.own_loss is None else self.own_loss

    @property
    def weights(self) -> dict[str, Weigh]:
        """Weights of the means of a batch, the loss and metrics, where they are not its number of examples."""
        return {**self.metric_weights, **({"loss": self.weigh} if self.weigh is not None else {})}


class TensorExamples:
    """Examples kept whole in memory: tensors whose first axis counts the examples.

    Args:
        tensors: :meth:`batch` takes rows of each.
        device: where they are kept and batches are made.

    Raises:
        ValueError: if the tensors do not hold equally many examples.
    """

    def __init__(self, *tensors: Tensor, device: torch.device | str = "cpu") -> None:
        sizes = [len(tensor) for tensor in tensors]
        if len(set(sizes)) != 1:
            raise ValueError(f"tensors: expected as many examples in each, got {' and '.join(map(str, sizes))}")
        self.tensors = tuple(tensor.to(device) for tensor in tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, part: slice) -> TensorExamples:
        """Some of the examples."""
        return type(self)(*(tensor[part] for tensor in self.tensors), device=self.tensors[0].device)

    def batch(self, indices: Tensor) -> Batch:
        indices = indices.to(self.tensors[0].device)
        return tuple(tensor[indices] for tensor in self.tensors)


class ImageExamples(TensorExamples):
    """Labelled images kept whole in memory as uint8 and turned into float32 in 0..1 batch by batch.

    Args:
        images: (n, channels, height, width), uint8.
        labels: (n,), int64.
        device: where both are kept and batches are made.
    """

    def __init__(self, images: Tensor, labels: Tensor, device: torch.device | str = "cpu") -> None:
        if images.dtype != torch.uint8 or images.dim() != 4:
            raise ValueError(f"images: expected uint8 (n, c, h, w), got {images.dtype} {tuple(images.shape)}")
        if labels.shape != images.shape[:1]:
            raise ValueError(f"labels: expected shape {tuple(images.shape[:1])}, got {tuple(labels.shape)}")
        super().__init__(images, labels, device=device)

    def batch(self, indices: Tensor) -> Batch:
        images, labels = super().batch(indices)
        return images.to(torch.float32).div_(255.0), labels


def classification_loss(model: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy of ``model(inputs)``, logits (batch, classes), against labels (batch,); also the accuracy."""
    inputs, labels = batch
    logits = model(inputs)
    accuracy = (logits.detach().argmax(dim=-1) == labels).to(torch.float32).mean()
    return nn.functional.cross_entropy(logits, labels), {"accuracy": accuracy}
