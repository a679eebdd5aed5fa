"""One attention of learned features, which is to select a sender and to tell a relation with it.

Shapes: as in :mod:`.task`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dual_attention.functional import attention, relational_attention

from .config import SelectionModelConfig
from .task import DIMENSIONS, RELATIONS, Features


class Selected(NamedTuple):
    """Output of the attention ``(B, 3)``, and its weights ``(B, M)``."""

    output: Tensor
    weights: Tensor


def relate_to_selected(features: Features, *, scale: float, rel_scale: float = 1.0) -> Selected:
    """Relational attention as in the theorem: W_r is the identity, and there are no symbols."""
    q, k, u, w = features
    identity = torch.eye(RELATIONS, dtype=q.dtype, device=q.device)[None]
    symbols = q.new_zeros(1, 1, k.shape[2], RELATIONS)
    attended = relational_attention(q, k, u, w, symbols, identity, scale=scale, rel_scale=rel_scale, need_weights=True)
    assert attended.weights is not None  # asked for
    return Selected(attended.output[:, 0, 0], attended.weights[:, 0, 0])


def perceptron(width: int, out: int) -> nn.Sequential:
    """Two hidden layers with ReLU."""
    layers = nn.Linear(DIMENSIONS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out)
    return nn.Sequential(*layers)


class SelectAndRelate(nn.Module):
    """Attention from a receiver to its senders, by perceptrons of both.

    Args:
        config: kind, width and features.
    """

    def __init__(self, config: SelectionModelConfig) -> None:
        super().__init__()
        self.features, width = config.features, config.width
        self.query, self.key = perceptron(width, self.features), perceptron(width, self.features)
        self.value = perceptron(width, RELATIONS) if config.name == "standard" else None
        self.receiver = self.sender = None
        if self.value is None:
            self.receiver = perceptron(width, RELATIONS * self.features)
            symmetric = config.name == "symmetric"
            self.sender = self.receiver if symmetric else perceptron(width, RELATIONS * self.features)

    def forward(self, x: Tensor, y: Tensor, sharpness: float = 1.0) -> Selected:
        """Relations of receivers ``(B, 2)`` with what they select of their senders ``(B, M, 2)``.

        Args:
            sharpness: factor of the scores, the inverse of a temperature.
        """
        scale = 1 / math.sqrt(self.features)
        q, k = self.query(x)[:, None, None], self.key(y)[:, None]
        if self.value is not None:
            output, weights = attention(q, k, self.value(y)[:, None], scale=sharpness * scale, need_weights=True)
            assert weights is not None  # asked for
            return Selected(output[:, 0, 0], weights[:, 0, 0])
        assert self.receiver is not None and self.sender is not None  # whatever has no values has relations
        sizes = (RELATIONS, self.features)
        u, w = self.receiver(x)[:, None].unflatten(-1, sizes), self.sender(y).unflatten(-1, sizes)
        return relate_to_selected(Features(q, k, u, w), scale=sharpness * scale, rel_scale=scale)


def largest_error(output: Tensor, target: Tensor) -> Tensor:
    """The largest error of the three relations of each draw, ``(B,)``."""
    return (output - target).abs().amax(-1)
