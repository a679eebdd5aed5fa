"""Queries for callers that give none: made from the keys, learned, or constant (survey 3.3.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .._layers.calls import TypedModule
from .._layers.inputs import check_boolean, check_features, check_positive
from ..functional.checks import check_axes, check_rows


class SelfQuery(TypedModule):
    """One query from each feature vector (survey eq. 35): self-attention.

    Args:
        d: width of the features.
        d_q: width of the queries; None leaves the features as they are.
        bias: in the projection.

    >>> GeneralAttention(Dot(), query=SelfQuery(8))(key=torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, d: int, d_q: int | None = None, *, bias: bool = False) -> None:
        super().__init__()
        check_boolean(bias=bias)
        check_positive(d=d, d_q=d if d_q is None else d_q)
        self.d = d
        self.projection = nn.Identity() if d_q is None else nn.Linear(d, d_q, bias=bias)

    def forward(self, key: Tensor) -> Tensor:
        """``(..., S, d) -> (..., S, d_q)``."""
        check_features("key", key, self.d, self.projection)
        return self.projection(key)


class LearnedQuery(TypedModule):
    """Queries that are parameters (survey eqs. 33, 34), drawn from N(0, 1 / d_q).

    Args:
        n_queries: L.
        d_q: width of the queries.

    >>> GeneralAttention(Dot(), query=LearnedQuery(n_queries=3, d_q=8))(key=torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 3, 8])
    """

    def __init__(self, n_queries: int, d_q: int) -> None:
        super().__init__()
        check_positive(n_queries=n_queries, d_q=d_q)
        self.queries = nn.Parameter(torch.randn(n_queries, d_q) / d_q**0.5)

    def forward(self, key: Tensor) -> Tensor:
        """``(..., S, d) -> (..., L, d_q)``, the same for every example."""
        check_rows("key", key)
        return self.queries.expand(*key.shape[:-2], -1, -1)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in zip(("n_queries", "d_q"), self.queries.shape, strict=True))


class ConstantQuery(TypedModule):
    """Constant queries, which do not learn.

    Args:
        queries: ``(L, d_q)``; kept in the state dict.

    >>> ConstantQuery(torch.ones(1, 8))(torch.randn(2, 5, 8)).shape
    torch.Size([2, 1, 8])
    """

    queries: Tensor

    def __init__(self, queries: Tensor) -> None:
        super().__init__()
        check_axes(queries=(queries, 2))
        self.register_buffer("queries", queries.detach().clone())

    def forward(self, key: Tensor) -> Tensor:
        """``(..., S, d) -> (..., L, d_q)``, the same for every example."""
        check_rows("key", key)
        return self.queries.to(key.dtype).expand(*key.shape[:-2], -1, -1)
