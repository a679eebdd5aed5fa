"""Relations of a block of receivers under attention weights, forward and backward, in two ways.

:class:`RelationTiles` builds a tile of relations once for all heads, contracts it with their weights at once and
forgets it, so that it stays in the cache of the processor. That takes the fewest multiplications, R p + H R for each
pair, in thin products. :class:`RelationKeys` moves the sum over senders inside the inner product: H R p for each pair,
in large products.

Math: r_ij,l = <u_i^l, w_j^l>,   a^h_i,l = sum_j alpha^h_ij r_ij,l = <u_i^l, sum_j alpha^h_ij w_j^l>

Shapes: B batch, H heads, N receivers, M senders, R relations, p width of one relation's query or key; in a block: C
receivers, J senders; in a tile: b examples, c receivers, j senders.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

TILE = 2**20
"""Relations in a tile, about: 4 MB of float32."""
TILE_ON_GPU = 2**26
"""The same on a GPU, where small operations wait for one another."""


TILES_SAVE = 3.5
"""How many times fewer multiplications tiles must take to be preferred; below, large products win."""


def prefers_tiles(heads: int, p: int) -> bool:
    """Whether tiles compute relations of that many heads and of that width faster than products of keys.

    Math: H R p multiplications for each pair, against R p + H R
    """
    return heads * p > TILES_SAVE * (heads + p)


class Workspace:
    """Memory that is taken once and used again: fresh memory costs the system more than the sums that fill it."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.taken: dict[str, Tensor] = {}

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A tensor of that shape with whatever was left in it; it takes the memory of the last one of that name."""
        size = math.prod(shape)
        if name not in self.taken or self.taken[name].numel() < size:
            self.taken[name] = self.like.new_empty(size)
        return self.taken[name][:size].view(shape)

    def product(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """The product of two stacks of matrices, ``torch.bmm(a, b)``."""
        return torch.bmm(a, b, out=self.tensor(name, a.shape[0], a.shape[1], b.shape[2]))


class Relations(ABC):
    """Relations between receivers and senders, computed where they are needed.

    Args:
        u: relation queries, ``(B, N, R, p)``.
        w: relation keys, ``(B, M, R, p)``.
        scale: of their inner products.
        workspace: for what is built on the way.
    """

    def __init__(self, u: Tensor, w: Tensor, scale: float, workspace: Workspace) -> None:
        self.u, self.scale, self.workspace = u, scale, workspace

    @abstractmethod
    def attend(self, alpha: Tensor, rows: slice, columns: slice) -> Tensor:
        """Attended relations of a block with weights ``(B, H, C, J)``: ``(B, C, H, R)``."""

    @abstractmethod
    def backward_(self, grad: Tensor, alpha: Tensor, rows: slice, columns: slice, dalpha: Tensor, dw: Tensor) -> Tensor:
        """Add to the gradients of the weights and of ``w`` through a block's attended relations.

        Args:
            grad: of the attended relations, ``(B, C, H, R)``.
            alpha: ``(B, H, C, J)``; dalpha: the same, contiguous.
            dw: sum over blocks, of :meth:`sum_of_keys`.

        Returns:
            The gradient of the block's ``u``, ``(B, C, R, p)``.
        """

    @abstractmethod
    def sum_of_keys(self) -> Tensor:
        """Zeros, for the gradient of ``w``, in a type wide enough for sums and with axes in the order it is built."""

    @abstractmethod
    def gradient_of_keys(self, dw: Tensor) -> Tensor:
        """The gradient of ``w`` in its shape."""

    @property
    def wide(self) -> torch.dtype:
        """Type of sums over blocks."""
        return torch.promote_types(self.u.dtype, torch.float32)


class RelationKeys(Relations):
    """Relation keys under the weights, one product for all heads, and inner products with the queries."""

    def __init__(self, u: Tensor, w: Tensor, scale: float, workspace: Workspace) -> None:
        super().__init__(u, w, scale, workspace)
        self.w = w.flatten(2)  # (B, M, R * p)

    def attend(self, alpha: Tensor, rows: slice, columns: slice) -> Tensor:
        keys = self.keys(alpha, columns)
        return keys.mul_(self.queries(rows)).sum(-1).transpose(1, 2)

    def backward_(self, grad: Tensor, alpha: Tensor, rows: slice, columns: slice, dalpha: Tensor, dw: Tensor) -> Tensor:
        g = grad.transpose(1, 2)[..., None]  # (B, H, C, R, 1)
        of_keys = self.workspace.tensor("gradients of keys", *alpha.shape[:3], *self.u.shape[2:])
        # Math: G_i^h = [g^h_i,l u_i^l]_l
        of_keys = torch.mul(g, self.queries(rows), out=of_keys).flatten(3).flatten(1, 2)  # (B, H * C, R * p)
        dalpha += self.workspace.product("part", of_keys, self.w[:, columns].transpose(1, 2)).view(dalpha.shape)
        dw[:, columns] += self.workspace.product("part", alpha.flatten(1, 2).transpose(1, 2), of_keys)
        # Math: du_i^l = sum_h g^h_i,l c^h_i,l
        return self.keys(alpha, columns).mul_(g).sum(1).mul_(self.scale)

    def sum_of_keys(self) -> Tensor:
        return self.w.new_zeros(self.w.shape, dtype=self.wide)

    def gradient_of_keys(self, dw: Tensor) -> Tensor:
        return dw.view(*dw.shape[:2], *self.u.shape[2:])

    def queries(self, rows: slice) -> Tensor:
        """Scaled, ``(B, 1, C, R, p)``."""
        return (self.u[:, rows] * self.scale)[:, None]

    def keys(self, alpha: Tensor, columns: slice) -> Tensor:
        """c, relation keys under the weights, ``(B, H, C, R, p)``."""
        keys = self.workspace.product("keys", alpha.flatten(1, 2), self.w[:, columns])
        return keys.view(*alpha.shape[:3], *self.u.shape[2:])


class RelationTiles(Relations):
    """A tile of relations at a time."""

    def __init__(self, u: Tensor, w: Tensor, scale: float, workspace: Workspace) -> None:
        super().__init__(u, w, scale, workspace)
        self.w = w.permute(2, 0, 3, 1).contiguous()  # (R, B, p, M)

    def attend(self, alpha: Tensor, rows: slice, columns: slice) -> Tensor:
        batch, heads, n, _ = alpha.shape
        attended = alpha.new_zeros(batch, n, heads, self.w.shape[0])
        u, w, alpha = self.queries(rows), self.w[..., columns], alpha.transpose(1, 2)
        b, c, j = self.sizes(alpha)
        for of_examples in zip(u.split(b, 1), w.split(b, 1), alpha.split(b), attended.split(b), strict=True):
            u_b, w_b, alpha_b, into_b = of_examples
            w_b = w_b.flatten(0, 1).split(j, -1)
            for u_i, alpha_i, into in zip(u_b.split(c, 2), alpha_b.split(c, 1), into_b.split(c, 1), strict=True):
                u_i = u_i.flatten(0, 1)
                for w_j, alpha_ij in zip(w_b, alpha_i.split(j, -1), strict=True):
                    r = self.relations(u_i, w_j, alpha_ij.shape)
                    into += torch.bmm(alpha_ij.flatten(0, 1), r.transpose(1, 2)).view(into.shape)
        return attended

    def backward_(self, grad: Tensor, alpha: Tensor, rows: slice, columns: slice, dalpha: Tensor, dw: Tensor) -> Tensor:
        # Math: dalpha^h_ij += <g^h_i, r_ij>,  dr_ij = sum_h alpha^h_ij g^h_i,  du_i = sum_j dr_ij w_j,
        # dw_j += sum_i dr_ij u_i
        alpha, dalpha = alpha.transpose(1, 2), dalpha.transpose(1, 2)
        u, w, dw = self.queries(rows), self.w[..., columns], dw[..., columns]
        du = torch.zeros_like(u.transpose(2, 3), dtype=self.wide, memory_format=torch.contiguous_format)
        b, c, j = self.sizes(alpha)
        examples = zip(
            *(x.split(b, 1) for x in (u, w, du, dw)), *(x.split(b) for x in (alpha, dalpha, grad)), strict=True
        )
        for u_b, w_b, du_b, dw_b, alpha_b, dalpha_b, g_b in examples:
            w_b, dw_b = w_b.flatten(0, 1).split(j, -1), dw_b.split(j, -1)
            receivers = zip(
                u_b.split(c, 2), du_b.split(c, -1), *(x.split(c, 1) for x in (alpha_b, dalpha_b, g_b)), strict=True
            )
            for u_i, du_i, alpha_i, dalpha_i, g in receivers:
                u_i, g = u_i.flatten(0, 1), g.flatten(0, 1)
                u_transposed, g_transposed = u_i.transpose(1, 2), g.transpose(1, 2)
                senders = zip(w_b, dw_b, alpha_i.split(j, -1), dalpha_i.split(j, -1), strict=True)
                for w_j, dw_j, alpha_ij, dalpha_ij in senders:
                    r = self.relations(u_i, w_j, alpha_ij.shape)
                    dalpha_ij += self.workspace.product("part", g, r).view(dalpha_ij.shape)
                    dr = self.workspace.product("dr", g_transposed, alpha_ij.flatten(0, 1))  # (b * c, R, j)
                    dr = dr.view(*alpha_ij.shape[:2], *dr.shape[1:]).permute(2, 0, 1, 3).flatten(0, 1)  # (R * b, c, j)
                    du_i += self.workspace.product("part", w_j, dr.transpose(1, 2)).view(du_i.shape)
                    dw_j += self.workspace.product("part", u_transposed, dr).view(dw_j.shape)
        return du.mul_(self.scale).permute(1, 3, 0, 2)

    def sum_of_keys(self) -> Tensor:
        return torch.zeros_like(self.w, dtype=self.wide)

    def gradient_of_keys(self, dw: Tensor) -> Tensor:
        return dw.permute(1, 3, 0, 2)

    def queries(self, rows: slice) -> Tensor:
        """Scaled, ``(R, B, C, p)``, contiguous."""
        u = self.u[:, rows].permute(2, 0, 1, 3)
        return torch.mul(u, self.scale, out=torch.empty(u.shape, dtype=u.dtype, device=u.device))

    def sizes(self, alpha: Tensor) -> tuple[int, int, int]:
        """How many examples, receivers and senders make a tile of a block with weights ``(B, C, H, J)``."""
        batch, n, _, m = alpha.shape
        n_relations = self.w.shape[0]
        room = max(1, (TILE if alpha.is_cpu else TILE_ON_GPU) // n_relations)
        c = min(n, max(8, room // 512))
        j = even_part(m, max(128, room // c))
        return max(1, min(batch, room // (c * j))), c, j

    def relations(self, u: Tensor, w: Tensor, shape: torch.Size) -> Tensor:
        """The relations of a tile with weights of that shape ``(b, c, H, j)``: ``(b * c, R, j)``."""
        r = self.workspace.product("r", u, w)  # (R * b, c, j)
        return r.view(-1, shape[0] * shape[1], shape[3]).transpose(0, 1)


def even_part(length: int, most: int) -> int:
    """The size of the parts when a length is cut in as few equal parts as ``most`` allows."""
    return math.ceil(length / math.ceil(length / most)) if length else 1
