"""Initial parameters of mechanisms, with an axis of heads in front if there are several."""

from __future__ import annotations

import torch
from torch import nn

from .._layers.inputs import check_positive


def matrix(heads: int | None, *shape: int) -> nn.Parameter:
    """Xavier-uniform matrices ``(heads, ..., out, in)``, each drawn by itself; a vector is one row."""
    check_positive(**({} if heads is None else {"heads": heads}))
    weight = torch.empty((*(() if heads is None else (heads,)), *shape))
    last = weight[..., None, :] if len(shape) == 1 else weight
    for each in last.reshape(-1, *last.shape[-2:]):  # a view, since the tensor is new and contiguous
        nn.init.xavier_uniform_(each)
    return nn.Parameter(weight)


def zeros(heads: int | None, *shape: int) -> nn.Parameter:
    """Zeros ``(heads, ...)``."""
    return nn.Parameter(torch.zeros((*(() if heads is None else (heads,)), *shape)))
