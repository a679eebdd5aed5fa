"""Form of all sequence tasks: tokens, what is to be predicted, and where it stands."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

UNSCORED = -1
"""Target of a position that is not scored, and source of a target that stands nowhere."""
LARGEST_SORT = 2**24
"""Numbers that are sorted at once."""


class Sequences(NamedTuple):
    """Sequences of a task, as a causal model reads them.

    Attributes:
        tokens: integers ``(n, N)``.
        targets: integers ``(n, N)``: the token to predict at each position, or -1 where nothing is scored. Nothing is
            to be shifted.
        sources: integers ``(n, N)``: the earlier position that holds the target, or -1 where there is none.
    """

    tokens: Tensor
    targets: Tensor
    sources: Tensor


def blank(n: int, length: int) -> Sequences:
    """Sequences of zeros of which nothing is scored."""
    unscored = torch.full((n, length), UNSCORED)
    return Sequences(torch.zeros(n, length, dtype=torch.int64), unscored, unscored.clone())


def distinct(n: int, count: int, below: int, generator: Generator) -> Tensor:
    """``count`` different integers from 0 to ``below - 1`` for each of n sequences, in random order: ``(n, count)``."""
    rows = max(1, LARGEST_SORT // below)  # at a time
    blocks = (torch.rand(min(rows, n - row), below, generator=generator) for row in range(0, max(n, 1), rows))
    return torch.cat([block.argsort(-1)[:, :count].clone() for block in blocks])


def check_least(name: str, value: int, least: int, why: str = "") -> None:
    """Raise ``ValueError`` unless an argument is at least ``least``."""
    if value < least:
        raise ValueError(f"{name}: expected at least {least}{why}, got {value}")
