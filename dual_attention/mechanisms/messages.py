"""Messages, which the weights carry from a key to a query.

A message module makes :class:`Messages` of query, key and value as the caller gave them; a mechanism sums these under
its weights, a block of queries at a time. The kind of a value follows from its type, never from its shape.

Shapes: B batch, H heads, G key/value heads, L queries, S keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._layers.calls import TypedModule
from .._layers.heads import split_heads
from .._layers.inputs import check_boolean, check_positive, check_sequence
from .._layers.symbols import Symbols, project_symbols
from ..functional import RelativeSymbols, combine
from ..functional.checks import check_tensor
from ..functional.reference import repeat_heads
from ..functional.relational.whole import attend_to_symbols
from ..functional.symbols import with_vectors


class Messages(ABC):
    """Messages to be summed under the weights. Subclasses implement :meth:`receive`.

    >>> messages = ValueMessage()(None, torch.randn(2, 5, 8))
    >>> isinstance(messages, Messages), messages.receive(torch.rand(2, 3, 5), slice(None)).shape
    (True, torch.Size([2, 3, 8]))
    """

    @abstractmethod
    def receive(self, weights: Tensor, rows: slice, *, multidim: bool = False, mask: Tensor | None = None) -> Tensor:
        """Sum of the messages to some queries.

        Args:
            weights: ``(..., rows, S)``; with ``multidim`` ``(..., rows, S, d_v)``.
            rows: these queries.
            mask: the keys that they may attend, boolean, broadcastable to ``(..., rows, S)``.

        Returns:
            ``(..., rows, d_v)``, in the type of the messages.
        """


@dataclass(frozen=True)
class SharedValues(Messages):
    """One value for each key, ``(..., S, d_v)``.

    >>> SharedValues(torch.randn(2, 5, 8)).receive(torch.rand(2, 3, 5), slice(None)).shape
    torch.Size([2, 3, 8])
    """

    values: Tensor

    def receive(self, weights: Tensor, rows: slice, *, multidim: bool = False, mask: Tensor | None = None) -> Tensor:
        return combine(weights, self.values, multidim=multidim)


@dataclass(frozen=True)
class PairwiseValues(Messages):
    """One value for each pair of query and key, ``(..., L, S, d_v)``.

    >>> PairwiseValues(torch.randn(2, 3, 5, 4)).receive(torch.rand(2, 3, 5), slice(None)).shape
    torch.Size([2, 3, 4])
    """

    values: Tensor

    def receive(self, weights: Tensor, rows: slice, *, multidim: bool = False, mask: Tensor | None = None) -> Tensor:
        return combine(weights, self.values[..., rows, :, :], multidim=multidim, pairwise=True)


@dataclass(frozen=True)
class RelativeValues(Messages):
    """Values of pairs from the rows of a library ``(K, H, d_v)``, such as relative symbols; for weights of heads.

    >>> symbols = RelativeSymbols(torch.randn(3, 4, 8), torch.zeros(9, 9, dtype=torch.long))
    >>> RelativeValues(symbols).receive(torch.rand(2, 4, 9, 9), slice(None)).shape
    torch.Size([2, 4, 9, 8])
    """

    values: RelativeSymbols

    def receive(self, weights: Tensor, rows: slice, *, multidim: bool = False, mask: Tensor | None = None) -> Tensor:
        here = rows_of(self.values, rows)
        if multidim:
            return combine(weights, here.dense().permute(2, 0, 1, 3), multidim=True, pairwise=True)
        return attend_to_symbols(weights.to(here.library.dtype), here)


class Message(TypedModule, ABC):
    """Module that makes messages. Subclasses implement ``forward(query, key, value)``.

    Attributes:
        heads: number of heads of the messages; None for messages without an axis of heads.

    >>> isinstance(ValueMessage(), Message), isinstance(FeatureMessage(32, heads=4, head_dim=8), Message)
    (True, True)
    """

    heads: int | None = None

    @abstractmethod
    def forward(self, query: Tensor | None, key: Tensor, value: Any = None) -> Messages:
        """Messages of the keys, or of pairs."""


class ValueMessage(Message):
    """The value itself, or the key where no value is given: ``(..., S, d_v)``. The default.

    >>> ValueMessage()(None, torch.randn(2, 5, 8)).receive(torch.rand(2, 3, 5), slice(None)).shape
    torch.Size([2, 3, 8])
    """

    def forward(self, query: Tensor | None, key: Tensor, value: Any = None) -> SharedValues:
        return SharedValues(_shared_value(key, value))


class PairwiseMessage(Message):
    """The value given for each pair: ``(..., L, S, d_v)``.

    >>> attention = GeneralAttention(Dot(), message=PairwiseMessage())
    >>> attention(torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 3, 5, 4)).context.shape
    torch.Size([2, 3, 4])
    """

    def forward(self, query: Tensor | None, key: Tensor, value: Any = None) -> PairwiseValues:
        if not isinstance(value, Tensor) or value.dim() < 3 or value.shape[-2] != key.shape[-2]:
            received = tuple(value.shape) if isinstance(value, Tensor) else value
            raise ValueError(f"value: expected pairwise values (..., L, S, d_v), S = {key.shape[-2]}, got {received}")
        return PairwiseValues(value)


class FeatureMessage(Message):
    """Values projected for each head: the message of sensory attention, and with symbols as values that of RCA.

    Math: v^h_s = v_s W_v^h

    The value is ``(B, S, d_value)``, or :class:`~dual_attention.functional.RelativeSymbols` of that width, which belong
    to pairs.

    Args:
        d_value: width of the values (of the keys, where no value is given).
        heads: H.
        head_dim: width of a head.
        n_kv_heads: heads of the projected values, each serving ``heads / n_kv_heads``; by default ``heads``.
        bias: in the projection.

    >>> heads = MultiHead(GeneralAttention(Dot(), message=FeatureMessage(32, heads=4, head_dim=8)), 32, 4)
    >>> heads(torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """

    def __init__(
        self, d_value: int, heads: int, head_dim: int, *, n_kv_heads: int | None = None, bias: bool = False
    ) -> None:
        super().__init__()
        check_boolean(bias=bias)
        self.heads = heads
        self.n_kv_heads = heads if n_kv_heads is None else n_kv_heads
        check_positive(d_value=d_value, heads=heads, head_dim=head_dim, n_kv_heads=self.n_kv_heads)
        self.head_dim = head_dim
        self.wv = nn.Linear(d_value, self.n_kv_heads * head_dim, bias=bias)

    def forward(self, query: Tensor | None, key: Tensor, value: Any = None) -> SharedValues | RelativeValues:
        if isinstance(value, RelativeSymbols):
            sizes = key.shape[0], 0 if query is None else query.shape[-2], key.shape[-2]
            projected = project_symbols(self.wv, value, self.n_kv_heads, sizes, True)
        else:
            value = _shared_value(key, value)
            check_sequence("value", value, self.wv.in_features, layer=self.wv)
            projected = split_heads(self.wv(value), self.n_kv_heads)
        repeated = repeat_symbols(projected, self.heads or 1)
        return RelativeValues(repeated) if isinstance(repeated, RelativeSymbols) else SharedValues(repeated)


class ValueResidual(FeatureMessage):
    """Values of this layer mixed with those of the first layer of a model.

    Math: m^h_s = lambda_1 v1^h_s + lambda_2 y_s W_v^h, lambda_1 and lambda_2 learned, 1/2 at first (Zhou et al. 2024,
    arXiv 2410.17897, the form with learned factors)

    The value is v1, ``(B, S, n_kv_heads * head_dim)``: what ``wv`` of the first layer made. Without one this is the
    first layer, and v1 its own.

    Args:
        others: as :class:`FeatureMessage`.

    >>> message = ValueResidual(32, heads=4, head_dim=8)
    >>> heads = MultiHead(GeneralAttention(Dot(), message=message), d_model=32, n_heads=4)
    >>> heads(torch.randn(2, 9, 32), value=torch.randn(2, 9, 32)).context.shape
    torch.Size([2, 9, 32])
    """

    def __init__(
        self, d_value: int, heads: int, head_dim: int, *, n_kv_heads: int | None = None, bias: bool = False
    ) -> None:
        super().__init__(d_value, heads, head_dim, n_kv_heads=n_kv_heads, bias=bias)
        self.mix = nn.Parameter(torch.full((2,), 0.5))

    def forward(self, query: Tensor | None, key: Tensor, value: Any = None) -> SharedValues:
        check_sequence("key", key, self.wv.in_features, layer=self.wv)
        own = self.wv(key)
        if value is not None:
            check_sequence("value", value, self.wv.out_features, batch=key.shape[:1], layer=self.wv)
        first = own if value is None else _shared_value(key, value)
        mixed = self.mix[0] * first + self.mix[1] * own
        return SharedValues(repeat_heads(split_heads(mixed, self.n_kv_heads), self.heads or 1))


def rows_of(symbols: RelativeSymbols, rows: slice) -> RelativeSymbols:
    """Symbols of the pairs with some receivers; for those of a block, no index of others is built."""
    if rows == slice(None):
        return symbols
    start, stop, receivers, senders = rows.start, rows.stop, *symbols.sizes[:2]
    if rows.step is None and start is not None and stop is not None and 0 <= start <= stop <= receivers:
        return RelativeSymbols(symbols.library, symbols.index_of(rows, slice(0, senders)))
    return RelativeSymbols(symbols.library, symbols.index[rows])


def repeat_symbols(symbols: Symbols, heads: int) -> Symbols:
    """Symbols of groups of heads ``(.., G, ..)``, repeated for each head."""
    return with_vectors(symbols, lambda x: repeat_heads(x, heads))


def _shared_value(key: Tensor, value: Any) -> Tensor:
    value = key if value is None else value
    check_tensor("value", value)
    if value.dim() < 2 or value.shape[-2] != key.shape[-2]:
        raise ValueError(f"value: expected as many as keys, {key.shape[-2]}, got shape {tuple(value.shape)}")
    return value
