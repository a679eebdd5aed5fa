"""Initial size of relations in messages: how much W_r r varies over the senders of a receiver.

Measured on random objects and random projections, so that it depends on no weights of a layer, nor on the order in
which they are drawn. Shapes: B sequences, M objects, R relations, p width of one relation's query and key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ..configs import RelationScore
from ..functional import reference, squared_distance_keys, squared_distance_queries
from ..functional.activations import Activation

OBJECTS = 10
"""M: independent objects of a sequence, each compared with all, itself included."""
SEQUENCES = 64


def relations_of_projections(
    u: Tensor, w: Tensor, activation: str | Activation = "identity", rel_score: RelationScore = "dot"
) -> Tensor:
    """Relations ``(B, N, M, R)`` of projections ``(B, N, R, p)`` and ``(B, M, R, p)``; strengths of distances are 1."""
    scale = 1 / math.sqrt(u.shape[-1])
    if rel_score == "squared_distance":
        u, w = squared_distance_queries(u), squared_distance_keys(w)
    return reference.relations(u, w, scale=scale, activation=activation)


def wr_bound(size: float, variation: float, n_relations: int) -> float:
    """Bound of a uniform W_r with which messages have a size: the root mean square of W_r r."""
    return size * math.sqrt(3 / (n_relations * variation))


@torch.no_grad()
def variation_of(relate: Callable[[Tensor], Tensor], width: int) -> float:
    """Mean over relations of the variance of a relation over a receiver's senders.

    Args:
        relate: relations ``(B, M, M, R)`` of objects ``(B, M, width)`` with entries from N(0, 1), in float32.

    Raises:
        ValueError: if relations do not vary, or are not finite.
    """
    with _disable_current_modes():  # in a model without values these have some
        generator = torch.Generator("cpu").manual_seed(0)
        objects = torch.randn(SEQUENCES, OBJECTS, width, generator=generator, device="cpu", dtype=torch.float32)
        found = relate(objects).double().var(dim=2, correction=0).mean().item()
    if not 0 < found < math.inf:
        raise ValueError(f"rel_init_size: expected relations that vary over senders, got a variance of {found}")
    return found


@lru_cache(maxsize=64)
def initial_variation(
    d_model: int, proj_dim: int, std: float, *, symmetric: bool, activation: str | Activation, rel_score: RelationScore
) -> float:
    """:func:`variation_of` relations whose projections have weights from N(0, std²), drawn from a fixed seed."""

    def relate(x: Tensor) -> Tensor:
        generator = torch.Generator("cpu").manual_seed(1)
        sizes = d_model, min(max(2048 // proj_dim, 1), 64), proj_dim
        u, w = (
            torch.einsum(
                "bmd,drp->bmrp", x, std * torch.randn(sizes, generator=generator, device="cpu", dtype=torch.float32)
            )
            for _ in range(2)
        )
        return relations_of_projections(u, u if symmetric else w, activation, rel_score)

    return variation_of(relate, d_model)
