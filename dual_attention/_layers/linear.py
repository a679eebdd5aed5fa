"""A linear layer as a module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.products import compiled_linear, linear


class Linear(nn.Linear):
    """PyTorch's, but for the time it takes on some processors, see :mod:`~dual_attention.functional.products`."""

    def forward(self, input: Tensor) -> Tensor:
        product = compiled_linear if torch.compiler.is_compiling() else linear
        return product(input, self.weight, self.bias)
