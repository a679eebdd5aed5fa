"""Scores as modules over :mod:`dual_attention.functional.scores`, where the formulas are.

Shapes: ``query (..., L, d_q)`` and ``key (..., S, d_k)`` give ``(..., L, S)``; a score with ``multidim`` gives
``(..., L, S, d_v)``, one for each feature of the value. With ``heads`` every parameter has an axis of heads in front,
and queries and keys are ``(B, heads, L, d_q)`` and ``(B, heads, S, d_k)``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import functional
from .._layers.inputs import check_not_negative, check_positive
from ..functional.activations import Activation
from ..functional.alignments.common import require_rate
from ..functional.scores import unit_vectors
from ._parameters import matrix, zeros

Factors = tuple[Tensor, Tensor, float]
"""Queries ``(..., L, p)`` and keys ``(..., S, p)``, of one type, and the factor of their inner products."""


class Score(nn.Module, ABC):
    """A function of query and key. Subclasses implement ``forward(query, key)``, which must not mask.

    Args:
        heads: number of heads with parameters of their own, which then have an axis of heads in front.
        shown: settings shown in the representation, where they are not None.

    Attributes:
        multidim: whether there is a score for each feature of the value.
        n_queries: number of rows of a score that takes no query; None for scores that take one.
    """

    multidim: bool = False
    n_queries: int | None = None

    def __init__(self, heads: int | None = None, **shown: object) -> None:
        super().__init__()
        check_positive(heads=1 if heads is None else heads)
        self.heads = heads
        self._shown = shown

    @abstractmethod
    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        """Scores ``(..., L, S)`` of every key for every query."""

    def factors(self, query: Tensor, key: Tensor) -> Factors | None:
        """Vectors and a number ``(q, k, scale)`` whose inner products ``scale <q, k>`` are the scores.

        None where scores are no inner products, or not exact enough in the dtype of the vectors. Relations by scores
        with factors are summed under attention without being built. A class implements this beside its ``forward``; a
        subclass that replaces only ``forward`` has none.
        """
        return None

    @property
    def factorises(self) -> bool:
        """Whether :meth:`factors` belongs to this score, and not to a class whose ``forward`` it has replaced."""
        owner = next(kind for kind in type(self).__mro__ if "forward" in vars(kind))
        return "factors" in vars(owner)

    def require_query(self, query: Tensor | None) -> Tensor:
        """The query; ``ValueError`` if there is none."""
        if query is None:
            raise ValueError(f"query: {type(self).__name__} compares keys with a query, got None")
        return query

    def extra_repr(self) -> str:
        shown = {**self._shown, "heads": self.heads}
        return ", ".join(f"{name}={value}" for name, value in shown.items() if value is not None)


class Dot(Score):
    """(Scaled) multiplicative score, see :func:`.dot_score`.

    Args:
        scale: by default ``1 / sqrt(d)``; 1 for the plain dot product.
    """

    def __init__(self, scale: float | None = None) -> None:
        super().__init__(scale="1/sqrt(d)" if scale is None else scale)
        self.scale = scale

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.dot_score(self.require_query(query), key, scale=self.scale)

    def factors(self, query: Tensor, key: Tensor) -> Factors:
        return query, key, self.scale_of(query.shape[-1])

    def scale_of(self, width: int) -> float:
        """Factor for queries of that width."""
        return 1 / math.sqrt(width) if self.scale is None else self.scale


class Additive(Score):
    """Additive (concatenate) score, see :func:`.additive_score`.

    Args:
        d_q, d_k: widths of query and key.
        d_w: hidden width; by default ``d_k``.
        d_out: d_v, for a score of each feature of the value; by default one score.
        activation: by default tanh.
        bias: add a bias inside the activation, and to scores of features.
        heads: number of heads with parameters of their own.
    """

    def __init__(
        self,
        d_q: int,
        d_k: int,
        d_w: int | None = None,
        *,
        d_out: int | None = None,
        activation: Activation = torch.tanh,
        bias: bool = True,
        heads: int | None = None,
    ) -> None:
        d_w = d_k if d_w is None else d_w
        super().__init__(heads, d_w=d_w, d_out=d_out)
        check_positive(d_q=d_q, d_k=d_k, d_w=d_w, d_out=1 if d_out is None else d_out)
        self.multidim = d_out is not None
        self.activation = activation
        self.weight_q = matrix(heads, d_w, d_q)
        self.weight_k = matrix(heads, d_w, d_k)
        self.bias = zeros(heads, d_w) if bias else None
        self.weight = matrix(heads, d_w) if d_out is None else matrix(heads, d_out, d_w)
        self.out_bias = zeros(heads, d_out) if d_out is not None and bias else None

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.additive_score(
            self.require_query(query),
            key,
            self.weight_q,
            self.weight_k,
            self.weight,
            bias=self.bias,
            out_bias=self.out_bias,
            activation=self.activation,
            multidim=self.multidim,
        )


class BoundedAdditive(Score):
    """Multi-dimensional additive score within ±c, of token2token attention (Shen et al. 2017, arXiv 1709.04696).

    Math: e = c tanh((W_1 q + W_2 k + b) / c)

    Args:
        d_q, d_k, heads: as :class:`Additive`.
        d_out: d_v, the width of the value; by default ``d_k``.
        bound: c > 0.
    """

    multidim = True

    def __init__(
        self, d_q: int, d_k: int, d_out: int | None = None, *, bound: float = 5.0, heads: int | None = None
    ) -> None:
        d_out = d_k if d_out is None else d_out
        super().__init__(heads, d_out=d_out, bound=bound)
        check_positive(d_q=d_q, d_k=d_k, d_out=d_out)
        require_rate("bound", bound)
        self.bound = bound
        self.weight_q = matrix(heads, d_out, d_q)
        self.weight_k = matrix(heads, d_out, d_k)
        self.bias = zeros(heads, d_out)

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.additive_score(
            self.require_query(query),
            key,
            self.weight_q,
            self.weight_k,
            None,
            bias=self.bias,
            activation=lambda x: self.bound * torch.tanh(x / self.bound),
            multidim=True,
        )


class General(Score):
    """General (bilinear) score, see :func:`.general_score`.

    Args:
        d_q, d_k, heads: as :class:`Additive`.
        d_out: d_v, for a matrix and a score of each feature of the value; by default one of both.
    """

    def __init__(self, d_q: int, d_k: int, *, d_out: int | None = None, heads: int | None = None) -> None:
        super().__init__(heads, d_out=d_out)
        check_positive(d_q=d_q, d_k=d_k, d_out=1 if d_out is None else d_out)
        self.multidim = d_out is not None
        self.weight = matrix(heads, *(() if d_out is None else (d_out,)), d_k, d_q)

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.general_score(self.require_query(query), key, self.weight, multidim=self.multidim)

    def factors(self, query: Tensor, key: Tensor) -> Factors | None:
        return None if self.multidim else (query @ self.weight.transpose(-2, -1), key, 1.0)


class BiasedGeneral(General):
    """General score with a bias on the mapped query, a preference for keys whatever the query.

    See :func:`.general_score`; arguments as :class:`General`, without ``d_out``.
    """

    def __init__(self, d_q: int, d_k: int, *, heads: int | None = None) -> None:
        super().__init__(d_q, d_k, heads=heads)
        self.query_bias = zeros(heads, d_k)

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.general_score(self.require_query(query), key, self.weight, query_bias=self.query_bias)

    def factors(self, query: Tensor, key: Tensor) -> Factors:
        return query @ self.weight.transpose(-2, -1) + self.query_bias.unsqueeze(-2), key, 1.0


class ActivatedGeneral(General):
    """General score with a scalar bias under an activation, see :func:`.general_score`.

    Under tanh, scores lie within ±1 and softmax weights are flat; an alignment of temperature below one sharpens them.

    Args:
        d_q, d_k, heads: as :class:`Additive`.
        activation: by default tanh.
        bias: add a bias inside the activation.
    """

    def __init__(
        self, d_q: int, d_k: int, *, activation: Activation = torch.tanh, bias: bool = True, heads: int | None = None
    ) -> None:
        super().__init__(d_q, d_k, heads=heads)
        self.activation = activation
        self.bias = zeros(heads) if bias else None

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.general_score(
            self.require_query(query), key, self.weight, bias=self.bias, activation=self.activation
        )


class Trilinear(Score):
    """Score of key, query and their product, see :func:`.trilinear_score`.

    Args:
        d: width of query and key.
        heads: as :class:`Additive`.
    """

    def __init__(self, d: int, *, heads: int | None = None) -> None:
        super().__init__(heads, d=d)
        check_positive(d=d)
        self.weight = matrix(heads, 3 * d)

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.trilinear_score(self.require_query(query), key, self.weight)

    def factors(self, query: Tensor, key: Tensor) -> Factors:
        of_k, of_q, of_both = self.weight.unsqueeze(-2).chunk(3, dim=-1)
        q = torch.cat([query * of_both + of_k, (query * of_q).sum(-1, keepdim=True)], dim=-1)
        return q, torch.cat([key, torch.ones_like(key[..., :1])], dim=-1), 1.0


class Product(Score):
    """Product of activated projections, see :func:`.product_score`.

    Args:
        d_q, d_k, d_w, heads: as :class:`Additive`.
    """

    def __init__(self, d_q: int, d_k: int, d_w: int | None = None, *, heads: int | None = None) -> None:
        d_w = d_k if d_w is None else d_w
        super().__init__(heads, d_q=d_q, d_k=d_k, d_w=d_w)
        check_positive(d_q=d_q, d_k=d_k, d_w=d_w)
        self.weight_q = matrix(heads, d_w, d_q)
        self.weight_k = matrix(heads, d_w, d_k)
        self.weight = matrix(heads, d_w)

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.product_score(self.require_query(query), key, self.weight_q, self.weight_k, self.weight)

    def factors(self, query: Tensor, key: Tensor) -> Factors:
        q = torch.tanh(query @ self.weight_q.transpose(-2, -1)) * self.weight.unsqueeze(-2)
        return q, torch.tanh(key @ self.weight_k.transpose(-2, -1)), 1.0


class Location(Score):
    """Scores of positions, from the query only, see :func:`.location_score`.

    Args:
        d_q: width of the query.
        max_length: S_max; keys beyond it are masked.
        heads: as :class:`Additive`.
    """

    def __init__(self, d_q: int, max_length: int, *, heads: int | None = None) -> None:
        super().__init__(heads, d_q=d_q, max_length=max_length)
        check_positive(d_q=d_q, max_length=max_length)
        self.weight = matrix(heads, max_length, d_q)

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.location_score(self.require_query(query), self.weight, key.shape[-2])


class KeyOnly(Score):
    """Score of keys only, for attention without a query, see :func:`.key_score`.

    Args:
        d_k: width of the keys.
        d_w: hidden width; by default ``d_k``. With 0 there is no hidden layer: the score is linear in the key.
        n_queries: number of scores, each of which makes a context (structured self-attention).
        d_out: d_v, for a score of each feature of the value (source2token); needs ``n_queries=1``.
        activation, bias, heads: as :class:`Additive`.
    """

    def __init__(
        self,
        d_k: int,
        d_w: int | None = None,
        *,
        n_queries: int = 1,
        d_out: int | None = None,
        activation: Activation = torch.tanh,
        bias: bool = True,
        heads: int | None = None,
    ) -> None:
        d_w = d_k if d_w is None else d_w
        super().__init__(heads, d_w=d_w, n_queries=n_queries, d_out=d_out)
        check_positive(d_k=d_k, n_queries=n_queries, d_out=1 if d_out is None else d_out)
        check_not_negative(d_w=d_w)
        if d_out is not None and n_queries != 1:
            raise ValueError(f"n_queries: expected 1 with scores of features (d_out={d_out}), got {n_queries}")
        self.multidim = d_out is not None
        self.n_queries = n_queries
        self.activation = activation
        self.weight_k = matrix(heads, d_w, d_k) if d_w else None
        self.bias = zeros(heads, d_w) if d_w and bias else None
        self.weight = matrix(heads, n_queries if d_out is None else d_out, d_w or d_k)
        self.out_bias = zeros(heads, d_out) if d_out is not None and bias else None

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.key_score(
            key,
            self.weight_k,
            self.weight,
            bias=self.bias,
            out_bias=self.out_bias,
            activation=self.activation,
            multidim=self.multidim,
        )


class _Strength(Score):
    """A score times a positive strength beta, fixed or learned, one for each head."""

    def __init__(self, beta: float = 1.0, *, learned: bool = False, heads: int | None = None) -> None:
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
    """

    def __init__(
        self, *, squared: bool = False, beta: float = 1.0, learned: bool = False, heads: int | None = None
    ) -> None:
        super().__init__(beta, learned=learned, heads=heads)
        self._shown = {"squared": squared, **self._shown}
        self.squared = squared

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.euclidean_score(self.require_query(query), key, squared=self.squared, beta=self.strength())

    def factors(self, query: Tensor, key: Tensor) -> Factors | None:
        """Factors of the squared distance: -beta |q - k|^2 = beta <[2 q; -|q|^2; -1], [k; 1; |k|^2]>."""
        if not self.squared or query.dtype.itemsize < 4:  # narrow types hold no differences of squares
            return None
        q2, k2 = query.square().sum(-1, keepdim=True), key.square().sum(-1, keepdim=True)
        q = torch.cat([2 * query, -q2, -torch.ones_like(q2)], dim=-1)
        return self.strength() * q, torch.cat([key, torch.ones_like(k2), k2], dim=-1), 1.0
