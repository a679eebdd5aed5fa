"""Initial parameters of mechanisms, with an axis of heads in front if there are several."""

from __future__ import annotations

import torch
from torch import nn

from .._layers.inputs import check_positive


def matrix(heads: int | None, *shape: int) -> nn.Parameter:
    """Xavier-uniform matrices ``(heads, ..., out, in)``, each drawn separately; a vector counts as one row."""
    check_positive(heads=1 if heads is None else heads)
    parameter = zeros(heads, *shape)
    rows = 1 if len(shape) == 1 else shape[-2]
    for each in parameter.data.view(-1, rows, shape[-1]):
        nn.init.xavier_uniform_(each)
    return parameter


def zeros(heads: int | None, *shape: int) -> nn.Parameter:
    """Zeros ``(heads, ...)``."""
    return nn.Parameter(torch.zeros((*(() if heads is None else (heads,)), *shape)))
