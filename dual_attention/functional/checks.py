"""Checks that several operations share, and when a check may look at the values of a tensor."""

from __future__ import annotations

import torch
from torch import Tensor


def is_readable(x: Tensor) -> bool:
    """Whether the values of ``x`` can be looked at without waiting for a device or breaking a graph.

    True for plain tensors on the CPU, unless they are being compiled or exported. Checks of shapes and dtypes need no
    leave; those of values do, and where they get none the operation itself must fail on a wrong value, as lookups do.
    """
    return not torch.compiler.is_compiling() and x.device.type == "cpu" and type(x) is Tensor


def check_dropout(name: str, rate: float) -> float:
    """The rate itself; ``ValueError`` outside [0, 1)."""
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"{name}: expected a rate in [0, 1), got {rate}")
    return rate


def check_axes(**tensors: tuple[Tensor, int]) -> None:
    """Raise ``ValueError`` for the first tensor that does not have as many axes as stand beside it."""
    for name, (tensor, axes) in tensors.items():
        if tensor.dim() != axes:
            raise ValueError(f"{name}: expected {axes} axes, got shape {tuple(tensor.shape)}")


def check_same_device(**tensors: Tensor | None) -> None:
    """Raise ``ValueError`` for the first tensor on another device than the first; None are passed over."""
    first = device = None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if device is None:
            first, device = name, tensor.device
        elif tensor.device != device:
            raise ValueError(f"{name}: expected a tensor on {device} as {first}, got one on {tensor.device}")


def check_same_dtype(**tensors: Tensor) -> None:
    """Raise ``TypeError`` for the first tensor of another type than the first."""
    first, like = next(iter(tensors.items()))
    dtype = like.dtype
    for name, tensor in tensors.items():
        if tensor.dtype != dtype:
            raise TypeError(f"{name}: expected dtype {dtype} as {first}, got {tensor.dtype}")


def check_key_heads(heads: int, groups: int) -> None:
    """Raise ``ValueError`` unless each key/value head serves as many query heads as the others."""
    if not groups or heads % groups:
        raise ValueError(f"k: {groups} key/value heads do not divide {heads} query heads")


def is_autocast(x: Tensor) -> bool:
    """Whether products of tensors like ``x`` are cast to one type as they are taken."""
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def is_open(*lengths: int) -> bool:
    """Whether an export leaves lengths open: what is chosen must then serve all, and may not depend on them."""
    return any(isinstance(length, torch.SymInt) for length in lengths)
