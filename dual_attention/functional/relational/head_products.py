"""Products of the matrices of each head, where a group of heads shares one factor, which is never repeated.

Those that write into memory have the heads as their first axis: a head's matrices of all examples then lie in a row,
and views of what projections make, in which heads lie side by side, are multiplied as they are.

Shapes: H heads, G key/value heads (H = G * rep), B batch; a factor that is shared has B examples or one for all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import is_open


def grouped_matmul(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` ``(B, H, n, m)`` of ``(B, H, n, k)`` and ``(B or 1, G, k, m)``, with every derivative.

    The heads of a group are rows of one matrix, and so are all examples where that copies less.
    """
    (batch, heads, n, _), groups = a.shape, b.shape[1]
    if b.shape[0] == 1 and not is_open(batch, n) and batch > 1 and n < min(b.shape[2:]):
        rows = a.transpose(0, 1).reshape(groups, -1, a.shape[-1]) @ b[0]
        return rows.view(heads, batch, n, b.shape[-1]).transpose(0, 1)
    return rows_of_heads(rows_of_groups(a, groups) @ b, heads)


def rows_of_groups(x: Tensor, groups: int) -> Tensor:
    """The heads of a group as rows of one matrix: ``(B, H, n, k) -> (B, G, rep * n, k)``."""
    return x if x.shape[1] == groups else x.unflatten(1, (groups, -1)).flatten(2, 3)


def rows_of_heads(x: Tensor, heads: int) -> Tensor:
    """The reverse: ``(B, G, rep * n, m) -> (B, H, n, m)``."""
    return x if x.shape[1] == heads else x.unflatten(2, (heads // x.shape[1], -1)).flatten(1, 2)


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
        into[:, 0].add_(_product(rows.transpose(1, 2), others, scale))
        return
    for head in range(heads):
        into[head // (heads // groups)].add_(_product(a[head].transpose(1, 2), b[head], scale))


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """``scale * torch.bmm(a, b)``, scaled before it is rounded, so that less overflows in float16."""
    return torch.bmm(a, b) if scale == 1.0 else torch.baddbmm(a.new_empty(1), a, b, beta=0, alpha=scale)
