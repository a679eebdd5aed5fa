"""Checks that measures share, of tensors over pairs of objects."""

from __future__ import annotations

import torch
from torch import Tensor

from ...functional.checks import check_floating_tensors
from ...functional.masks import check_mask, require_boolean


def check_relations(name: str, relations: Tensor, *, square: bool = False) -> None:
    """Refuse what is not ``(B, N, M, R)``, or with ``square`` not ``(B, N, N, R)``."""
    check_floating_tensors(**{name: relations})
    wanted = "(B, N, N, R)" if square else "(B, N, M, R)"
    if relations.dim() != 4 or (square and relations.shape[1] != relations.shape[2]):
        raise ValueError(f"{name}: expected shape {wanted}, got {tuple(relations.shape)}")


def check_labels(labels: Tensor, pairs: tuple[int, ...]) -> Tensor:
    """Labels in the shape ``pairs``; refused unless they are boolean and broadcastable to it."""
    require_boolean("labels", labels)
    return _expanded("labels", labels, pairs)


def check_strata(strata: Tensor | None, pairs: tuple[int, ...], device: torch.device) -> Tensor:
    """Strata in the shape ``pairs``, a single one by default; refused unless they are integers."""
    if strata is None:
        return torch.zeros((), dtype=torch.long, device=device).expand(pairs)
    if strata.dtype.is_floating_point or strata.dtype.is_complex:
        raise TypeError(f"strata: expected integers, got dtype {strata.dtype}")
    return _expanded("strata", strata.long(), pairs)


def _expanded(name: str, x: Tensor, pairs: tuple[int, ...]) -> Tensor:
    try:
        return x.expand(pairs)
    except RuntimeError:
        raise ValueError(f"{name}: expected a shape broadcastable to {pairs}, got {tuple(x.shape)}") from None


def pair_mask(mask: Tensor | None, relations: Tensor) -> Tensor:
    """The pairs that count, ``(B, N, M)``; all of them by default."""
    pairs = relations[..., 0]
    if mask is None:
        return torch.ones_like(pairs, dtype=torch.bool)
    check_mask("mask", mask, pairs)
    return mask.expand(pairs.shape)
