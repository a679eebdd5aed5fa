"""Matmuls for grouped heads without repeating the shared factor, written into memory.

Heads are the first axis: a head's matrices of all examples then lie in a row, and views of what projections make, in
which heads lie side by side, are multiplied as they are.

Shapes: H heads, G key/value heads (H = G * rep), B batch; a factor that is shared has B examples or one for all.
"""

from __future__ import annotations

import torch
from torch import Tensor


def multiply_heads(a: Tensor, b: Tensor, into: Tensor, scale: float = 1.0, *, add: bool = False) -> Tensor:
    """Write ``scale * a @ b`` into ``(H, B, n, m)``, contiguous, from ``(H, B, n, k)`` and ``(G, B or 1, k, m)``.

    Args:
        add: add it to what is there.
    """
    heads, (groups, batch) = a.shape[0], b.shape[:2]
    if batch == 1:  # the heads of a group and all examples are rows of one matrix
        rows = into.view(groups, -1, into.shape[-1])
        rows.baddbmm_(a.reshape(groups, -1, a.shape[-1]), b[:, 0], beta=int(add), alpha=scale)
        return into
    for head in range(heads):
        into[head].baddbmm_(a[head], b[head // (heads // groups)], beta=int(add), alpha=scale)
    return into


def add_head_products(a: Tensor, b: Tensor, into: Tensor, scale: float = 1.0) -> None:
    """Add ``scale * a^T @ b``, of ``(H, B, n, k)`` and ``(H, B, n, m)``, to ``(G, B or 1, k, m)`` of a type as wide.

    It is summed over the heads of a group and, where there is one for all, over examples.
    """
    heads, (groups, batch) = a.shape[0], into.shape[:2]
    if batch == 1:
        rows, others = (x.reshape(groups, -1, x.shape[-1]) for x in (a, b))
        into[:, 0].add_(scaled_product(rows.transpose(1, 2), others, scale))
        return
    for head in range(heads):
        into[head // (heads // groups)].add_(scaled_product(a[head].transpose(1, 2), b[head], scale))


def scaled_product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """``scale * torch.bmm(a, b)``, scaled before it is rounded, so that less overflows in float16."""
    return torch.bmm(a, b) if scale == 1.0 else torch.baddbmm(a.new_empty(1), a, b, beta=0, alpha=scale)
