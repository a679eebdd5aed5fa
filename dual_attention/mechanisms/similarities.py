"""Scores by cosine and by distance, with a strength that may be learned. Shapes as in :mod:`._score`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import functional
from .._layers.inputs import check_boolean
from ..functional.alignments.common import require_rate
from ..functional.checks import is_autocast
from ..functional.scores import unit_vectors
from ._score import Factors, Score


class _Strength(Score):
    """A score times a positive strength beta, fixed or learned, one for each head."""

    def __init__(self, beta: float = 1.0, *, learned: bool = False, heads: int | None = None) -> None:
        check_boolean(learned=learned)
        super().__init__(heads, beta=beta, learned=learned)
        require_rate("beta", beta)
        self.beta = beta
        self.raw_beta = None
        if learned:
            raw = beta + math.log(-math.expm1(-beta))  # softplus of it is beta
            self.raw_beta = nn.Parameter(torch.full(() if heads is None else (heads, 1, 1), raw))

    def strength(self) -> float | Tensor:
        """beta: a number, or a tensor if it is learned."""
        return self.beta if self.raw_beta is None else F.softplus(self.raw_beta)


class Cosine(_Strength):
    """Cosine similarity times beta, see :func:`.cosine_score`. With a learned beta, the QK-norm of Henry et al. 2020.

    Args:
        beta: key strength, positive; the first value if it is learned.
        learned: learn beta, through softplus.
        heads: number of heads with a beta of their own.

    >>> Cosine(beta=2.0)(torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    tensor([[2., 0.]])
    """

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.cosine_score(self.require_query(query), key, beta=self.strength())

    def factors(self, query: Tensor, key: Tensor) -> Factors:
        q, k = unit_vectors(query, key)
        return (self.strength() * q).to(query.dtype), k.to(key.dtype), 1.0


class Euclidean(_Strength):
    """Negated distance times beta, so that nearer is higher, see :func:`.euclidean_score`.

    Args:
        squared: take the squared distance.
        beta, learned, heads: as :class:`Cosine`.

    >>> Euclidean()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[-5., -1.]])
    """

    def __init__(
        self, *, squared: bool = False, beta: float = 1.0, learned: bool = False, heads: int | None = None
    ) -> None:
        check_boolean(squared=squared, learned=learned)
        super().__init__(beta, learned=learned, heads=heads)
        self._shown = {"squared": squared, **self._shown}
        self.squared = squared

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.euclidean_score(self.require_query(query), key, squared=self.squared, beta=self.strength())

    def factors(self, query: Tensor, key: Tensor) -> Factors | None:
        """Factors of the squared distance, see :func:`.squared_distance_queries`."""
        if not self.squared or query.dtype.itemsize < 4 or is_autocast(query):  # narrow: no differences of squares
            return None
        return self.strength() * functional.squared_distance_queries(query), functional.squared_distance_keys(key), 1.0
