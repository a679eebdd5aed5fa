"""A linear layer as a module."""

from __future__ import annotations

from torch import Tensor, nn

from ..functional.products import linear


class Linear(nn.Linear):
    """PyTorch's, but for the time it takes on some processors, see :mod:`~dual_attention.functional.products`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)
