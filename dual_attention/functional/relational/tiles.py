"""Relations of a block of receivers under attention weights, forward and backward, in two ways.

:class:`RelationTiles` builds a tile of relations once for all heads, contracts it with their weights at once and
forgets it, so that it stays in the cache of the processor. That takes the fewest multiplications, R p + H R for each
pair, in thin products. :class:`RelationKeys` moves the sum over senders inside the inner product: H R p for each pair,
in large products.

                     senders of the block, J
                 +---------+---------+---------+
    receivers    |  c x j  |  c x j  |   ...   |     one tile: r (R, b * c, j) from u (R, b, c, p) and w (R, b, j, p),
    of the       +---------+---------+---------+     then (H, j) weights of each receiver times its (j, R) relations
    block, C     |  c x j  |   ...
                 +---------+

Math: r_ij,l = <u_i^l, w_j^l>,   a^h_i,l = sum_j alpha^h_ij r_ij,l = <u_i^l, sum_j alpha^h_ij w_j^l>

Shapes: as in :mod:`..reference`; in a block: C receivers, J senders; in a tile: b examples, c receivers, j senders.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from .head_products import add_head_products, multiply_heads
from .workspace import Workspace

TILE = 2**21
"""Relations in a tile, about: 8 MB of float32."""

TILE_ON_GPU = 2**26
"""The same on a GPU, where small operations wait for one another."""

TILES_SAVE = 3.5
"""Factor by which tiles must save multiplications to be preferred; below it, large products win."""

TILES_SAVE_IN_BFLOAT16 = 8.0
"""The same in bfloat16 on a CPU that multiplies it, where the C kernels are not taken: twice as fast in large
products, no faster in thin ones.

A step of two 343M layers, n = 1024, on an AMD EPYC: 0.76 s by tiles and 0.60 by keys with R = 64, where tiles save
multiplications 4.0 times; 0.60 and 0.61 with R = 8, where they save 7.1 times."""


def tile_size(on_cpu: bool) -> int:
    """Approximate number of relations in a tile."""
    return TILE if on_cpu else TILE_ON_GPU


def prefers_tiles(heads: int, p: int, *, in_bfloat16: bool = False) -> bool:
    """Whether tiles, R p + H R multiplications for each pair, are faster than products of keys, H R p."""
    return heads * p > (TILES_SAVE_IN_BFLOAT16 if in_bfloat16 else TILES_SAVE) * (heads + p)


def multiplies_bfloat16(x: Tensor) -> bool:
    """Whether ``x`` is bfloat16 on a CPU that has instructions for its products: AVX-512 with BF16, or AMX."""
    return x.dtype == torch.bfloat16 and x.is_cpu and _HAS_BFLOAT16


def multiplies_bfloat16_in_vectors(x: Tensor) -> bool:
    """Whether it has them in AVX-512 alone: PyTorch's fused attention is then hardly faster than in float32."""
    return multiplies_bfloat16(x) and not _HAS_TILES


def _has(name: str) -> bool:
    return getattr(torch.cpu, f"_is_{name}_supported", lambda: False)()


_HAS_TILES = _has("amx_tile")
_HAS_BFLOAT16 = _has("avx512_bf16") or _HAS_TILES


def relations_under_weights(heads: int, u: Tensor, w: Tensor, scale: float, workspace: Workspace) -> Relations:
    """Relations in the form that suits these sizes; in float16 none are built, for one may be infinite."""
    tiles = u.dtype != torch.float16 and prefers_tiles(heads, u.shape[3], in_bfloat16=multiplies_bfloat16(u))
    return (RelationTiles if tiles else RelationKeys)(u, w, scale, workspace)


class Relations(ABC):
    """Relations of relation queries ``u (B, N, R, p)`` and keys ``w (B, M, R, p)``, computed where they are needed."""

    def __init__(self, u: Tensor, w: Tensor, scale: float, workspace: Workspace) -> None:
        self.u, self.scale, self.workspace = u, scale, workspace

    @abstractmethod
    def attend(self, alpha: Tensor, rows: slice, columns: slice) -> Tensor:
        """Attended relations of a block with weights ``(H, B, C, J)``, contiguous: ``(B, C, H, R)``."""

    @abstractmethod
    def backward_(
        self, grad: Tensor, alpha: Tensor, rows: slice, columns: slice, dalpha: Tensor, du: Tensor, dw: Tensor
    ) -> None:
        """Gradients through a block's attended relations, from that of the result of :meth:`attend`.

        That of u, ``(B, C, R, p)``, is written; those of alpha and of the keys, :meth:`sum_of_keys`, are added to.
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
    """Relation keys under the weights, and inner products with the queries."""

    def __init__(self, u: Tensor, w: Tensor, scale: float, workspace: Workspace) -> None:
        # Elementwise operations are slow along a short last axis: the longer of relations and their width comes last.
        self.relations_last = u.shape[2] > u.shape[3]
        if self.relations_last:
            u, w = (x.transpose(2, 3).contiguous() for x in (u, w))
        super().__init__(u, w, scale, workspace)
        self.of_width = -2 if self.relations_last else -1  # axis of what is summed in an inner product
        self.w = w.flatten(2)[None]  # (1, B, M, R * p)

    def attend(self, alpha: Tensor, rows: slice, columns: slice) -> Tensor:
        keys = self.keys(alpha, columns)
        if keys.dtype == torch.float16:
            keys = keys.float()
        return keys.mul_(self.queries(rows)).sum(self.of_width).permute(1, 2, 0, 3)

    def backward_(
        self, grad: Tensor, alpha: Tensor, rows: slice, columns: slice, dalpha: Tensor, du: Tensor, dw: Tensor
    ) -> None:
        g = grad.permute(2, 0, 1, 3).unsqueeze(self.of_width)
        of_keys = self.workspace.tensor("gradients of keys", *alpha.shape[:3], *self.u.shape[2:])
        # Math: G_i^h = [g^h_i,l u_i^l]_l
        of_keys = torch.mul(g, self.queries(rows), out=of_keys).flatten(3)  # (H, B, C, R * p)
        multiply_heads(of_keys, self.w[:, :, columns].transpose(2, 3), dalpha, add=True)
        add_head_products(alpha, of_keys, dw[:, :, columns])
        # Math: du_i^l = sum_h g^h_i,l c^h_i,l
        torch.mul(self.keys(alpha, columns).mul_(g).sum(0), self.scale, out=self.swapped(du))

    def sum_of_keys(self) -> Tensor:
        return torch.zeros_like(self.w, dtype=self.wide, memory_format=torch.contiguous_format)

    def gradient_of_keys(self, dw: Tensor) -> Tensor:
        return self.swapped(dw[0].unflatten(2, self.u.shape[2:]))

    def queries(self, rows: slice) -> Tensor:
        """Scaled, ``(B, C, R, p)``, or ``(B, C, p, R)``."""
        return self.u[:, rows] * self.scale

    def keys(self, alpha: Tensor, columns: slice) -> Tensor:
        """c, relation keys under the weights, ``(H, B, C, R, p)``, or ``(H, B, C, p, R)``."""
        into = self.workspace.tensor("keys", *alpha.shape[:3], self.w.shape[-1])
        return multiply_heads(alpha, self.w[:, :, columns], into).unflatten(3, self.u.shape[2:])

    def swapped(self, x: Tensor) -> Tensor:
        """Relations and width in the other order, if relations come last."""
        return x.transpose(2, 3) if self.relations_last else x


class RelationTiles(Relations):
    """A tile of relations at a time."""

    def __init__(self, u: Tensor, w: Tensor, scale: float, workspace: Workspace) -> None:
        super().__init__(u, w, scale, workspace)
        self.one_example = u.shape[0] == 1
        self.w = w.permute(2, 0, 1, 3)  # (R, B, M, p)
        if self.one_example:  # products are faster where senders lie in a row
            self.w = self.w.transpose(2, 3).contiguous().transpose(2, 3)

    def attend(self, alpha: Tensor, rows: slice, columns: slice) -> Tensor:
        heads, batch, n, _ = alpha.shape
        attended = alpha.new_empty(batch, n, heads, self.w.shape[0])
        u, w = self.queries(rows), self.w[:, :, columns]
        for some, i, senders in self.tiles(alpha.shape):
            into = attended[some, i].zero_()
            for j in senders:
                r = self.relations(u[:, some, i], w[:, some, j])
                into += torch.bmm(by_receiver(alpha[:, some, i, j]), r.permute(1, 2, 0)).view(into.shape)
        return attended

    def backward_(
        self, grad: Tensor, alpha: Tensor, rows: slice, columns: slice, dalpha: Tensor, du: Tensor, dw: Tensor
    ) -> None:
        # Math: dalpha^h_ij += <g^h_i, r_ij>,  dr_ij = sum_h alpha^h_ij g^h_i,  du_i = sum_j dr_ij w_j,
        # dw_j += sum_i dr_ij u_i
        u, w, dw = self.queries(rows), self.w[:, :, columns], dw[:, :, columns]
        for some, i, senders in self.tiles(alpha.shape):
            g, u_i = grad[some, i].flatten(0, 1), u[:, some, i]
            du_i = self.sums(u_i.shape).zero_()
            for j in senders:
                w_j, into = w[:, some, j], dalpha[:, some, i, j]
                r = self.relations(u_i, w_j)
                part = self.workspace.product("part", g, r.transpose(0, 1))  # (b * c, H, j)
                into += part.unflatten(0, into.shape[1:3]).permute(2, 0, 1, 3)
                # The tile of relations has served, and its memory is still in the cache.
                dr = self.workspace.product("r", g.transpose(1, 2), by_receiver(alpha[:, some, i, j]))
                dr = dr.unflatten(0, into.shape[1:3]).permute(2, 0, 1, 3)  # (b * c, R, j) -> (R, b, c, j)
                self.add_product(du_i, dr, w_j)
                self.add_product(dw[:, some, j], dr.transpose(2, 3), u_i)
            du[some, i] = du_i.permute(1, 2, 0, 3)

    def sum_of_keys(self) -> Tensor:
        return self.sums(self.w.shape, fresh=True).zero_()

    def gradient_of_keys(self, dw: Tensor) -> Tensor:
        return dw.permute(1, 2, 0, 3)

    def queries(self, rows: slice) -> Tensor:
        """``(R, B, C, p)``."""
        u = self.u[:, rows].permute(2, 0, 1, 3)
        return u.contiguous() if self.one_example else u

    def tiles(self, shape: torch.Size) -> Iterator[tuple[slice, slice, list[slice]]]:
        """Examples and receivers of the tiles of a block with weights ``(H, B, C, J)``, with the senders of each."""
        _, batch, n, m = shape
        room = max(1, tile_size(self.u.is_cpu) // self.w.shape[0])
        c = min(n, max(8, room // 512))
        j = even_part(m, max(128, room // c))
        c = even_part(n, max(c, room // j))
        b = even_part(batch, max(1, room // (c * j))) if c == n else 1
        for some in slices(batch, b):
            for receivers in slices(n, c):
                yield some, receivers, slices(m, j)

    def relations(self, u: Tensor, w: Tensor) -> Tensor:
        """The relations of a tile, from ``(R, b, c, p)`` and ``(R, b, j, p)``: ``(R, b * c, j)``."""
        r = self.workspace.tensor("r", *u.shape[:3], w.shape[2])
        for into, u_s, w_s in zip(*map(self.stacks, (r, u, w)), strict=True):
            into.baddbmm_(u_s, w_s.transpose(1, 2), beta=0, alpha=self.scale)
        return r.flatten(1, 2)

    def add_product(self, total: Tensor, dr: Tensor, x: Tensor) -> None:
        """Add a tile's gradient of queries or keys, ``(R, b, n, m)`` times ``(R, b, m, p)``, to ``(R, b, n, p)``."""
        for into, a, b in zip(*map(self.stacks, (total, dr, x)), strict=True):
            if self.one_example:  # as sums() are laid out
                into, a, b = into.transpose(1, 2), b.transpose(1, 2), a.transpose(1, 2)
            if into.dtype == a.dtype and into.is_contiguous():
                into.baddbmm_(a, b, alpha=self.scale)
            else:
                into.add_(self.workspace.product("part", a, b, self.scale))

    def stacks(self, x: Tensor) -> tuple[Tensor, ...]:
        """``(R, b, ...)`` as stacks of matrices, each for one product: of all relations, or of a relation's examples.

        Both axes together would not be one in memory, and a product of them would copy its factors.
        """
        return (x[:, 0],) if self.one_example else x.unbind(0)

    def sums(self, shape: torch.Size, *, fresh: bool = False) -> Tensor:
        """Memory for sums ``(R, b, n, p)``, in the order that suits the products; fresh, or that of the last ones."""
        n_relations, batch, n, p = shape
        if self.one_example:
            n, p = p, n
        if fresh or self.wide != self.w.dtype:
            sums = self.w.new_empty(n_relations, batch, n, p, dtype=self.wide)
        else:
            sums = self.workspace.tensor("sums", n_relations, batch, n, p)
        return sums.transpose(2, 3) if self.one_example else sums


def by_receiver(alpha: Tensor) -> Tensor:
    """Weights of a tile ``(H, b, c, j)`` as a matrix for each receiver, ``(b * c, H, j)``."""
    return alpha.flatten(1, 2).transpose(0, 1)


def even_part(length: int, most: int) -> int:
    """Size of the parts when a length is cut into as few equal parts as ``most`` allows."""
    return math.ceil(length / math.ceil(length / most)) if length else 1


def slices(length: int, size: int) -> list[slice]:
    """Consecutive slices of that size over a length, the last perhaps smaller."""
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]
