"""Stick-breaking alignment: keys take their share one after the other, from the last to the first."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from .common import finish, prepare


def stick_breaking(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    dim: int = -1,
) -> Tensor:
    """Stick-breaking attention (Tan et al. 2024, arXiv 2410.17980).

    Math: a_s = beta_s prod_{t > s} (1 - beta_t),  beta = sigmoid(e / tau), over the keys t that may be attended

    The last visible key, for a causal query the nearest, takes a share beta of the whole, and each key before it a
    share of what is left: keys have an order without positions. Weights sum to at most one.

    Args, returns and errors as :func:`masked_softmax`.

    >>> stick_breaking(torch.zeros(3, 3))
    tensor([[0.1250, 0.2500, 0.5000],
            [0.1250, 0.2500, 0.5000],
            [0.1250, 0.2500, 0.5000]])
    """
    x, allowed = prepare(scores, mask, bias=bias, temperature=temperature)
    x = x.masked_fill(~allowed, 0.0)
    kept = F.logsigmoid(-x).masked_fill(~allowed, 0.0).movedim(dim, -1)  # log(1 - beta)
    left = F.pad(kept, (0, 1))[..., 1:].flip(-1).cumsum(-1).flip(-1).movedim(-1, dim)
    return finish((F.logsigmoid(x) + left).exp(), allowed, scores.dtype)
