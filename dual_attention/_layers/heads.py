"""Width of a head, and splitting and merging heads.

Shapes: B batch, L length, H heads, D width of a head.
"""

from __future__ import annotations

from torch import Tensor

from .inputs import check_positive


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


def split_heads(x: Tensor, heads: int) -> Tensor:
    """``(B, L, H * D) -> (B, H, L, D)``."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """``(B, H, L, D) -> (B, L, H * D)``."""
    return x.transpose(1, 2).flatten(2)
