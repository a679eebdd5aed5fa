"""The function that is to be computed: select the sender of highest utility, and relate to it.

A receiver x prefers the sender that lies where x comes to lie when it is turned by 90 degrees; what it is to tell is
three relations with that sender, of which the third is not symmetric.

Math: u(x, y) = -|A x - y|^2,  i* = argmax_i u(x, y_i),  R(x, y) = (<x, y>, |x - y|^2, sin(3 x_1 + 2 y_2))

Utility (up to a term of x only, which the softmax does not see) and relations are inner products of few features,
so relational attention with these features computes the function exactly, as its scores grow: the construction of the
proof (arXiv 2405.16727, appendix A).

Shapes: B draws, M senders, R = 3 relations, D = 3 and p = 4 features of the construction.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...training.problem import Batch
from ..stream import Stream

DIMENSIONS = 2
RELATIONS = 3


def turned(x: Tensor) -> Tensor:
    """A x: turned by 90 degrees."""
    return torch.stack((-x[..., 1], x[..., 0]), -1)


def utility(x: Tensor, y: Tensor) -> Tensor:
    """u of receivers ``(B, 2)`` for senders ``(B, M, 2)``: ``(B, M)``."""
    return -(turned(x)[:, None] - y).square().sum(-1)


def relations(x: Tensor, y: Tensor) -> Tensor:
    """R of receivers ``(B, 2)`` and senders ``(B, M, 2)``: ``(B, M, 3)``."""
    x = x[:, None]
    mixed = torch.sin(3 * x[..., 0] + 2 * y[..., 1])
    return torch.stack(((x * y).sum(-1), (x - y).square().sum(-1), mixed), -1)


def wanted(x: Tensor, y: Tensor) -> Tensor:
    """R(x, Select(x, y)): ``(B, 3)``."""
    best = utility(x, y).argmax(-1)
    return relations(x, y)[torch.arange(len(x), device=x.device), best]


class Features(NamedTuple):
    """Queries and keys of the attention, ``(B, 1, 1, D)`` and ``(B, 1, M, D)``, and of relations, ``(B, 1, R, p)`` and
    ``(B, M, R, p)``."""

    q: Tensor
    k: Tensor
    u: Tensor
    w: Tensor


def constructed_features(x: Tensor, y: Tensor) -> Features:
    """Features whose inner products are the utility, up to a term of x only, and the relations."""
    zero, one = torch.zeros_like(x[..., 0]), torch.ones_like(x[..., 0])
    nil, unit = torch.zeros_like(y[..., 0]), torch.ones_like(y[..., 0])
    q = torch.cat((2 * turned(x), -one[..., None]), -1)
    k = torch.cat((y, y.square().sum(-1, keepdim=True)), -1)
    of_receiver = (
        (x[..., 0], x[..., 1], zero, zero),
        (x.square().sum(-1), one, -2 * x[..., 0], -2 * x[..., 1]),
        (torch.sin(3 * x[..., 0]), torch.cos(3 * x[..., 0]), zero, zero),
    )
    of_sender = (
        (y[..., 0], y[..., 1], nil, nil),
        (unit, y.square().sum(-1), y[..., 0], y[..., 1]),
        (torch.cos(2 * y[..., 1]), torch.sin(2 * y[..., 1]), nil, nil),
    )
    u = torch.stack([torch.stack(row, -1) for row in of_receiver], -2)
    w = torch.stack([torch.stack(row, -1) for row in of_sender], -2)
    return Features(q[:, None, None], k[:, None], u[:, None], w)


def draw(n: int, senders: int, margin: float, seed: int) -> tuple[Tensor, Tensor]:
    """Receivers ``(n, 2)`` and senders ``(n, senders, 2)``, uniform in [-1, 1]^2, given that the best two utilities
    differ by ``margin``; they depend on the arguments only.
    """
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.empty(n, DIMENSIONS), torch.empty(n, senders, DIMENSIONS)
    left = torch.arange(n)
    while len(left):
        x[left] = 2 * torch.rand(len(left), DIMENSIONS, generator=generator) - 1
        y[left] = 2 * torch.rand(len(left), senders, DIMENSIONS, generator=generator) - 1
        best, second = utility(x[left], y[left]).topk(2).values.unbind(-1)
        left = left[best - second < margin]
    return x, y


class Draws(Stream):
    """Receivers, senders and what is wanted of them, without end.

    Args:
        device: where batches are made.
    """

    def __init__(self, senders: int, margin: float, seed: int, device: torch.device | str = "cpu") -> None:
        self.senders, self.margin = senders, margin
        super().__init__(self._drawn, seed, device)

    def _drawn(self, n: int, seed: int) -> Batch:
        x, y = draw(n, self.senders, self.margin, seed)
        return x, y, wanted(x, y)
