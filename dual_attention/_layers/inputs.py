"""Checks of what layers are given: sizes, sequences, and what a cache may keep.

Shapes: B batch, L length.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..functional.checks import check_dropout as check_dropout
from ..functional.checks import is_autocast


def check_positive(**sizes: int) -> None:
    """Raise ``ValueError`` for the first size that is not an integer of at least one."""
    for name, size in sizes.items():
        if isinstance(size, float) or size < 1:
            raise ValueError(f"{name}: expected a positive number{' without a fraction' * (size >= 1)}, got {size}")


def check_sequence(
    name: str, x: Tensor, width: int, *, batch: Sequence[int] | None = None, layer: nn.Module | None = None
) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``x`` is a sequence ``(B, L, width)``, with B one of ``batch``.

    Device and, unless under autocast, dtype must be those of ``layer``, the first that takes it.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if x.dim() != 3 or x.shape[-1] != width or (batch is not None and x.shape[0] not in batch):
        rows = "batch" if batch is None else " or ".join(str(b) for b in sorted(set(batch)))
        raise ValueError(f"{name}: expected shape ({rows}, length, {width}), got {tuple(x.shape)}")
    weight = getattr(layer, "weight", None)
    # Layers that took the place of linear ones may hold other types (quantised) or nothing yet (offloaded).
    if not isinstance(weight, Tensor) or not weight.is_floating_point() or weight.is_meta:
        return
    if x.device != weight.device:
        raise ValueError(f"{name}: expected a tensor on {weight.device} as the parameters, got one on {x.device}")
    if x.dtype != weight.dtype and not is_autocast(x):
        raise TypeError(f"{name}: expected dtype {weight.dtype} as the parameters, got {x.dtype}")


def check_indices(indices: Tensor, batch: int | None) -> Tensor:
    """The numbers of examples as int64; ``TypeError`` or ``ValueError`` unless they are a vector below ``batch``."""
    if indices.is_floating_point() or indices.dtype == torch.bool:
        raise TypeError(f"indices: expected integers, got dtype {indices.dtype}")
    if indices.dim() != 1:
        raise ValueError(f"indices: expected shape (examples,), got {tuple(indices.shape)}")
    if batch is not None and indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= batch):
        raise ValueError(f"indices: expected 0 to {batch - 1}, got {indices.tolist()}")
    return indices.long()


def check_no_gradient(name: str, tensor: Tensor) -> None:
    """Raise ``ValueError`` if a tensor that a cache would keep requires gradients."""
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise ValueError(
            f"cache: keeps no graph, got {name} that requires gradients; call under torch.no_grad() or inference_mode()"
        )


def is_integer(x: Tensor) -> bool:
    """Whether a tensor holds integers, as which booleans do not count."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def check_places(name: str, places: Tensor, batch: int, length: int) -> None:
    """Raise ``ValueError`` unless positions or segments are integers ``(batch or 1, length)``."""
    if not is_integer(places) or tuple(places.shape) not in ((batch, length), (1, length)):
        raise ValueError(
            f"{name}: expected integers of shape (batch or 1, length) = {(batch, length)}, "
            f"got shape {tuple(places.shape)} of dtype {places.dtype}"
        )


def check_vectors(name: str, vectors: Tensor, dim: int) -> None:
    """Check vectors ``(B, L, dim)``; ``TypeError`` unless they are floating point, ``ValueError`` for another shape."""
    if not vectors.is_floating_point():
        raise TypeError(f"{name}: expected floating-point vectors, got dtype {vectors.dtype}")
    check_sequence(name, vectors, dim)
