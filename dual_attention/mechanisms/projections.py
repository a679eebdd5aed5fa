"""Projections into heads other than one linear map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .._layers.inputs import check_positive
from ..functional.checks import without_autocast


class TensorProductProjection(nn.Linear):
    """Heads as a sum of few products of a vector over heads and a vector over features, both made of the object.

    Math: Q_t = 1/R sum_r a_r(x_t) b_r(x_t)^T, a matrix (heads, features) of rank R at most  (Zhang et al. 2025, arXiv
    2501.06425, section 3.1)

    It takes the place of a linear projection of queries, keys or values; its weight has the rows of ``a``, then those
    of ``b``. The products are computed in float32 or better.

    Args:
        d_in: width of the input.
        heads: H.
        head_dim: d, width of a head.
        rank: R.

    >>> TensorProductProjection(32, heads=4, head_dim=8, rank=2)(torch.randn(2, 9, 32)).shape
    torch.Size([2, 9, 32])
    """

    def __init__(self, d_in: int, heads: int, head_dim: int, rank: int) -> None:
        check_positive(d_in=d_in, heads=heads, head_dim=head_dim, rank=rank)
        super().__init__(d_in, rank * (heads + head_dim), bias=False)
        self.heads, self.head_dim, self.rank = heads, head_dim, rank

    def forward(self, input: Tensor) -> Tensor:
        """``(..., d_in) -> (..., H d)``."""
        factors = super().forward(input)
        wide = factors.to(torch.promote_types(factors.dtype, torch.float32))
        a, b = wide.split([self.rank * self.heads, self.rank * self.head_dim], dim=-1)
        a, b = a.unflatten(-1, (self.rank, self.heads)), b.unflatten(-1, (self.rank, self.head_dim))
        with without_autocast(wide):
            products = a.transpose(-2, -1) @ b
        return (products / self.rank).flatten(-2).to(factors.dtype)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, heads={self.heads}, head_dim={self.head_dim}, rank={self.rank}"
