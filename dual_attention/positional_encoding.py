"""Positions: added to the input (sinusoidal, learned), relative at each attention (Shaw), or rotary.

Shapes: B batch, H heads, L length, N receivers, M senders, d width of the model, P largest relative position.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from ._layers.calls import TypedModule
from ._layers.inputs import (
    check_boolean,
    check_dropout,
    check_not_negative,
    check_places,
    check_positive,
    check_sequence,
    is_offloaded,
)
from .functional.checks import check_rows, check_same_device, is_open, is_readable
from .functional.rotary import apply_rotary, rotary_tables
from .functional.symbols import lookup

__all__ = [
    "LearnedPositionalEmbeddings",
    "RelativePositionalEncoding",
    "RotaryPositionalEncoding",
    "SinusoidalPositionalEncoding",
    "sinusoidal_table",
]


def sinusoidal_table(length: int, dim: int) -> Tensor:
    """Sines and cosines of Vaswani et al. 2017 (arXiv 1706.03762, section 3.5), float32 of shape ``(length, dim)``.

    Math: PE(t, 2c) = sin(t / 10000^(2c/dim)),  PE(t, 2c+1) = cos(t / 10000^(2c/dim))

    >>> sinusoidal_table(length=16, dim=32).shape
    torch.Size([16, 32])
    """
    return sinusoids(torch.arange(length), dim)


def sinusoids(places: Tensor, dim: int, theta: float = 10000.0) -> Tensor:
    """Sines and cosines as :func:`sinusoidal_table` at any places ``(K,)``, negative ones too: ``(K, dim)``.

    Floating-point places are computed and returned in their type, integers in float32. ``theta`` is the base of the
    frequencies.
    """
    wide = places.dtype if places.is_floating_point() else torch.float32
    steps = torch.arange(0, dim, 2, dtype=wide, device=places.device)
    angles = places[:, None] * torch.exp(steps * (-math.log(theta) / dim))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :dim]


def rows_at(table: Tensor, x: Tensor, positions: Tensor | None, *, limit: str, offset: int = 0) -> Tensor:
    """Rows of a table at the positions of the tokens ``x`` ``(B, L, ...)``; ``limit``: what set the table's length.

    Positions are integers ``(B or 1, L)``, for ``(B or 1, L, width)``; else L in a row from ``offset``: ``(L, width)``.
    """
    batch, length = x.shape[:2]
    if positions is None:
        if offset + length > len(table):
            raise ValueError(f"x: length {offset + length} exceeds {limit}={len(table)}")
        return table[offset : offset + length]
    check_positions(positions, batch, length, len(table) - 1, f"{limit}={len(table)}")
    return lookup(table, positions.long())


def table_of(layer: nn.Module, x: Tensor) -> Tensor:
    """All rows of an embedding, to be read beside ``x``.

    The layer is called where its weight does not tell them: an offloaded one is in memory only during the call, and an
    adapter in the place of a layer computes other rows.
    """
    weight = layer.weight if type(layer) is nn.Embedding else None
    if weight is not None and not is_offloaded(weight, x):
        return weight
    rows = len(weight if weight is not None else cast(Tensor, layer.weight))
    return layer(torch.arange(rows, device=x.device))


def check_positions(positions: Tensor, batch: int, length: int, last: int, why: str) -> None:
    """Raise ``ValueError`` unless positions are integers ``(batch or 1, length)`` from 0 to ``last``.

    Their values are looked at on the CPU only, and not while compiling; elsewhere it is the lookup that fails.
    """
    check_places("positions", positions, batch, length)
    if positions.numel() and is_readable(positions) and (int(positions.min()) < 0 or int(positions.max()) > last):
        raise ValueError(
            f"positions: expected 0 to {last} ({why}), got {int(positions.min())} to {int(positions.max())}"
        )


class _AddedPositions(TypedModule):
    def __init__(self, d_model: int, scale: bool, dropout: float, max_len: int) -> None:
        super().__init__()
        check_boolean(scale=scale)
        check_positive(d_model=d_model, max_len=max_len)
        self.d_model = d_model
        self.max_len = max_len
        self.scale = math.sqrt(d_model) if scale else 1.0
        self.dropout = nn.Dropout(check_dropout("dropout", dropout))

    @abstractmethod
    def _table(self, x: Tensor) -> Tensor:
        """The positions, ``(max_len, d)``, for ``x``."""

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """``(B, L, d) -> (B, L, d)``.

        Args:
            positions: integers ``(B or 1, L)`` below ``max_len``, by default 0 to L - 1: where the tokens stand, if
                earlier ones are in a cache, or if examples are padded on the left.
        """
        check_sequence("x", x, self.d_model)
        table = self._table(x)
        if not table.is_meta:  # offloaded, perhaps
            check_same_device(positions=table, x=x)
        return self.dropout(self.scale * x + rows_at(table, x, positions, limit="max_len"))


class SinusoidalPositionalEncoding(_AddedPositions):
    """Add fixed sinusoidal positions: ``dropout(sqrt(d) x + PE)``.

    Args:
        d_model: width of the model.
        scale: multiply the input by ``sqrt(d_model)`` first, as in the original Transformer.
        dropout: rate applied to the sum.
        max_len: largest length.

    >>> SinusoidalPositionalEncoding(d_model=32)(torch.randn(2, 9, 32)).shape
    torch.Size([2, 9, 32])
    """

    pe: Tensor

    def __init__(self, d_model: int, scale: bool = True, dropout: float = 0.1, max_len: int = 2048) -> None:
        super().__init__(d_model, scale, dropout, max_len)
        self.register_buffer("pe", sinusoidal_table(max_len, d_model).to(torch.get_default_dtype()))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SinusoidalPositionalEncoding:
        had_none = self.pe.is_meta
        super()._apply(fn, recurse)
        if had_none:  # .to_empty() leaves out the values
            self.pe.copy_(sinusoidal_table(self.max_len, self.d_model))
        return self

    def _table(self, x: Tensor) -> Tensor:
        return self.pe


class LearnedPositionalEmbeddings(_AddedPositions):
    """Add learned positions: ``dropout(sqrt(d) x + E)``. Arguments as :class:`SinusoidalPositionalEncoding`.

    >>> LearnedPositionalEmbeddings(max_len=16, d_model=32)(torch.randn(2, 9, 32)).shape
    torch.Size([2, 9, 32])
    """

    def __init__(self, d_model: int, scale: bool = True, dropout: float = 0.1, max_len: int = 2048) -> None:
        super().__init__(d_model, scale, dropout, max_len)
        self.position_embeddings = nn.Embedding(max_len, d_model)

    def _table(self, x: Tensor) -> Tensor:
        return table_of(self.position_embeddings, x)


class RelativePositionalEncoding(TypedModule):
    """A learned vector for each clipped offset ``j - i`` (Shaw et al. 2018, arXiv 1803.02155).

    Args:
        dim: width of the vectors.
        max_rel_pos: P; offsets are clipped to [-P, P].

    >>> RelativePositionalEncoding(dim=32, max_rel_pos=8)(9, 9).shape
    torch.Size([9, 9, 32])
    """

    def __init__(self, dim: int, max_rel_pos: int) -> None:
        super().__init__()
        check_positive(dim=dim)
        check_not_negative(max_rel_pos=max_rel_pos)
        self.dim = dim
        self.max_rel_pos = max_rel_pos
        self.rel_pos_embeddings = nn.Parameter(torch.empty(2 * max_rel_pos + 1, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors from Xavier's uniform distribution."""
        nn.init.xavier_uniform_(self.rel_pos_embeddings)

    def index(self, length_q: int, length_k: int | None = None, *, offset: int = 0) -> Tensor:
        """Row of the table for each pair, ``clip(j - i, -P, P) + P``: integers of shape ``(N, M)``.

        Args:
            length_q: N; length_k: M, by default ``offset + N``.
            offset: place of the first receiver among the senders, as in
                :class:`~dual_attention.functional.MaskPattern`.
        """
        return self._index(length_q, length_k, offset, self.rel_pos_embeddings.device)

    def _index(self, length_q: int, length_k: int | None, offset: Any, device: torch.device) -> Tensor:
        receivers = torch.arange(length_q, device=device) + offset
        senders = torch.arange(offset + length_q if length_k is None else length_k, device=device)
        offsets = senders[None, :] - receivers[:, None]
        return offsets.clamp(-self.max_rel_pos, self.max_rel_pos) + self.max_rel_pos

    def forward(self, length_q: int, length_k: int | None = None, *, offset: int = 0) -> Tensor:
        """The vectors of all pairs, shape ``(N, M, dim)``; arguments as :meth:`index`."""
        return self.rel_pos_embeddings[self.index(length_q, length_k, offset=offset)]

    def table(self, x: Tensor) -> Tensor:
        """The vectors of all offsets, ``(2 P + 1, dim)``, to be read beside ``x``, also where they are offloaded."""
        table = self.rel_pos_embeddings
        if not is_offloaded(table, x):  # an exported program is to read it here, whichever module uses it
            return table.view_as(table) if torch.compiler.is_exporting() else table
        return self(1, 2 * self.max_rel_pos + 1, offset=self.max_rel_pos)[0]  # of one receiver, in the middle

    def scores(self, q: Tensor, length_k: int, *, offset: int = 0) -> Tensor:
        """Inner products ``(B, H, N, M)`` of queries with the vectors of their pairs, without a vector for every pair.

        Math: t_ij = <q_i, a_{clip(j - i)}>

        Args:
            q: ``(B, H, N, dim)``; length_k: M.
            offset: as :meth:`index`.
        """
        (batch, heads, length_q, dim), rows = q.shape, 2 * self.max_rel_pos + 1
        # By pair where that takes no more products, and the vectors of all pairs hold no more numbers than the products
        # with all offsets. Not in half precision, in which gradients of the vectors would be summed, too.
        by_pair = not is_open(batch, length_q, length_k) and length_k <= rows and length_k * dim <= batch * heads * rows
        if by_pair and q.element_size() >= 4:
            return torch.einsum("bhnd,nmd->bhnm", q, self(length_q, length_k, offset=offset))
        products = q @ self.table(q).transpose(0, 1)
        index = self._index(length_q, length_k, offset, q.device)
        return products.gather(-1, index.expand(*q.shape[:-1], length_k))


class RotaryPositionalEncoding(TypedModule):
    """Rotary positions (RoPE), with tables that stay float32 whatever the dtype of the module.

    Half-precision tables would place distant positions on the same angle. The tables are not in the state dict.

    Args:
        dim: width of a query or key head; even.
        max_len: largest length.
        theta: base of the frequencies.

    >>> RotaryPositionalEncoding(dim=16, max_len=32)(torch.randn(2, 4, 9, 16)).shape
    torch.Size([2, 4, 9, 16])
    """

    freqs_cos: Tensor
    freqs_sin: Tensor

    def __init__(self, dim: int, max_len: int, theta: float = 10000.0) -> None:
        super().__init__()
        check_positive(dim=dim, max_len=max_len)
        self.dim = dim
        self.max_len = max_len
        self.theta = theta
        for name, table in zip(("freqs_cos", "freqs_sin"), rotary_tables(dim, max_len, theta=theta), strict=True):
            self.register_buffer(name, table, persistent=False)

    def fill_tables(self) -> None:
        """Compute the tables, on the device where they are."""
        tables = rotary_tables(self.dim, self.max_len, theta=self.theta, device=self.freqs_cos.device)
        self.freqs_cos, self.freqs_sin = tables

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryPositionalEncoding:
        before = self.freqs_cos
        super()._apply(fn, recurse)
        if self.freqs_cos is not before:  # .half(), .bfloat16(), .double() round, and .to_empty() leaves out the values
            self.fill_tables()
        return self

    def tables(self, length: int) -> tuple[Tensor, Tensor]:
        """``(freqs_cos, freqs_sin)`` for the first ``length`` positions, each ``(length, dim / 2)``, for the layers."""
        if length > self.max_len:
            raise ValueError(f"length: {length} exceeds max_len={self.max_len}")
        return self.freqs_cos[:length], self.freqs_sin[:length]

    def tables_at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Tables for positions that differ between examples: integers ``(B, L)`` to a pair of ``(B, L, dim / 2)``.

        Left padding by itself does not need them, since rotary scores depend on differences of positions, unless the
        layer adds Shaw positions, whose vectors are not rotated.
        """
        check_positions(positions, positions.shape[0], positions.shape[-1], self.max_len - 1, f"max_len={self.max_len}")
        return lookup(self.freqs_cos, positions.long()), lookup(self.freqs_sin, positions.long())

    def forward(self, x: Tensor) -> Tensor:
        """Rotate queries or keys, ``(B, H, L, dim) -> (B, H, L, dim)``."""
        check_rows("x", x)
        return apply_rotary(x, *self.tables(x.shape[-2]))
