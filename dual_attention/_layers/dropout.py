"""Dropout as a module."""

from __future__ import annotations

from torch import Tensor, nn

from ..functional.dropout import drop


class Dropout(nn.Dropout):
    """PyTorch's, but for how a CPU draws what is dropped, see :mod:`~dual_attention.functional.dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        return drop(input, self.p) if self.training else input
