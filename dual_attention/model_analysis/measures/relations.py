"""Measures of relations and of the messages that they make, as functions of tensors.

Shapes: B examples, H heads, N receivers, M senders, R relations, d_h width of a head, d width of the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._checks import check_floating_tensors, check_relations, pair_mask


def message_share(relational: Tensor, symbolic: Tensor) -> Tensor:
    """Share of the relations in what relational heads receive; the rest is the symbols'.

    Math: ‖Σ_j α_ij W_r r_ij‖ / (‖Σ_j α_ij W_r r_ij‖ + ‖Σ_j α_ij W_s s_j‖)

    Args:
        relational, symbolic: the two parts of each head's message, ``(..., d_h)``.

    Returns:
        ``(...)`` in [0, 1], float64; NaN where both parts are zero, so ``nanmean`` averages over objects.

    >>> message_share(torch.full((1, 1, 1, 2), 3.0), torch.full((1, 1, 1, 2), 1.0))
    tensor([[[0.7500]]], dtype=torch.float64)
    """
    check_floating_tensors(relational=relational, symbolic=symbolic)
    if symbolic.shape != relational.shape:
        raise ValueError(f"symbolic: expected shape {tuple(relational.shape)}, got {tuple(symbolic.shape)}")
    one, other = relational.double().norm(dim=-1), symbolic.double().norm(dim=-1)
    return one / (one + other)


def relation_rank(relations: Tensor, mask: Tensor | None = None) -> Tensor:
    """Number of directions in which relations vary, float64: the participation ratio of their covariance.

    Math: (tr C)² / tr(C²), with C the covariance of r_ij over pairs

    It is 1 if all relations are multiples of one, R if they are uncorrelated with equal variance, 0 if none varies.
    It depends on the scales of relations: divide them by their standard deviations first to ask about correlations.

    Args:
        relations: ``(B, N, M, R)``.
        mask: pairs that count, two or more, boolean, broadcastable to ``(B, N, M)``; by default all.

    >>> relation_rank(torch.randn(2, 9, 9, 1).repeat(1, 1, 1, 3))
    tensor(1.0000, dtype=torch.float64)
    """
    check_relations("relations", relations)
    chosen = relations[pair_mask(mask, relations)].double()
    if len(chosen) < 2:
        raise ValueError(f"mask: expected at least two pairs that count, got {len(chosen)}")
    centred = chosen - chosen.mean(0)
    covariance = centred.T @ centred / len(chosen)
    total, square = covariance.trace(), covariance.square().sum()
    return torch.where(square > 0, total.square() / square, 0.0)


def relation_asymmetry(relations: Tensor, mask: Tensor | None = None) -> Tensor:
    """Size of the antisymmetric part of each relation over that of its symmetric part.

    Math: ‖R - Rᵀ‖ / ‖R + Rᵀ‖, Frobenius norms over the pairs of all examples

    It is 0 for r(x, y) = r(y, x), about 1 if r(x, y) and r(y, x) are unrelated, infinite if one is minus the other.

    Args:
        relations: ``(B, N, N, R)``, of the same objects as receivers and senders, and without a causal mask.
        mask: pairs that count, boolean, broadcastable to ``(B, N, N)``; a pair counts if it does in both directions.

    Returns:
        ``(R,)``, float64; NaN for a relation that is zero throughout.

    >>> relation_asymmetry(torch.ones(1, 3, 3, 2))
    tensor([0., 0.], dtype=torch.float64)
    """
    check_relations("relations", relations, square=True)
    counts = pair_mask(mask, relations)
    counts = counts & counts.transpose(1, 2)
    if not counts.any():
        raise ValueError("mask: expected at least one pair that counts in both directions, got none")
    there, back = relations.double(), relations.double().transpose(1, 2)
    return (there - back)[counts].norm(dim=0) / (there + back)[counts].norm(dim=0)


def relation_contributions(relations: Tensor, attention: Tensor, written: Tensor) -> Tensor:
    """Norm of what one relation of one pair adds to the receiver's residual stream, over all heads.

    Math: ‖Σ_h α^h_ij r_ij,ℓ W_o^h W_r^h[:, ℓ]‖

    A relation that is large may be selected by no head, or be written nowhere; this is what arrives.

    Args:
        relations: ``(B, N, M, R)``.
        attention: weights of the relational heads, ``(B, H, N, M)``.
        written: W_o^h W_r^h[:, ℓ], ``(H, R, d)``, see :func:`.records.written_by`.

    Returns:
        ``(B, N, M, R)``, not negative, in float32 or better.

    >>> relation_contributions(torch.randn(2, 9, 9, 3), torch.rand(2, 4, 9, 9), torch.randn(4, 3, 32)).shape
    torch.Size([2, 9, 9, 3])
    """
    check_relations("relations", relations)
    check_floating_tensors(attention=attention)
    b, n, m, _ = relations.shape
    if attention.dim() != 4 or (attention.shape[0], *attention.shape[2:]) != (b, n, m):
        raise ValueError(f"attention: expected ({b}, heads, {n}, {m}), got {tuple(attention.shape)}")
    heads, count = attention.shape[1], relations.shape[3]
    if written.dim() != 3 or written.shape[:2] != (heads, count):
        raise ValueError(f"written: expected ({heads}, {count}, d), got {tuple(written.shape)}")
    # ‖Σ_h α_h v_h‖² = αᵀ G α with G the heads' inner products, so no vector of width d is built for a pair.
    wide = torch.promote_types(torch.promote_types(attention.dtype, written.dtype), torch.float32)
    attention, written = attention.to(wide), written.to(wide)
    gram = torch.einsum("hrd,grd->rhg", written, written)
    square = torch.einsum("bhij,rhg,bgij->bijr", attention, gram, attention)
    return relations.abs() * square.clamp_min(0).sqrt()
