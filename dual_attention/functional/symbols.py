"""Position-relative symbols without an ``N x M x d`` tensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RelativeSymbols:
    """Symbols that depend on the pair (receiver, sender): ``s_ij = library[index_ij]``.

    An explicit type, so that shared symbols ``(B, M, d)`` and position-relative ones are never told apart by a shape.

    Attributes:
        library: symbols, shape ``(K, d)``, one row for each kind of pair (for instance each clipped offset ``j - i``).
        index: integers in ``[0, K)``, shape ``(N, M)``: the row that holds the symbol which names sender ``j`` to
            receiver ``i``.
    """

    library: Tensor
    index: Tensor

    def __post_init__(self) -> None:
        if self.library.dim() < 2:
            raise ValueError(f"library: expected shape (rows, symbol width), got {tuple(self.library.shape)}")
        if self.index.dim() != 2 or self.index.is_floating_point() or self.index.dtype == torch.bool:
            raise ValueError(
                f"index: expected integers of shape (receivers, senders), got shape {tuple(self.index.shape)} "
                f"of dtype {self.index.dtype}"
            )

    @property
    def shape(self) -> torch.Size:
        """Shape of :meth:`dense`: ``(N, M, d)``."""
        return torch.Size((*self.index.shape, *self.library.shape[1:]))

    def dense(self) -> Tensor:
        """The symbols of all pairs, shape ``(N, M, d)``."""
        return self.library[self.index]

    def last_senders(self, m: int) -> RelativeSymbols:
        """The symbols of the last ``m`` senders alone."""
        senders = self.index.shape[1]
        return self if m == senders else RelativeSymbols(self.library, self.index[:, senders - m :])

    @classmethod
    def from_dense(cls, symbols: Tensor) -> RelativeSymbols:
        """Wrap symbols given for every pair, shape ``(N, M, d)``: every pair has a row of its own."""
        if symbols.dim() != 3:
            raise ValueError(
                f"symbols: expected position-relative symbols of shape (receivers, senders, width), "
                f"got {tuple(symbols.shape)}"
            )
        n, m, _ = symbols.shape
        return cls(symbols.flatten(0, 1), torch.arange(n * m, device=symbols.device).view(n, m))
