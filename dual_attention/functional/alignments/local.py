"""Local alignment: windows of keys around a place for each query, and the Gaussian that favours their middle.

Luong et al. 2015 (arXiv 1508.04025), section 3.2. The window is a mask, in which any alignment then works. Positions
count from zero, among the keys that are real: padding moves nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .common import require_rate


def monotonic_centre(n_queries: int, lengths: Tensor, *, offset: int = 0) -> Tensor:
    """Centres of local-m, integers ``(..., L)``: query t looks at key t, as long as there is one.

    Math: c_t = min(t + offset, n - 1), with n the number of real keys of each example: ``lengths``, integers ``(...)``

    >>> monotonic_centre(4, torch.tensor([3]))
    tensor([[0, 1, 2, 2]])
    """
    queries = torch.arange(n_queries, device=lengths.device) + offset
    return torch.minimum(queries, lengths[..., None] - 1).clamp_min(0)


def predicted_position(logits: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Positions and centres of local-p (Luong et al. 2015, eq. 9).

    Math: p_t = n sigmoid(logit_t),  c_t = min(floor(p_t), n - 1)

    Args:
        logits: ``(..., L)``; lengths: n, integers ``(...)``, broadcastable to the logits' leading axes.

    Returns:
        Real positions p ``(..., L)``, with gradients, and integer centres c of the same shape.

    >>> position, centre = predicted_position(torch.tensor([[0.0]]), torch.tensor([9]))
    >>> position, centre
    (tensor([[4.5000]]), tensor([[4]]))
    """
    lengths = lengths[..., None]
    position = lengths * torch.sigmoid(logits)
    # sigmoid saturates at 1, where floor(p) is one past the last key
    centre = torch.minimum(position.detach().floor().long(), lengths - 1).clamp_min(0)
    return position, centre


def local_window(centre: Tensor, positions: Tensor, half_width: int) -> Tensor:
    """Mask of the keys near a centre, boolean ``(..., L, S)``.

    Math: |s - c_t| <= D

    Args:
        centre: c, integers ``(..., L)``.
        positions: of the keys, integers ``(..., S)``.
        half_width: D >= 0; a window that ends inside the sequence has 2 D + 1 keys.

    >>> local_window(torch.tensor([1]), torch.arange(5), half_width=1)
    tensor([[ True,  True,  True, False, False]])
    """
    if half_width < 0:
        raise ValueError(f"half_width: expected zero or more, got {half_width}")
    return (positions[..., None, :] - centre[..., :, None]).abs() <= half_width


def log_gaussian(position: Tensor, positions: Tensor, sigma: float) -> Tensor:
    """Logarithm ``(..., L, S)`` of the Gaussian that local-p multiplies the weights with (Luong et al. 2015, eq. 10).

    Math: -(s - p_t)^2 / (2 sigma^2)

    Multiplied after the alignment, the weights sum to less than one; added to the scores before a softmax, the same
    weights are renormalised.

    Args:
        position: p, real, ``(..., L)``; positions: of the keys, ``(..., S)``.
        sigma: > 0; the paper's is half the half-width of the window.

    >>> log_gaussian(torch.tensor([2.0]), torch.arange(5), sigma=1.0)
    tensor([[-2.0000, -0.5000, -0.0000, -0.5000, -2.0000]])
    """
    require_rate("sigma", sigma)
    return -(positions[..., None, :] - position[..., :, None]).square() / (2 * sigma**2)
