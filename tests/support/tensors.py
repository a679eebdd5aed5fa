"""Random tensors, modules for exact comparisons, and comparisons that tests of all kinds share."""

from typing import Any

import torch
from torch import Tensor, nn


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def close(got: Tensor, wanted: Tensor, atol: float = 1e-12) -> None:
    """Assert equality up to rounding, of float64 by default."""
    torch.testing.assert_close(got, wanted, atol=atol, rtol=0)


def moved(module: Any, by: float) -> Any:
    """The module in evaluation mode, its parameters moved at random, off zero and other special values."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return module.eval()


def float64(module: nn.Module) -> nn.Module:
    """The module in float64 and evaluation mode, its parameters moved off special values such as zero biases."""
    return moved(module.double(), 0.1)


def assert_later_tokens_do_not_matter(function, x: Tensor, at: int) -> None:
    """Changing tokens from ``at`` on leaves outputs before ``at`` as they were, and changes the later ones."""
    changed = x.clone()
    changed[:, at:] += 1.0
    before, after = function(x), function(changed)
    close(before[:, :at], after[:, :at])
    assert not torch.allclose(before[:, at:], after[:, at:])
