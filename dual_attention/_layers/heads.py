"""Heads: their width, splitting and merging them, and rotary positions in queries and keys.

Shapes: B batch, L length, H heads, D width of a head.
"""

from __future__ import annotations

from torch import Tensor

from ..functional import apply_rotary
from .inputs import check_positive


def head_dim(d_model: int, n_heads: int, n_kv_heads: int | None, total_n_heads: int | None) -> int:
    """Width of one head; ``ValueError`` if the head counts do not fit together."""
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


def rotate(x: Tensor, freqs_cos: Tensor | None, freqs_sin: Tensor | None, offset: int = 0) -> Tensor:
    """Apply RoPE to queries or keys if there are tables, whose row ``offset`` belongs to the first token."""
    if freqs_cos is None and freqs_sin is None:
        return x
    if freqs_cos is None or freqs_sin is None:
        raise ValueError("freqs_cos, freqs_sin: expected both tables or neither")
    return apply_rotary(x, freqs_cos, freqs_sin, offset=offset)
