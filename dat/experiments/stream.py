"""An endless stream of draws as training examples."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..training.problem import Batch
from ..training.seeding import derive_seed

BLOCK = 256
"""Examples that are drawn together."""


class Stream:
    """Examples without end: index i is always the same one.

    Args:
        draw: ``draw(n, seed)`` draws n examples that depend on both and on nothing else.
        seed: of the stream.
        device: where batches are made.
    """

    def __init__(self, draw: Callable[[int, int], Batch], seed: int, device: torch.device | str = "cpu") -> None:
        self.draw, self.seed, self.device = draw, seed, device
        self._blocks: dict[int, Batch] = {}

    def __len__(self) -> int:
        return BLOCK

    def batch(self, indices: Tensor) -> Batch:
        """The examples at ``indices``; only the blocks that they are in are kept."""
        blocks, block_of = (indices // BLOCK).unique(return_inverse=True)
        self._blocks = {block: self._block(block) for block in blocks.tolist()}
        rows = block_of * BLOCK + indices % BLOCK
        return tuple(torch.cat(parts)[rows].to(self.device) for parts in zip(*self._blocks.values(), strict=True))

    def _block(self, block: int) -> Batch:
        if block in self._blocks:
            return self._blocks[block]
        return self.draw(BLOCK, derive_seed(self.seed, "draws", block))
