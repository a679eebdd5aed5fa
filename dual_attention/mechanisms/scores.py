"""Scores as modules over :mod:`dual_attention.functional.scores`, where the formulas are.

Shapes as in :mod:`._score`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import functional
from .._layers.inputs import check_boolean, check_not_negative, check_positive
from ..functional.activations import Activation
from ..functional.alignments.common import require_rate
from ._parameters import matrix, zeros
from ._score import Factors, Score
from .similarities import Cosine as Cosine
from .similarities import Euclidean as Euclidean


class Dot(Score):
    """(Scaled) multiplicative score, see :func:`.dot_score`.

    Args:
        scale: by default ``1 / sqrt(d)``; 1 for the plain dot product.

    >>> Dot()(torch.randn(2, 3, 8), torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 5])
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


class SlotPair(Score):
    """Score of one slot of the query with another slot of the key; a head, or a relation, is a pair of slots.

    Math: e^r = <q^r, k^((r + shift) mod K)> / sqrt(d)  (Toshpulatov et al. 2027, Attribute-Decomposed Attention, ICDE)

    Slots stand where other scores have heads: ``(B, K, L, d)``.

    Args:
        n_slots: K.
        shift: from the slot of a query to that of its keys; 0 compares each slot with itself, as :class:`Dot` does.

    >>> slots = torch.randn(2, 4, 9, 8)
    >>> SlotPair(n_slots=4)(slots, slots).shape
    torch.Size([2, 4, 9, 9])
    """

    def __init__(self, n_slots: int, shift: int = 1) -> None:
        check_not_negative(shift=shift)
        super().__init__(n_slots, shift=shift)
        self.shift = shift

    def forward(self, query: Tensor | None, key: Tensor) -> Tensor:
        return functional.dot_score(self.require_query(query), self._other_slot(key))

    def factors(self, query: Tensor, key: Tensor) -> Factors:
        return query, self._other_slot(key), 1 / math.sqrt(query.shape[-1])

    def _other_slot(self, key: Tensor) -> Tensor:
        if key.dim() < 3 or key.shape[-3] != self.heads:
            raise ValueError(f"key: expected slots (..., {self.heads}, length, width), got shape {tuple(key.shape)}")
        return key.roll(-self.shift, dims=-3)


class _Additive(Score):
    """Scores by :func:`.additive_score`, of the parameters of a subclass."""

    def forward(self: Any, query: Tensor | None, key: Tensor) -> Tensor:
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


class Additive(_Additive):
    """Additive (concatenate) score, see :func:`.additive_score`.

    Args:
        d_q, d_k: widths of query and key.
        d_w: hidden width; by default ``d_k``.
        d_out: d_v, for a score of each feature of the value; by default one score.
        activation: by default tanh.
        bias: add a bias inside the activation, and to scores of features.
        heads: number of heads with parameters of their own.

    >>> Additive(d_q=6, d_k=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 5])
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
        check_boolean(bias=bias)
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


class BoundedAdditive(_Additive):
    """Multi-dimensional additive score within ±c, of token2token attention (Shen et al. 2017, arXiv 1709.04696).

    Math: e = c tanh((W_1 q + W_2 k + b) / c)

    Args:
        d_q, d_k, heads: as :class:`Additive`.
        d_out: d_v, the width of the value; by default ``d_k``.
        bound: c > 0.

    >>> BoundedAdditive(d_q=8, d_k=8)(torch.randn(2, 3, 8), torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 5, 8])
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
        self.weight = self.out_bias = None

    def activation(self, x: Tensor) -> Tensor:
        """Tanh that reaches the bound."""
        return self.bound * torch.tanh(x / self.bound)


class General(Score):
    """General (bilinear) score, see :func:`.general_score`.

    Args:
        d_q, d_k, heads: as :class:`Additive`.
        d_out: d_v, for a matrix and a score of each feature of the value; by default one of both.

    >>> General(d_q=6, d_k=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 5])
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

    >>> BiasedGeneral(d_q=6, d_k=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 5])
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

    >>> ActivatedGeneral(d_q=6, d_k=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(
        self, d_q: int, d_k: int, *, activation: Activation = torch.tanh, bias: bool = True, heads: int | None = None
    ) -> None:
        check_boolean(bias=bias)
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

    >>> Trilinear(8)(torch.randn(2, 3, 8), torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 5])
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

    >>> Product(d_q=6, d_k=8, d_w=16)(torch.randn(2, 3, 6), torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 5])
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

    >>> Location(d_q=8, max_length=10)(torch.randn(2, 3, 8), torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 5])
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

    >>> GeneralAttention(KeyOnly(d_k=8))(key=torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 1, 8])
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
        check_boolean(bias=bias)
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
