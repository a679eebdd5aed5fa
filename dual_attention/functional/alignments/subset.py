"""Drawing a subset of positions, in which reinforced alignment then attends (Shen et al. 2018, arXiv 1801.10296)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import check_broadcast
from ..masks import require_boolean


def bernoulli_subset(
    logits: Tensor,
    mask: Tensor | None = None,
    *,
    sample: bool = True,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Independent draws of positions.

    Math: z_i ~ Bernoulli(sigmoid(logit_i)),  log p(z) = sum_i log Bernoulli(z_i), over real positions

    Args:
        logits: ``(..., S)``.
        mask: boolean, broadcastable to the logits; positions that are False are never in the subset.
        sample: False takes the positions whose probability is at least one half instead of drawing.

    Returns:
        z, boolean ``(..., S)``, and its log-probability ``(...)``, which has the gradient.
    """
    if sample:
        uniform = torch.empty_like(logits, requires_grad=False).uniform_(generator=generator)
        z = uniform < torch.sigmoid(logits.detach())
    else:
        z = logits.detach() >= 0
    log_p = -F.binary_cross_entropy_with_logits(logits, z.to(logits.dtype), reduction="none")
    if mask is not None:
        require_boolean("mask", mask)
        check_broadcast("mask", mask, logits)
        z, log_p = z & mask, log_p.masked_fill(~mask, 0.0)
    return z, log_p.sum(-1)
