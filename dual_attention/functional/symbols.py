"""Position-relative symbols without an ``N x M x d`` tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from .._base.words import repr_of_shapes
from .checks import check_axes, check_floating, check_same_device, check_tensor, is_readable


@dataclass(frozen=True)
class RelativeSymbols:
    """Symbols that depend on the pair (receiver, sender): ``s_ij = library[index_ij]``.

    An explicit type, so that shared symbols ``(B, M, d)`` and position-relative ones are never told apart by a shape.

    Attributes:
        library: symbols, shape ``(K, d)``, one row for each kind of pair (for instance each clipped offset ``j - i``).
        index: integers in ``[0, K)``, shape ``(N, M)``: the row that holds the symbol which names sender ``j`` to
            receiver ``i``.

    >>> index = torch.tensor([[0, 1], [2, 0]])
    >>> RelativeSymbols(torch.randn(3, 64), index).shape
    torch.Size([2, 2, 64])
    """

    library: Tensor
    index: Tensor

    __repr__ = repr_of_shapes

    def __post_init__(self) -> None:
        check_floating("library", self.library)
        check_tensor("index", self.index)
        if self.library.dim() < 2:
            raise ValueError(f"library: expected shape (rows, symbol width), got {tuple(self.library.shape)}")
        kind = self.index.dtype
        if self.index.dim() != 2 or kind.is_floating_point or kind.is_complex or kind == torch.bool:
            raise ValueError(
                f"index: expected integers of shape (receivers, senders), got shape {tuple(self.index.shape)} "
                f"of dtype {kind}"
            )
        if kind not in (torch.int64, torch.int32):  # others are no rows to PyTorch's lookups, and uint8 is a mask
            object.__setattr__(self, "index", self.index.long())

    @property
    def shape(self) -> torch.Size:
        """Shape of :meth:`dense`: ``(N, M, d)``."""
        return torch.Size(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape as a tuple; PyTorch 2.7 compiles no ``torch.Size``."""
        return (*self.index.shape, *self.library.shape[1:])

    def with_library(self, library: Tensor) -> RelativeSymbols:
        """The same pairs under another library of as many rows, for instance a projected one."""
        return RelativeSymbols(library, self.index)

    def index_of(self, rows: slice, columns: slice) -> Tensor:
        """The part of the index for some receivers and senders."""
        return self.index[rows, columns]

    def dense(self) -> Tensor:
        """The symbols of all pairs, shape ``(N, M, d)``."""
        return lookup(self.library, self.index)

    def last_senders(self, m: int) -> RelativeSymbols:
        """The symbols of only the last ``m`` senders."""
        senders = self.index.shape[1]
        return self if m == senders else RelativeSymbols(self.library, self.index[:, senders - m :])

    @classmethod
    def from_dense(cls, symbols: Tensor) -> RelativeSymbols:
        """Wrap symbols given for every pair, shape ``(N, M, d)``: every pair has a row of its own."""
        check_tensor("symbols", symbols)
        if symbols.dim() != 3:
            raise ValueError(
                f"symbols: expected position-relative symbols of shape (receivers, senders, width), "
                f"got {tuple(symbols.shape)}"
            )
        n, m, _ = symbols.shape
        return cls(symbols.flatten(0, 1), torch.arange(n * m, device=symbols.device).view(n, m))


def lookup(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table ``(K, ...)`` at integers; negative ones fail as those above K - 1 do, compiled or not."""
    return F.embedding(index, table.flatten(1)).unflatten(-1, table.shape[1:])


def with_vectors(symbols: Tensor | RelativeSymbols, change: Callable[[Tensor], Tensor]) -> Tensor | RelativeSymbols:
    """Symbols whose vectors, of relative ones those of the library, went through a function."""
    if isinstance(symbols, RelativeSymbols):
        return symbols.with_library(change(symbols.library))
    return change(symbols)


@dataclass(frozen=True, repr=False)
class OffsetSymbols(RelativeSymbols):
    """Symbols that depend only on the clipped offset: ``s_ij = library[clip(j - (i + offset), -P, P) + P]``.

    The structure is known, not read off an index: kernels that compute the row of a pair need no ``N x M`` tensor, and
    none is built unless it is asked for.

    Args:
        library: ``(2 P + 1, d)``, P the largest offset.
        receivers, senders: N and M.
        offset: place of the first receiver among the senders, as in :class:`.masks.MaskPattern`: with a cache of
            earlier senders, M - N; a tensor ``(1,)`` where only a device knows it.

    Raises:
        ValueError: if the library has an even number of rows.

    >>> symbols = PositionRelativeSymbolRetriever(symbol_dim=64, max_rel_pos=8)(torch.randn(2, 9, 64))
    >>> isinstance(symbols, OffsetSymbols), symbols.sizes
    (True, (9, 9, 64))
    """

    # Not a field as in the base, so that `dataclasses.replace`, which FSDP calls, makes another.
    index: ClassVar[Any]  # pyright: ignore[reportRedeclaration]
    receivers: int
    senders: int
    offset: int | Tensor = 0

    def __post_init__(self) -> None:
        check_floating("library", self.library)
        if self.library.dim() < 2 or self.library.shape[0] % 2 == 0:
            raise ValueError(f"library: expected shape (2 P + 1, symbol width), got {tuple(self.library.shape)}")

    @property
    def max_offset(self) -> int:
        """P, at which offsets are clipped."""
        return self.library.shape[0] // 2

    @property
    def index(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Rows of all pairs, integers of shape ``(N, M)``, built at each call."""
        return self.index_of(slice(0, self.receivers), slice(0, self.senders))

    def index_of(self, rows: slice, columns: slice) -> Tensor:
        i = torch.arange(rows.start, rows.stop, device=self.library.device)[:, None] + self.offset
        j = torch.arange(columns.start, columns.stop, device=self.library.device)
        return (j - i).clamp(-self.max_offset, self.max_offset) + self.max_offset

    @property
    def diagonals(self) -> Tensor:
        """Rows of the pairs in which the sender stands ``-N`` to ``M - 1`` after the receiver, ``(N + M,)``."""
        reach = self.max_offset
        places = torch.arange(-self.receivers, self.senders, device=self.library.device)
        return (places - self.offset).clamp(-reach, reach) + reach

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.receivers, self.senders, *self.library.shape[1:])

    def with_library(self, library: Tensor) -> OffsetSymbols:
        return OffsetSymbols(library, self.receivers, self.senders, self.offset)

    def last_senders(self, m: int) -> OffsetSymbols:
        if m == self.senders:
            return self
        return OffsetSymbols(self.library, self.receivers, m, self.offset - (self.senders - m))


def on_diagonals(diagonals: Tensor, receivers: int, rows: slice, columns: slice) -> Tensor:
    """Rows of the library for some of the pairs, ``(C, J)``, from :attr:`OffsetSymbols.diagonals` of N receivers."""
    i = torch.arange(rows.start, rows.stop, device=diagonals.device)[:, None]
    j = torch.arange(columns.start, columns.stop, device=diagonals.device)
    return diagonals[j - i + receivers]


def symbol_table(symbols: Tensor | RelativeSymbols) -> Tensor:
    """The tensor that holds the symbols: shared ones themselves, or the library of relative ones."""
    return symbols.library if isinstance(symbols, RelativeSymbols) else symbols


def checked_table(symbols: Tensor | RelativeSymbols) -> Tensor:
    """As :func:`symbol_table`; ``TypeError`` or ``ValueError`` unless these are projected symbols, of heads."""
    table, relative = symbol_table(symbols), isinstance(symbols, RelativeSymbols)
    check_axes(**{"symbols.library" if relative else "symbols": (table, 3 if relative else 4)})
    return table


def check_index(q: Tensor, symbols: Tensor | RelativeSymbols) -> None:
    """Raise ``ValueError`` if an index of relative symbols is not where the queries are, or leaves the library.

    Its values are looked at on the CPU only, and not while compiling; elsewhere it is the lookup that fails.
    """
    if not isinstance(symbols, RelativeSymbols) or isinstance(symbols, OffsetSymbols):
        return
    index, rows = symbols.index, symbols.library.shape[0]
    check_same_device(**{"q": q, "symbols.index": index})
    if index.numel() and is_readable(index):
        first, last = (int(end) for end in index.aminmax())
        if first < 0 or last >= rows:
            raise ValueError(f"symbols.index: expected 0 to {rows - 1}, rows of the library, got {first} to {last}")
