"""Rotatory attention over a target and its left and right contexts (Zheng & Xia 2018, arXiv 1802.00892).

It has nothing to do with rotary position embedding.

Shapes: B batch; left ``(B, n_l, d)``, target ``(B, n_t, d)``, right ``(B, n_r, d)``, each with its mask.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..._layers.inputs import check_positive
from ...functional import masked_mean
from ..alignments import Align
from ..scores import ActivatedGeneral
from .parts import ScoreFactory, build_attention, check_input, summarise


class RotatoryOutput(NamedTuple):
    """Output of rotatory attention.

    Attributes:
        output: ``[left; right; target by left; target by right]``, ``(B, 4 d)`` (survey eq. 20).
        left_weights: ``(B, n_l)``; right_weights: ``(B, n_r)``.
        target_left_weights, target_right_weights: ``(B, n_t)``. All of the last hop.
    """

    output: Tensor
    left_weights: Tensor
    right_weights: Tensor
    target_left_weights: Tensor
    target_right_weights: Tensor


class RotatoryAttention(nn.Module):
    """Attention from a target to its contexts, and from their summaries back to the target (survey eqs. 17 to 20).

    Math: r_t = mean(T);  r_l = attend(r_t, L),  r_r = attend(r_t, R);  r_lt = attend(r_l, T),  r_rt = attend(r_r, T)

    An empty context, as where the target begins a sentence, gives r_l = 0 and with the default score r_lt = mean(T).

    Args:
        d: the width of all three.
        score: makes scores from the widths of query and key; by default :class:`ActivatedGeneral`.
        align: by default :class:`Softmax`.
        hops: times both steps are taken, with the same parameters; r_lt and r_rt then replace r_t as queries
            (Wallaart & Frasincar 2019).
    """

    def __init__(
        self, d: int, *, score: ScoreFactory = ActivatedGeneral, align: Align | None = None, hops: int = 1
    ) -> None:
        super().__init__()
        check_positive(d=d, hops=hops)
        self.d = d
        self.hops = hops
        self.left, self.right, self.target_left, self.target_right = (
            build_attention(score(d, d), align) for _ in range(4)
        )

    def forward(
        self,
        left: Tensor,
        target: Tensor,
        right: Tensor,
        *,
        left_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        right_mask: Tensor | None = None,
    ) -> RotatoryOutput:
        """One vector for all three, and the weights."""
        check_input("left", left, self.d, left_mask, "left_mask")
        check_input("target", target, self.d, target_mask, "target_mask")
        check_input("right", right, self.d, right_mask, "right_mask")
        r_lt = r_rt = masked_mean(target, target_mask)
        w_l = w_r = w_lt = w_rt = r_l = r_r = r_lt
        for _ in range(self.hops):
            r_l, w_l = summarise(self.left, r_lt, left, left_mask)
            r_r, w_r = summarise(self.right, r_rt, right, right_mask)
            r_lt, w_lt = summarise(self.target_left, r_l, target, target_mask)
            r_rt, w_rt = summarise(self.target_right, r_r, target, target_mask)
        return RotatoryOutput(torch.cat([r_l, r_r, r_lt, r_rt], dim=-1), w_l, w_r, w_lt, w_rt)

    def extra_repr(self) -> str:
        return f"hops={self.hops}"
