"""Directional self-attention, in which no object sees itself (Shen et al. 2017, arXiv 1709.04696), and its reinforced
form among drawn objects (Shen et al. 2018, arXiv 1801.10296)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..._layers.calls import TypedModule
from ..._layers.inputs import check_members, check_one_device, check_positive
from ...functional import combine, directional_mask, uniform_alignment
from ...functional.checks import MaybeNone, check_rows
from ..general import GeneralAttention, GeneralAttentionOutput, with_context
from ..scores import BoundedAdditive
from ..selections import Selection, SubsetSampler

Direction = Literal["forward", "backward", "both"]


class FusionGate(TypedModule):
    """Gate between an object and its context.

    Math: g = sigmoid(W_1 c + W_2 h + b),  out = g * h + (1 - g) * c

    Args:
        d: width of objects and contexts.

    >>> FusionGate(8)(torch.randn(2, 5, 8), torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        check_positive(d=d)
        self.gate = nn.Linear(2 * d, d)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, context: Tensor, h: Tensor) -> Tensor:
        """Mixture ``(..., d)`` of contexts and objects of that shape."""
        check_one_device(self, context=context, h=h)
        gate = torch.sigmoid(self.gate(torch.cat([context, h], dim=-1)))
        return gate * h + (1 - gate) * context


class DirectionalSelfAttention(TypedModule):
    """Token2token attention in one direction with a fusion gate: DiSA.

    An object that sees no other, such as the first of a forward sequence, has a context of zero.

    Args:
        d: width of the objects.
        direction: ``"forward"`` (j < i), ``"backward"`` (j > i) or ``"both"`` (j != i).
        attention: by default multi-dimensional attention by :class:`BoundedAdditive`.

    >>> DirectionalSelfAttention(8, "forward")(torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, d: int, direction: Direction = "both", *, attention: GeneralAttention | None = None) -> None:
        super().__init__()
        directional_mask(0, direction)
        self.direction: Direction = direction
        self.attention = GeneralAttention(BoundedAdditive(d, d)) if attention is None else attention
        self.fusion = FusionGate(d)

    def forward(
        self, h: Tensor, *, padding_mask: Tensor | None = None, need_weights: bool = False
    ) -> GeneralAttentionOutput:
        """Attend among objects ``h (B, N, d)`` with mask ``(B, N)``; the context is the fused output ``(B, N, d)``."""
        check_one_device(self, h=h, padding_mask=padding_mask)
        check_rows("h", h)
        mask = directional_mask(h.shape[-2], self.direction, device=h.device)
        output = self.attention(h, attn_mask=mask, padding_mask=padding_mask, need_weights=need_weights)
        return with_context(output, self.fusion(output.context, h))

    def extra_repr(self) -> str:
        return f"direction={self.direction!r}"


class ReinforcedSelfAttentionOutput(NamedTuple):
    """Output of reinforced self-attention.

    Attributes:
        output: ``(B, N, directions * d)``.
        selection: the draw: mask of pairs ``(B, N, N)`` regardless of direction, log-probability ``(B,)`` and selected
            fraction ``(B,)``.
        weights: of each direction, ``(B, N, N, d)``, or None.

    >>> out = ReinforcedSelfAttention(8)(torch.randn(2, 5, 8), need_weights=True)
    >>> out.selection.log_prob.shape, [weights.shape for weights in out.weights]
    (torch.Size([2]), [torch.Size([2, 5, 5, 8]), torch.Size([2, 5, 5, 8])])
    """

    output: Tensor
    selection: Selection
    weights: tuple[Tensor, ...] | MaybeNone = None


class ReinforcedSelfAttention(TypedModule):
    """Directional self-attention among drawn objects: ReSA (Shen et al. 2018, arXiv 1801.10296).

    Math: z^q, z^k ~ Bernoulli(sampler(h));  i attends to j if z^q_i, z^k_j and the direction allows it.
        c_i = attend(h_i, {h_j}) if z^q_i, otherwise the mean of all h_j that the direction allows;
        out = [fusion(c, h) for each direction]

    The context of queries that were not drawn follows the authors' code. Train the samplers with
    :func:`.reinforce_loss` of ``selection.log_prob``; the paper adds a multiple of ``selection.fraction`` to the loss
    passed to it, and begins with all objects selected (``select_all=True``).

    Args:
        d: width of the objects.
        directions: one :class:`DirectionalSelfAttention` for each, side by side, over one draw.
        keys, queries: samplers; by default :class:`SubsetSampler`.

    >>> ReinforcedSelfAttention(8)(torch.randn(2, 5, 8)).output.shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        d: int,
        directions: Sequence[Direction] = ("forward", "backward"),
        *,
        keys: SubsetSampler | None = None,
        queries: SubsetSampler | None = None,
    ) -> None:
        super().__init__()
        check_members("directions", directions)
        check_positive(directions=len(directions))
        self.keys = SubsetSampler(d) if keys is None else keys
        self.queries = SubsetSampler(d) if queries is None else queries
        self.directed = nn.ModuleList(DirectionalSelfAttention(d, direction) for direction in directions)

    def forward(
        self, h: Tensor, *, padding_mask: Tensor | None = None, select_all: bool = False, need_weights: bool = False
    ) -> ReinforcedSelfAttentionOutput:
        """Attend among objects ``h (B, N, d)`` with mask ``(B, N)``, True = real.

        Args:
            select_all: take all real objects instead of drawing, with a log-probability of zero.
            need_weights: also return the weights.
        """
        check_one_device(self, h=h, padding_mask=padding_mask)
        check_rows("h", h)
        real = torch.ones(h.shape[:-1], dtype=torch.bool, device=h.device) if padding_mask is None else padding_mask
        if select_all:
            z_k = z_q = real
            log_prob = h.new_zeros(h.shape[:-2])
        else:
            (z_k, of_keys), (z_q, of_queries) = self.keys(h, padding_mask), self.queries(h, padding_mask)
            log_prob = of_keys + of_queries
        count = real.sum(-1).clamp_min(1)
        fraction = (z_k.sum(-1) / count) * (z_q.sum(-1) / count)
        selection = Selection(z_q[..., :, None] & z_k[..., None, :], log_prob=log_prob, fraction=fraction)
        outputs, weights = [], []
        for part in self.directed:
            assert isinstance(part, DirectionalSelfAttention)  # as they were built
            allowed = directional_mask(h.shape[-2], part.direction, device=h.device) & real[..., None, :]
            attended = part.attention(h, attn_mask=selection.mask & allowed, need_weights=need_weights)
            mean = combine(uniform_alignment(h.new_zeros(allowed.shape), allowed), h)
            outputs.append(part.fusion(torch.where(z_q[..., None], attended.context, mean), h))
            weights.append(attended.weights)
        return ReinforcedSelfAttentionOutput(
            torch.cat(outputs, dim=-1), selection, tuple(weights) if need_weights else None
        )
