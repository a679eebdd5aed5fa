"""Pairs of a corpus that were found: those with the largest values, and a sample of the others.

Both hold a bounded number of pairs, and the same ones in whatever order and batches a corpus is read.

Shapes: n pairs, R relations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._base.hashing import keys_of, uniform_of
from ..measures.matching import number_within

_DIGITS = 12  # binary digits of a value that are told apart


class Place(NamedTuple):
    """A pair in a corpus: number of its document, places of receiver and sender in it, and their tokens."""

    document: int
    receiver: int
    sender: int
    receiver_token: int
    sender_token: int


class Places(NamedTuple):
    """Many of them, int64 ``(n,)`` each."""

    document: Tensor
    receiver: Tensor
    sender: Tensor
    receiver_token: Tensor
    sender_token: Tensor

    def __getitem__(self, where: Any) -> Any:  # of all five, where a tuple would give one of them
        return Places(*(column[where] for column in tuple(self))) if isinstance(where, Tensor) else tuple(self)[where]

    def listed(self) -> Iterator[Place]:
        """One by one."""
        return map(Place, *(column.tolist() for column in tuple(self)))


class Found(NamedTuple):
    """A pair and its value."""

    value: float
    place: Place

    @property
    def order(self) -> tuple[Any, ...]:
        """Largest first; of equal values the one that comes first in the corpus."""
        return (-self.value, self.place)


def rounded(values: Tensor) -> Tensor:
    """Values to about four decimal digits, float64.

    Rounding errors differ from batch size to batch size. They must not decide which of two pairs comes first.
    """
    mantissa, exponent = torch.frexp(values.double())
    return torch.ldexp((mantissa * 2**_DIGITS).round() / 2**_DIGITS, exponent)


class LargestPairs:
    """The pairs of largest value, of which at most some have the same two tokens.

    Args:
        size: number of pairs.
        per_tokens: most pairs with the same receiver token and the same sender token.
    """

    def __init__(self, size: int, per_tokens: int = 1) -> None:
        self.size, self.per_tokens = size, per_tokens
        self.found: list[Found] = []

    def add(self, values: Tensor, places: Places) -> None:
        """Look at more pairs, ``(n,)`` in the order of the corpus."""
        values = rounded(values)
        if len(self.found) == self.size:
            enough = values >= self.found[-1].value
            values, places = values[enough], places[enough]
        order = values.argsort(descending=True, stable=True)
        values, places = values[order], places[order]
        tokens = int(places.sender_token.max()) + 1 if len(order) else 1
        _, kinds = (places.receiver_token * tokens + places.sender_token).unique(return_inverse=True)
        few = (number_within(kinds) < self.per_tokens).nonzero()[: self.size, 0]
        new = map(Found, values[few].tolist(), places[few].listed())
        seen: dict[tuple[int, int], int] = {}
        self.found, candidates = [], sorted([*self.found, *new], key=lambda one: one.order)
        for one in candidates:
            kind = one.place[3:]
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] <= self.per_tokens and len(self.found) < self.size:
                self.found.append(one)


class Sampled(NamedTuple):
    """A pair that was drawn: its place in the random order, and its value of every relation."""

    priority: float
    place: Place
    values: tuple[float, ...]


class StratifiedSample:
    """Some pairs of every stratum, drawn evenly from all that are shown.

    Args:
        size: pairs of a stratum.
        seed: of the draw. A pair's chance hangs on its place in the corpus and nothing else.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size, self.seed = size, seed
        self.drawn: dict[int, list[Sampled]] = {}

    def add(self, values: Tensor, places: Places, strata: Tensor) -> None:
        """Look at more pairs: values of all relations, ``(n, R)``, and strata, int64 ``(n,)``."""
        words = torch.stack([places.document, places.receiver, places.sender], 1).cpu()
        priority = uniform_of(keys_of(words), self.seed)
        strata = strata.cpu()
        order = priority.argsort(stable=True)
        chosen = order[number_within(strata[order]) < self.size]
        kinds, kind = strata[chosen].unique(return_inverse=True)
        bounds = torch.tensor([self._bound(stratum) for stratum in kinds.tolist()], dtype=priority.dtype)
        chosen = chosen[priority[chosen] <= bounds[kind]]
        there = chosen.to(values.device)
        drawn = map(
            Sampled, priority[chosen].tolist(), places[there].listed(), map(tuple, rounded(values[there]).tolist())
        )
        for stratum, one in zip(strata[chosen].tolist(), drawn, strict=True):
            self.drawn[stratum] = sorted([*self.drawn.get(stratum, []), one])[: self.size]

    def _bound(self, stratum: int) -> float:
        """Priority beyond which no pair of a stratum is drawn any more."""
        drawn = self.drawn.get(stratum, [])
        return drawn[-1].priority if len(drawn) == self.size else float("inf")
