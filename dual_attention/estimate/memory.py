"""Bytes, from what a walk through a model showed.

Counted are tensors. What an allocator adds by rounding and fragmentation, and what libraries reserve for themselves,
is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .registry import Saved, storage_bytes
from .walk import Walk
from .watcher import Visit


class Ledger:
    """Tensors by storage, each counted once."""

    def __init__(self, free: Iterable[Tensor] = ()) -> None:
        self.seen = {storage(tensor) for tensor in free}
        self.total = 0

    def add(self, saved: Saved) -> int:
        """Count these; returns the bytes that were not counted before."""
        before = self.total
        for tensor, nbytes in saved:
            key = None if tensor is None else storage(tensor)
            if key is None or key not in self.seen:
                self.total += nbytes
            if key is not None:
                self.seen.add(key)
        return self.total - before

    def fork(self) -> Ledger:
        """A copy that goes its own way."""
        other = Ledger()
        other.seen, other.total = set(self.seen), self.total
        return other


def storage(tensor: Tensor) -> int:
    """Identity of a tensor's memory."""
    return tensor.untyped_storage()._cdata


def owned(model: nn.Module) -> list[Tensor]:
    """Parameters and buffers, which are no activations."""
    return [*model.parameters(), *model.buffers()]


def of_visits(tensors: Iterable[Tensor]) -> Saved:
    """Tensors with their bytes."""
    return [(tensor, storage_bytes(tensor)) for tensor in tensors]


@dataclass(frozen=True)
class Kept:
    """Bytes that visits add to what is kept for the backward pass, by their place in the walk.

    Attributes:
        outside: of all that is not within checkpointed blocks.
        blocks: of each checkpointed block while it is computed again.
        largest_block: the one that keeps most.
    """

    outside: dict[int, int]
    blocks: tuple[dict[int, int], ...]
    largest_block: dict[int, int]

    @property
    def total(self) -> int:
        """When the largest block is computed again, beside all checkpoints."""
        return sum(self.outside.values()) + sum(self.largest_block.values())

    def at(self, place: int) -> int:
        """Of one visit, as it counts in the total."""
        return self.outside.get(place, 0) + self.largest_block.get(place, 0)


def kept(walk: Walk) -> Kept:
    """What a walk keeps for the backward pass."""
    ledger = Ledger(owned(walk.model))
    outside = {place: ledger.add(visit.saved) for place, visit in enumerate(walk.visits) if visit.block is None}
    blocks: dict[int, dict[int, int]] = {}
    ledgers: dict[int, Ledger] = {}
    for place, visit in enumerate(walk.visits):
        if visit.block is not None:
            of_block = ledgers.setdefault(visit.block, ledger.fork())
            blocks.setdefault(visit.block, {})[place] = of_block.add(visit.saved)
    largest = max(blocks.values(), key=lambda block: sum(block.values()), default={})
    return Kept(outside, tuple(blocks.values()), largest)


def training_peak(walk: Walk, of: Kept, loss_bytes: int) -> int:
    """Activations and their gradients at the worst moment of a backward pass, approximately.

    The pass begins with the loss; when it comes to a module, what later ones kept is gone. A workspace serves all
    layers and stays.
    """
    workspace = max((visit.kept_forward for visit in walk.visits), default=0)
    peak = sum(of.outside.values()) + loss_bytes + workspace
    held: list[int] = []
    blocks = {place: block for block in of.blocks for place in block}
    outside = within = 0
    for place, visit in enumerate(walk.visits):
        outside += of.outside.get(place, 0)
        block = blocks.get(place)
        within = 0 if block is None else within + block[place]
        held.append(outside + within + visit.gradients)
    for visit, of_visit in zip(reversed(walk.visits), reversed(held), strict=True):
        workspace = max(workspace, visit.kept_backward)
        peak = max(peak, of_visit + workspace)
    return peak


def inference_peak(walk: Walk, inputs: Iterable[Tensor]) -> int:
    """The most that lives while a module runs: what those around it hold, and its own work; inputs apart."""
    free = [*owned(walk.model), *inputs]
    workspace = max((visit.kept_forward for visit in walk.visits), default=0)
    within = (Ledger(free).add(of_visits(visit.held)) + visit.workspace for visit in walk.visits)
    return workspace + max(within, default=0)


def cast_bytes(visits: Iterable[Visit], dtype: torch.dtype) -> int:
    """Bytes of the parameters' copies under autocast."""
    copies = {storage(tensor): tensor.numel() * dtype.itemsize for visit in visits for tensor in visit.casts}
    return sum(copies.values())
