"""The projections of one input as one product, where a launch costs more than its arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional.checks import is_autocast

ALL = nn.modules.module
"""The module of PyTorch that keeps hooks of all modules."""


def is_watched(module: nn.Module) -> bool:
    """Whether a call does more than the class's ``forward``: there are hooks, or another stands in its place."""
    own = module.__dict__
    hooks = own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]
    of_all = ALL._global_forward_hooks or ALL._global_forward_pre_hooks
    return bool(hooks or "forward" in own or of_all or ALL._global_backward_hooks or ALL._global_backward_pre_hooks)


def are_plain(*layers: nn.Module) -> bool:
    """Whether each layer is no more than its parameters: it has no hooks, is no adapter, and its weight is neither
    quantised nor distributed. So what it returns is held by its caller alone.
    """
    return all(
        type(layer) is nn.Linear and type(layer.weight) is nn.Parameter and not is_watched(layer) for layer in layers
    )


def project_at_once(
    x: Tensor, layers: Sequence[nn.Module], once: Callable[[Callable[[], Tensor]], Tensor] = lambda make: make()
) -> Tensor | None:
    """``cat([layer(x) for layer in layers], -1)`` by one product; None if the layers have to be called.

    They have to be unless :func:`are_plain`. Gradients reach each parameter as from its own layer.

    Args:
        x: ``(..., d)``.
        once: returns what it is given makes, or what an earlier call made: all weights, then all biases, in a row.
    """
    if not are_plain(*layers):
        return None
    plain: Sequence[Any] = layers
    weights: list[Tensor] = [layer.weight for layer in plain]
    biases: list[Tensor] = [layer.bias for layer in plain if layer.bias is not None]
    kinds = {(weight.dtype, weight.device, weight.shape[1]) for weight in weights}
    if len(biases) not in (0, len(layers)) or len(kinds) != 1:
        return None
    if x.shape[-1] != weights[0].shape[1] or not (x.dtype == weights[0].dtype or is_autocast(x)):
        return None
    joined, rows = once(lambda: torch.cat([part.flatten() for part in (*weights, *biases)])), sum(map(len, weights))
    weight, bias = joined.split([rows * x.shape[-1], rows]) if biases else (joined, None)
    return F.linear(x, weight.view(rows, -1), bias)
