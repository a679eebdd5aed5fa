"""Relations detached from the pair, relations beside the norms of both sides, and relations normalised over senders.

Shapes: B batch, N receivers, M senders, R relations, p width of one relation's query and key.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dual_attention.mechanisms import Dot, Relation

Relatum = Literal["pair", "receiver", "sender", "shuffled"]
SEED = 20_240_501
"""Of the order of senders in evaluation, where it is the same in every pass."""


class DetachedRelation(Relation):
    """Relations with the parameters of those of a pair, computed of something else.

    Math: r_ij := r_ii (receiver), r_jj (sender), or r_i,pi(j) with a random order pi for each image (shuffled)

    Args:
        of: which of them.
        others: as :class:`~dual_attention.mechanisms.Relation`, with the scaled dot product.
    """

    def __init__(self, d_model: int, n_relations: int, *, of: Relatum, **others: Any) -> None:
        super().__init__(d_model, n_relations, **others)
        self.of = of

    def project(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Relation queries and keys whose inner products are the relations, ``(B, N, R, p')`` and ``(B, M, R, p')``.

        Raises:
            ValueError: if there are not as many senders as receivers.
        """
        if x.shape[1] != y.shape[1]:
            raise ValueError(f"key: expected as many senders as receivers, {x.shape[1]}, got {y.shape[1]}")
        u, w = super().project(x, y)
        if self.of == "pair":
            return u, w
        if self.of == "shuffled":
            return u, w.gather(1, self._order(w)[..., None, None].expand_as(w))
        assert isinstance(self.score, Dot)  # which will scale products of width one
        own = (u * w).sum(-1, keepdim=True) * (self.score.scale_of(self.proj_dim) / self.score.scale_of(1))
        return (own, torch.ones_like(own)) if self.of == "receiver" else (torch.ones_like(own), own)

    def _order(self, w: Tensor) -> Tensor:
        """An order of the senders for each image, ``(B, M)``."""
        if self.training:
            return torch.rand(w.shape[:2], device=w.device).argsort(1)
        generator = torch.Generator().manual_seed(SEED)
        return torch.rand(w.shape[:2], generator=generator).argsort(1).to(w.device)


class RelationWithNorms(Relation):
    """Scaled inner products, and beside each the squared norms of its query and of its key: 3 R relations.

    Math: r_ij = (<u, w>_l, |u|²_l, |w|²_l)_l / sqrt(p),  u = W_q x_i,  w = W_k y_j

    A squared distance is a linear combination of the three.
    """

    def __init__(self, d_model: int, n_relations: int, **others: Any) -> None:
        super().__init__(d_model, n_relations, **others)
        self.n_relations = 3 * n_relations

    def project(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys whose inner products are the relations, ``(B, N, 3 R, p)`` and ``(B, M, 3 R, p)``."""
        u, w = (layer(z).unflatten(-1, (-1, self.proj_dim)) for layer, z in ((self.wq, x), (self.wk, y)))
        return torch.cat((u, _first(u.square()), _first(u, 1.0)), 2), torch.cat(
            (w, _first(w, 1.0), _first(w.square())), 2
        )


def _first(z: Tensor, value: float | None = None) -> Tensor:
    """Sums over the last axis, or a value, in its first entry, and zeros in the others."""
    first = z.sum(-1, keepdim=True) if value is None else torch.full_like(z[..., :1], value)
    return F.pad(first, (0, z.shape[-1] - 1))


class StandardisedRelation(Relation):
    """Relations of a receiver brought to mean 0 and variance 1 over its senders, each times a learned gain.

    Math: r_ij,l := g_l (r_ij,l - mean_j r_ij,l) / sqrt(var_j r_ij,l + eps)
    """

    def __init__(self, d_model: int, n_relations: int, *, eps: float = 1e-5, **others: Any) -> None:
        super().__init__(d_model, n_relations, **others)
        self.eps = eps
        self.gain = torch.nn.Parameter(torch.ones(n_relations))

    def factors(self, u: Tensor, w: Tensor) -> None:
        """None: normalised relations are no inner products."""
        return None

    def activate(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Relations ``(B, N, M, R)`` from scores ``(B, R, N, M)``; ``ValueError`` for a mask that hides any."""
        if mask is not None and not bool(mask.all()):
            raise ValueError("mask: standardised relations see all senders, got a mask")
        centred = scores - scores.mean(-1, keepdim=True)
        spread = torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)
        return (centred * spread).permute(0, 2, 3, 1) * self.gain
