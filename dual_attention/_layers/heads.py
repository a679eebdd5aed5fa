"""What all attention layers share: head sizes, splitting and merging heads, checks of inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..functional.checks import check_dropout as check_dropout
from ..functional.checks import is_autocast


def head_dim(d_model: int, n_heads: int, n_kv_heads: int | None, total_n_heads: int | None) -> int:
    """Width of one head, after checking that the head counts fit together.

    Raises:
        ValueError: if a count is not positive, heads do not divide ``d_model``, or key/value heads do not divide heads.
    """
    check_positive(d_model=d_model, n_heads=n_heads)
    total = n_heads if total_n_heads is None else total_n_heads
    if total < n_heads:
        raise ValueError(f"total_n_heads: expected at least n_heads={n_heads}, got {total}")
    if d_model % total:
        raise ValueError(f"d_model: {d_model} is not divisible by the total number of heads, {total}")
    if n_kv_heads is not None and (n_kv_heads < 1 or n_heads % n_kv_heads):
        raise ValueError(f"n_kv_heads: expected a positive divisor of n_heads={n_heads}, got {n_kv_heads}")
    return d_model // total


def check_positive(**sizes: int) -> None:
    """Raise ``ValueError`` for the first size that is not an integer of at least one."""
    for name, size in sizes.items():
        if isinstance(size, float) or size < 1:
            raise ValueError(f"{name}: expected a positive number{' without a fraction' * (size >= 1)}, got {size}")


def check_sequence(
    name: str, x: Tensor, width: int, *, batch: Sequence[int] | None = None, layer: nn.Module | None = None
) -> None:
    """Check that ``x`` is a sequence ``(B, L, width)``.

    Args:
        batch: what B may be; by default anything.
        layer: the first that takes ``x``, whose parameters must have its dtype, unless under autocast, and its device.

    Raises:
        TypeError: if it is no tensor, or has another dtype.
        ValueError: if it has another shape, or is on another device.
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
    """The numbers of examples themselves; ``TypeError`` or ``ValueError`` unless they are a vector below ``batch``."""
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


def split_heads(x: Tensor, heads: int) -> Tensor:
    """``(B, L, H * D) -> (B, H, L, D)``."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """``(B, H, L, D) -> (B, L, H * D)``."""
    return x.transpose(1, 2).flatten(2)
