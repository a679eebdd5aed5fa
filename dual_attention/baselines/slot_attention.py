"""Slot Attention (Locatello et al. 2020, arXiv 2006.15055).

Shapes: B batch, N positions, K slots, d_x and d widths of positions and slots.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from .._layers.calls import TypedBlock
from .._layers.inputs import check_choice, check_positive, check_sequence
from ..functional import masked_softmax
from ..functional.alignments.common import require_rate
from ..functional.reference import scores_for_softmax
from ..mechanisms import GRUUpdate
from ..mechanisms._parameters import matrix
from ..transformer_blocks import FeedForwardBlock
from ._objects import check_objects

SlotInit = Literal["random", "learned"]
"""Start of the slots, see :class:`SlotAttention`."""


class SlotAttentionOutput(NamedTuple):
    """Output of :meth:`SlotAttention.forward` with ``need_weights``.

    Attributes:
        slots: ``(B, K, d)``.
        weights: of the last iteration, ``(B, K, N)``; a slot's sum to one over the positions.
        shares: the same before slots are normalised; a position's sum to one over the slots. They say which positions
            a slot has, as a mask of its object.
    """

    slots: Tensor
    weights: Tensor
    shares: Tensor


class SlotAttention(TypedBlock):
    """Slots that compete for the positions of an input, each to become one object.

    Math (Algorithm 1), for each of T iterations, where x is normalised once and GRU has the slots as its state:
        A_kn = softmax_k(<W_q LN(s_k), W_k x_n> / sqrt(d)),  w_kn = (A_kn + eps) / sum_m (A_km + eps)
        s_k <- GRU(s_k, sum_n w_kn W_v x_n);  s_k <- s_k + MLP(LN(s_k))

    The softmax is over the slots, so that they divide the positions among them. Gradients pass through all iterations.

    Args:
        d_model: d.
        n_slots: K.
        d_input: d_x; by default d.
        n_iterations: T; 3 in the paper.
        dff: hidden width of the MLP; by default 2 d, as in the paper.
        init: ``"random"``: s_k ~ N(mu, diag(sigma^2)), mu and sigma learned and the same for all slots, as in the
            paper. Evaluation takes one draw, made with the module and kept in its state dict, for all examples, so that
            the same input always has the same slots. ``"learned"``: a vector for each slot.
        eps: added to the shares.

    >>> SlotAttention(d_model=32, n_slots=4)(torch.randn(2, 9, 32)).shape
    torch.Size([2, 4, 32])
    """

    noise: Tensor

    def __init__(
        self,
        d_model: int,
        n_slots: int,
        d_input: int | None = None,
        *,
        n_iterations: int = 3,
        dff: int | None = None,
        init: SlotInit = "random",
        eps: float = 1e-8,
    ) -> None:
        super().__init__()
        d_input = d_model if d_input is None else d_input
        check_positive(d_model=d_model, n_slots=n_slots, d_input=d_input, n_iterations=n_iterations)
        check_choice("init", init, SlotInit)
        require_rate("eps", eps)
        self.d_model, self.n_slots, self.d_input, self.n_iterations = d_model, n_slots, d_input, n_iterations
        self.eps = eps
        self.mean = matrix(None, n_slots if init == "learned" else 1, d_model)
        self.log_scale = None
        if init == "random":
            self.log_scale = matrix(None, 1, d_model)
            self.register_buffer("noise", torch.randn(n_slots, d_model))
        self.wq = nn.Linear(d_model, d_model, bias=False)
        self.wk = nn.Linear(d_input, d_model, bias=False)
        self.wv = nn.Linear(d_input, d_model, bias=False)
        self.norm_input, self.norm_slots, self.norm_ff = (nn.LayerNorm(n) for n in (d_input, d_model, d_model))
        self.update = GRUUpdate(d_model, d_model)
        self.ff_block = FeedForwardBlock(d_model, 2 * d_model if dff is None else dff, "relu", use_bias=True)

    def initial_slots(self, batch: int) -> Tensor:
        """Slots before the first iteration, ``(B, K, d)``."""
        if self.log_scale is None:
            return self.mean.expand(batch, -1, -1)
        shape = (batch, self.n_slots, self.d_model)
        drawn = torch.randn(shape, dtype=self.mean.dtype, device=self.mean.device) if self.training else self.noise
        return (self.mean + self.log_scale.exp() * drawn).expand(shape)

    def forward(
        self, x: Tensor, slots: Tensor | None = None, *, padding_mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | SlotAttentionOutput:
        """``(B, N, d_x) -> (B, K, d)``.

        Args:
            x: features of the positions, which must encode where each position is.
            slots: initial slots in place of :meth:`initial_slots`, ``(B, K, d)`` with any K, for example those of the
                previous frame.
            padding_mask: boolean, ``(B, N)``; True = a real position. Others are not seen.
            need_weights: return a :class:`SlotAttentionOutput`.
        """
        check_objects(x, padding_mask, self.d_input, layer=self.wk)
        slots = self.initial_slots(len(x)) if slots is None else slots
        check_sequence("slots", slots, self.d_model, batch=(len(x),), layer=self.wq)
        x = self.norm_input(x if padding_mask is None else x.masked_fill(~padding_mask[..., None], 0.0))
        keys, values = self.wk(x), self.wv(x)
        seen = None if padding_mask is None else padding_mask[:, None]
        weights = shares = slots.new_zeros(*slots.shape[:2], x.shape[1])
        for _ in range(self.n_iterations):
            scores = scores_for_softmax(self.wq(self.norm_slots(slots)), keys, 1 / math.sqrt(self.d_model))
            shares = masked_softmax(scores, seen, dim=-2)
            weights = shares + self.eps if seen is None else (shares + self.eps).masked_fill(~seen, 0.0)
            weights = (weights / weights.sum(-1, keepdim=True).clamp_min(self.eps)).to(values.dtype)
            slots = self.update(slots, weights @ values)
            slots = slots + self.ff_block(self.norm_ff(slots))
        return SlotAttentionOutput(slots, weights, shares) if need_weights else slots
