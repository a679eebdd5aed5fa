"""Random tensors, modules for exact comparisons, and comparisons that tests of all kinds share."""

import torch
from torch import Tensor, nn


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def close(got: Tensor, wanted: Tensor, atol: float = 1e-12) -> None:
    """Assert equality up to rounding, of float64 by default."""
    torch.testing.assert_close(got, wanted, atol=atol, rtol=0)


def float64(module: nn.Module) -> nn.Module:
    """The module in float64 and evaluation mode, its parameters moved off special values such as zero biases."""
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


def assert_later_tokens_do_not_matter(function, x: Tensor, at: int) -> None:
    """Changing tokens from ``at`` on leaves outputs before ``at`` as they were, and changes the later ones."""
    changed = x.clone()
    changed[:, at:] += 1.0
    before, after = function(x), function(changed)
    close(before[:, :at], after[:, :at])
    assert not torch.allclose(before[:, at:], after[:, at:])
