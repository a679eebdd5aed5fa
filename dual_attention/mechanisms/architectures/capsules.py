"""Capsule-based attention: one learned query for each class (Wang et al., WWW 2018; survey eqs. 43 to 45).

Shapes: B batch, S keys, C classes, d_k and d_v widths of keys and values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..._layers.calls import TypedModule
from ..._layers.inputs import check_one_device, check_positive
from ...functional.checks import MaybeNone
from .._parameters import matrix, zeros
from ..alignments import Align
from ..general import GeneralAttention
from ..queries import LearnedQuery
from ..scores import Dot, Score


class CapsuleOutput(NamedTuple):
    """Output of capsules.

    Attributes:
        probabilities: of the classes, independent of each other, ``(..., C)``.
        reconstructions: ``(..., C, d_v)``.
        weights: ``(..., C, S)``, or None.

    >>> out = CapsuleAttention(n_classes=3, d_k=8)(torch.randn(2, 5, 8), need_weights=True)
    >>> out.probabilities.shape, out.reconstructions.shape, out.weights.shape
    (torch.Size([2, 3]), torch.Size([2, 3, 8]), torch.Size([2, 3, 5]))
    """

    probabilities: Tensor
    reconstructions: Tensor
    weights: Tensor | MaybeNone = None


class CapsuleAttention(TypedModule):
    """Capsules, one for each class, that attend, predict a probability and reconstruct their contexts.

    Math: c_c = attend(q_c, K, V),  p_c = sigmoid(<w_c, c_c> + b_c),  r_c = p_c c_c

    Capsules are independent. With nothing to attend, p_c = sigmoid(b_c) and r_c = 0.

    Args:
        n_classes: C.
        d_k: width of the keys.
        d_v: width of the values; by default ``d_k``.
        score: comparison of a capsule's query with keys; by default the dot product.
        align: by default :class:`Softmax`.

    >>> capsules = CapsuleAttention(n_classes=3, d_k=8)
    >>> capsules(torch.randn(2, 5, 8)).probabilities.shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        n_classes: int,
        d_k: int,
        d_v: int | None = None,
        *,
        score: Score | None = None,
        align: Align | None = None,
    ) -> None:
        super().__init__()
        d_v = d_k if d_v is None else d_v
        check_positive(n_classes=n_classes, d_k=d_k, d_v=d_v)
        score = Dot(scale=1.0) if score is None else score
        self.attention = GeneralAttention(score, align, query=LearnedQuery(n_classes, d_k))
        self.weight = matrix(None, n_classes, d_v)
        self.bias = zeros(None, n_classes)

    def forward(
        self,
        key: Tensor,
        value: Tensor | None = None,
        *,
        padding_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> CapsuleOutput:
        """Classify ``key (..., S, d_k)`` and ``value (..., S, d_v)``; arguments as :class:`GeneralAttention`."""
        check_one_device(self, key=key, value=value, padding_mask=padding_mask)
        output = self.attention(None, key, value, padding_mask=padding_mask, need_weights=need_weights)
        p = torch.sigmoid((output.context * self.weight).sum(-1) + self.bias)
        return CapsuleOutput(p, p[..., None] * output.context, output.weights)
