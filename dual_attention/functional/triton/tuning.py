"""Sizes of tiles. Imports no Triton.

Those for Hopper (227 KiB of shared memory and 65,536 registers for a program) are the fastest of some neighbours on an
H100, in bfloat16, for 64 relations 8 wide and for 128 with heads 128 wide; the others are chosen by counting registers
and shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from .support import NARROWEST, next_power_of_2


class Tile(NamedTuple):
    """Sizes of one kernel.

    Attributes:
        receivers, senders: sides of a tile of pairs, powers of two, at least 16 (of the table's kernel: offsets in
            place of senders).
        columns: columns of relation keys in a tile, a power of two: as many relations as fit, each padded to a power
            of two. It is reduced to what there is, and raised to one relation.
        warps, stages: of 32 threads; of software pipelining.
    """

    receivers: int
    senders: int
    columns: int
    warps: int
    stages: int


class Tuning(NamedTuple):
    """Sizes of every kernel, and how many programs fill the device: the sum over heads in dw is split into as many."""

    forward: Tile
    queries: Tile
    relation_queries: Tile
    keys: Tile
    relation_keys: Tile
    table: Tile
    programs: int = 264  # two on each of the 132 multiprocessors of an H100 or H200

    def numbers(self) -> list[int]:
        """As integers, which is what a registered operation takes."""
        return [number for tile in self[:-1] for number in tile] + [self.programs]

    def for_receivers(self, n: int) -> Tuning:
        """With a forward pass whose tiles are no taller than n receivers need: a step of decoding has one."""
        needed = max(next_power_of_2(n), NARROWEST)
        return self._replace(forward=self.forward._replace(receivers=min(self.forward.receivers, needed)))

    @classmethod
    def uniform(cls, tile: Tile) -> Tuning:
        """One size for every kernel."""
        return cls(tile, tile, tile, tile, tile, tile)

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> Tuning:
        """Inverse of :meth:`numbers`."""
        tiles = [Tile(*numbers[start : start + 5]) for start in range(0, len(numbers) - 1, 5)]
        return cls._make([*tiles, numbers[-1]])


def tuning(width: int, columns: int, relative: bool, dtype: torch.dtype, shared_memory: int | None) -> Tuning:
    """Default sizes for the wider of a query and a symbol, and for R p columns of relation keys, with p padded.

    A tile reads twice as many ``relative`` symbols, those of offsets, as shared ones. One program may have
    ``shared_memory`` bytes; None off the GPU, in the interpreter.
    """
    if shared_memory is None:
        return INTERPRETER
    if dtype == torch.float32:
        return FLOAT32 if width <= 128 else FLOAT32_WIDE
    if shared_memory < 200 * 1024:
        return SMALL if width <= 128 else SMALL_WIDE
    if width > 128:
        return HOPPER_WIDE
    if width > 64:
        chosen = HOPPER_128._replace(forward=HOPPER_128.forward._replace(receivers=64)) if relative else HOPPER_128
    elif relative:
        chosen = HOPPER_RELATIVE
    else:
        chosen = HOPPER if columns > 256 else HOPPER._replace(forward=Tile(128, 64, 256, 8, 2))
    # While all relation keys of a block fit in shared memory beside the rest, they (or the gradients of those attended)
    # are read or made once for a row of tiles; beyond, a group at a time is read again for every tile.
    if columns > (512 if width <= 64 else 256):
        senders = 128 if width > 64 and not relative else 64
        chosen = chosen._replace(queries=Tile(64, senders, 128, 8, 2), keys=Tile(64, senders, 128, 8, 2))
    return chosen


def tuned(forward: Sizes, queries: Sizes, keys: Sizes, relation_keys: Sizes, table: Sizes) -> Tuning:
    """Sizes of kernels, those of :data:`SUMS` among them."""
    return Tuning(Tile(*forward), Tile(*queries), SUMS, Tile(*keys), Tile(*relation_keys), Tile(*table))


Sizes = tuple[int, int, int, int, int]
SUMS = Tile(32, 16, 128, 4, 1)
"""Sizes for relation queries (du), whose kernel multiplies no matrices: many small programs hide waits for reads."""

# In each row: forward, queries (dq), keys (dk and the symbols'), relation keys (dw), table. Each warpgroup (four warps)
# of a product takes 64 of its rows, receivers in the first two kernels, senders in those of keys: more warps than that
# would split its columns, and read the rows twice.
HOPPER = tuned((64, 64, 512, 8, 2), (64, 32, 512, 4, 3), (32, 64, 512, 4, 3), (64, 128, 256, 8, 3), (32, 64, 16, 4, 2))
HOPPER_RELATIVE = HOPPER._replace(
    forward=Tile(64, 64, 256, 8, 3), queries=Tile(32, 32, 512, 4, 2), keys=Tile(32, 64, 512, 4, 1)
)
HOPPER_128 = tuned(
    (128, 64, 256, 8, 2), (64, 32, 256, 4, 2), (32, 64, 256, 4, 2), (32, 128, 256, 8, 3), (64, 32, 16, 8, 2)
)
HOPPER_WIDE = tuned(
    (64, 32, 128, 8, 2), (64, 32, 128, 8, 1), (32, 64, 128, 8, 1), (32, 64, 128, 8, 2), (32, 32, 16, 8, 1)
)
SMALL = tuned((64, 32, 64, 4, 1), (64, 32, 64, 4, 1), (32, 64, 64, 4, 1), (32, 64, 64, 4, 1), (32, 32, 16, 4, 1))
SMALL_WIDE = tuned((32, 16, 64, 4, 1), (32, 16, 64, 4, 1), (16, 32, 64, 4, 1), (16, 32, 64, 4, 1), (16, 16, 16, 4, 1))
FLOAT32 = Tuning.uniform(Tile(32, 32, 64, 4, 1))
FLOAT32_WIDE = Tuning.uniform(Tile(16, 16, 32, 4, 1))
INTERPRETER = Tuning.uniform(Tile(64, 64, 128, 4, 1))

PAIRS = SMALL._replace(forward=Tile(64, 16, 0, 8, 2), queries=Tile(32, 16, 0, 8, 2), keys=Tile(16, 32, 0, 8, 2))
"""Sizes for :mod:`.pairs`, whose tiles have all heads and relations: those that spill least, never timed."""
SMALL_PAIRS = Tuning.uniform(Tile(16, 16, 0, 4, 1))


def pair_tuning(shared_memory: int | None) -> Tuning:
    """Default sizes for :mod:`.pairs`, with the shared memory of :func:`tuning`."""
    return SMALL_PAIRS if shared_memory is None or shared_memory < 200 * 1024 else PAIRS
