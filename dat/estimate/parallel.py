"""Training on several devices: what each of them holds, and what it sends in a step.

Bytes sent are those of ring algorithms among n devices, which no algorithm undercuts: (n - 1) / n of all that is
gathered or reduced and scattered, and twice that of what is reduced for all. Losses, norms and flags, a few numbers a
step, are left out.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from ..training.sharding_groups import ShardingGroup, sharding_groups
from .result import Estimate
from .units import aligned, nbytes

Sharding = Literal["ddp", "fsdp", "hsdp"]


class Group(NamedTuple):
    """Numbers of one group of parameters, which is gathered at once.

    Attributes:
        whole: all of them, padded so that every device has as many.
        part: those of one device.
        learning_whole, learning_part: likewise, of those that learn.
        itemsize: bytes of a number when it is gathered.
        is_root: it stays gathered between the forward and the backward pass.
    """

    whole: int
    part: int
    learning_whole: int
    learning_part: int
    itemsize: int
    is_root: bool


@dataclass(frozen=True)
class ParallelEstimate:
    """Costs of a training step on several devices; memory and bytes sent are those of one device, the fullest.

    Attributes:
        shard: ``ddp``, a copy of the model on each; ``fsdp``, a part of it on each; ``hsdp``, a part of it on each of
            ``shard_size`` devices, and copies of these.
        devices, shard_size: numbers of devices, all and those that share one model.
        batch, passes: sequences of a forward and backward pass of a device, and passes of a step.
        parameter_bytes, gradient_bytes, optimizer_bytes: kept from step to step (gradients within one).
        gathered_bytes: parameters put together, and their gradients before they are shared out: the group that stays
            gathered, and the two largest others.
        activation_bytes: activations, transient memory and copies in another dtype.
        gather_bytes: sent in a step to put parameters together.
        scatter_bytes: sent to add up gradients and share them out.
        reduce_bytes: sent to add up gradients among copies.
        checkpoint_bytes: on the disk, of the whole model and optimiser.
    """

    shard: Sharding
    devices: int
    shard_size: int
    batch: int
    passes: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    gathered_bytes: int
    activation_bytes: int
    gather_bytes: float
    scatter_bytes: float
    reduce_bytes: float
    checkpoint_bytes: int

    @property
    def device_bytes(self) -> int:
        """Memory of a device at the worst moment of a step, without what an allocator adds."""
        kept = self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes
        return kept + self.gathered_bytes + self.activation_bytes

    @property
    def sent_bytes(self) -> float:
        """Bytes that a device sends in a step."""
        return self.gather_bytes + self.scatter_bytes + self.reduce_bytes

    def to_dict(self) -> dict[str, Any]:
        """All figures under their names, for JSON."""
        return {**vars(self), "device_bytes": self.device_bytes, "sent_bytes": self.sent_bytes}

    def __str__(self) -> str:
        return "\n".join(aligned(_in_words(self)))


def parallel_estimate(
    model: nn.Module, costs: Estimate, *, shard: Sharding, devices: int, shard_size: int | None = None, passes: int = 1
) -> ParallelEstimate:
    """Estimate memory and communication of a training step on several devices.

    Args:
        model: any module of the library, as :func:`.estimate` was given it; on the meta device, for instance.
        costs: of one forward and backward pass of one device.
        shard: how the model is placed, see :class:`ParallelEstimate`.
        devices: all of them.
        shard_size: devices that share one model with ``hsdp``.
        passes: forward and backward passes of a step, whose gradients are added up.

    Raises:
        ValueError: if ``shard_size`` is missing or out of place, or does not divide ``devices``; or if ``costs`` are
            those of a forward pass only.
    """
    if not costs.training:
        raise ValueError("costs: expected those of training, got those of a forward pass")
    if (shard == "hsdp") != (shard_size is not None):
        expected = "a divisor of the devices" if shard == "hsdp" else f"None with shard={shard!r}"
        raise ValueError(f"shard_size: expected {expected}, got {shard_size}")
    size = {"ddp": 1, "fsdp": devices, "hsdp": shard_size}[shard] or 1
    if devices % size:
        raise ValueError(f"shard_size: expected a divisor of {devices} devices, got {size}")
    stored = costs.param_dtype.itemsize
    lowered = costs.dtype if costs.dtype != costs.param_dtype else None
    found = groups(model, size, stored, lowered)
    learning = sum(group.learning_part for group in found)
    among, copies = (size - 1) / size, devices // size
    activations = costs.activation_bytes + costs.transient_bytes
    if shard == "ddp":
        gathered, gather, scatter = 0, 0.0, 0.0
        activations += costs.cast_bytes
    else:
        largest = sorted((group for group in found if not group.is_root), key=lambda g: g.whole * g.itemsize)[-2:]
        at_once = [*(group for group in found if group.is_root), *largest]
        gathered = sum(group.whole * group.itemsize + group.learning_whole * stored for group in at_once)
        gather = among * passes * sum((1 if g.is_root else 2) * g.whole * g.itemsize for g in found)
        scatter = among * passes * sum(group.learning_whole * stored for group in found)
        if lowered is not None:  # of what is gathered in full precision, products take copies
            activations += sum(group.whole * lowered.itemsize for group in found if group.is_root)
    return ParallelEstimate(
        shard=shard,
        devices=devices,
        shard_size=size,
        batch=costs.batch,
        passes=passes,
        parameter_bytes=sum(group.part for group in found) * stored,
        gradient_bytes=learning * stored,
        optimizer_bytes=2 * learning * stored + (costs.optimizer_bytes - 2 * costs.gradient_bytes),
        gathered_bytes=gathered,
        activation_bytes=activations,
        gather_bytes=gather,
        scatter_bytes=scatter,
        reduce_bytes=2 * (copies - 1) / copies * learning * stored,
        checkpoint_bytes=costs.parameter_bytes + costs.optimizer_bytes,
    )


def groups(model: nn.Module, size: int, stored: int, lowered: torch.dtype | None) -> list[Group]:
    """Numbers of each group of a model that ``size`` devices share along the first axis of each parameter."""
    seen: set[int] = set()
    return [
        _group(group, seen, size, lowered.itemsize if lowered is not None and group.lowered else stored)
        for group in sharding_groups(model, lowered=lowered is not None)
    ]


def _group(group: ShardingGroup, seen: set[int], size: int, itemsize: int) -> Group:
    parts = learning = 0
    for module in group.modules:
        for parameter in module.parameters():
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            first, *others = parameter.shape or (1,)
            part = -(-first // size) * prod(others)
            parts += part
            learning += part * parameter.requires_grad
    return Group(parts * size, parts, learning * size, learning, itemsize, group.is_root)


def _in_words(e: ParallelEstimate) -> list[tuple[str, str]]:
    """Figures by name."""
    sharing = {"ddp": "replicated", "fsdp": "sharded", "hsdp": f"sharded in groups of {e.shard_size}, replicated"}
    passes = "1 pass" if e.passes == 1 else f"{e.passes} passes"
    found = [
        (f"on {e.devices} devices, {sharing[e.shard]}", f"{passes} of {e.batch} per device and step"),
        ("memory per device", nbytes(e.device_bytes)),
        ("  parameters", nbytes(e.parameter_bytes)),
        ("  gradients", nbytes(e.gradient_bytes)),
        ("  AdamW", nbytes(e.optimizer_bytes)),
        ("  gathered temporarily", nbytes(e.gathered_bytes)),
        ("  activations", nbytes(e.activation_bytes)),
        ("sent per device and step", nbytes(round(e.sent_bytes))),
        ("  parameters", nbytes(round(e.gather_bytes))),
        ("  gradients, reduce-scattered", nbytes(round(e.scatter_bytes))),
        ("  gradients, all-reduced", nbytes(round(e.reduce_bytes))),
        ("checkpoint", nbytes(e.checkpoint_bytes)),
    ]
    return [(name, value) for name, value in found if value != "0" or "memory" in name]
