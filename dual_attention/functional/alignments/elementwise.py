"""Elementwise alignments: keys do not compete, and rows need not sum to one."""

from __future__ import annotations

import torch
from torch import Tensor

from ..activations import Activation
from .common import finish, prepare


def masked_activation(
    scores: Tensor,
    mask: Tensor | None = None,
    activation: Activation = torch.sigmoid,
    *,
    bias: Tensor | None = None,
    temperature: float | Tensor = 1.0,
) -> Tensor:
    """Elementwise alignment: the activated scores, as in relational cross-attention (arXiv 2304.00195).

    Math: a_s = act(e_s / tau), 0 where masked

    Weights may be negative (tanh, identity): they are then no distribution, and are not to be read as one.

    Args and errors as :func:`.masked_softmax`; ``activation`` is an elementwise function.

    >>> masked_activation(torch.tensor([0.0, 5.0]), torch.tensor([True, False]))
    tensor([0.5000, 0.0000])
    """
    x, allowed = prepare(scores, mask, bias=bias, temperature=temperature)
    # An activation may be NaN where scores are filled, or have no derivative at zero. Either would be dropped below,
    # but anomaly detection would report it.
    return finish(activation(x.masked_fill(~allowed, 1.0)), allowed, scores.dtype)


def sigmoid_alignment(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    shift: float | Tensor | None = None,
    bias: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    dim: int = -1,
) -> Tensor:
    """Sigmoid attention (Ramapuram et al. 2024, arXiv 2409.04431).

    Math: a_s = sigmoid(e_s / tau + b)

    Args:
        shift: b; by default -log n with n the number of keys that the row may attend, so that scores of zero give
            weights that sum to n / (n + 1).

    Other arguments and errors as :func:`.masked_softmax`.

    >>> sigmoid_alignment(torch.tensor([[0.0, 0.0]]), shift=0.0)
    tensor([[0.5000, 0.5000]])
    """
    x, allowed = prepare(scores, mask, bias=bias, temperature=temperature)
    if shift is None:
        shift = -allowed.sum(dim=dim, keepdim=True).clamp_min(1).to(x.dtype).log()
    return finish(torch.sigmoid(x.masked_fill(~allowed, 0.0) + shift), allowed, scores.dtype)
