"""Normalisation over the objects of one example.

Shapes: B batch, N objects, d width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .._layers.calls import TypedModule
from .._layers.inputs import check_positive
from ..functional import masked_mean
from ..functional.checks import check_same_device
from ._objects import check_objects


class ContextNorm(TypedModule):
    """Temporal context normalisation (Webb et al. 2020, arXiv 2007.05059): each feature over the objects of an example.

    Math: z'_t = gamma (z_t - mu) / sqrt(var + eps) + beta,  mu = (1/N) sum_t z_t,  var = (1/N) sum_t (z_t - mu)^2

    It keeps how the objects of one example differ and drops what they share, so that comparisons carry over to others.

    Args:
        d_model: d.
        eps: added to the variance.

    >>> ContextNorm(d_model=1)(torch.tensor([[[1.0], [3.0]]])).flatten()
    tensor([-1.,  1.], grad_fn=<ViewBackward0>)
    """

    def __init__(self, d_model: int, eps: float = 1e-8) -> None:
        super().__init__()
        check_positive(d_model=d_model)
        self.d_model = d_model
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """``(B, N, d) -> (B, N, d)``; by a mask ``(B, N)``, True = real, other objects are ignored and become zero."""
        check_objects(x, padding_mask, self.d_model)
        check_same_device(weight=self.weight, x=x)
        given = x.dtype
        absent = None if padding_mask is None else ~padding_mask[..., None]
        x = x.to(torch.promote_types(x.dtype, torch.float32))  # in float16 eps is zero
        x = x if absent is None else x.masked_fill(absent, 0.0)
        centred = x - masked_mean(x, padding_mask).unsqueeze(1)
        variance = masked_mean(centred.square(), padding_mask).unsqueeze(1)
        normed = (centred * torch.rsqrt(variance + self.eps)).to(given) * self.weight + self.bias
        return normed if absent is None else normed.masked_fill(absent, 0.0)
