"""Directional self-attention, in which no object sees itself (Shen et al. 2017, arXiv 1709.04696)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from .._heads import check_positive
from ..functional import directional_mask
from .general import GeneralAttention, GeneralAttentionOutput
from .scores import BoundedAdditive

__all__ = ["DirectionalSelfAttention", "FusionGate"]


class FusionGate(nn.Module):
    """A gate between what an object was and what it received.

    Math: g = sigmoid(W_1 c + W_2 h + b),  out = g * h + (1 - g) * c

    Args:
        d: width of both.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        check_positive(d=d)
        self.gate = nn.Linear(2 * d, d)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, context: Tensor, h: Tensor) -> Tensor:
        """``(..., d)`` of both: the mixture ``(..., d)``."""
        gate = torch.sigmoid(self.gate(torch.cat([context, h], dim=-1)))
        return gate * h + (1 - gate) * context


class DirectionalSelfAttention(nn.Module):
    """Token2token attention in one direction, and a fusion gate: DiSA.

    An object that sees nobody, such as the first of a forward sequence, has a context of zero.

    Args:
        d: width of the objects.
        direction: ``"forward"`` (j < i), ``"backward"`` (j > i) or ``"both"`` (j != i).
        attention: by default multi-dimensional attention by :class:`BoundedAdditive`.
    """

    def __init__(
        self,
        d: int,
        direction: Literal["forward", "backward", "both"] = "both",
        *,
        attention: GeneralAttention | None = None,
    ) -> None:
        super().__init__()
        directional_mask(0, direction)
        self.direction: Literal["forward", "backward", "both"] = direction
        self.attention = GeneralAttention(BoundedAdditive(d, d)) if attention is None else attention
        self.fusion = FusionGate(d)

    def forward(
        self, h: Tensor, *, padding_mask: Tensor | None = None, need_weights: bool = False
    ) -> GeneralAttentionOutput:
        """Objects ``h (B, N, d)`` and their mask ``(B, N)``; the context is the fused output ``(B, N, d)``."""
        mask = directional_mask(h.shape[-2], self.direction, device=h.device)
        output = self.attention(h, attn_mask=mask, padding_mask=padding_mask, need_weights=need_weights)
        return output._replace(context=self.fusion(output.context, h))

    def extra_repr(self) -> str:
        return f"direction={self.direction!r}"
