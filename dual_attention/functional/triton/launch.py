"""One call of the fused operation: the arguments and the results of its kernels.

Shapes: as in :mod:`..reference`, with H = G * rep, and K = 2 P + 1 rows of a library of symbols of clipped offsets.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from .backward import k_kernel, q_kernel, table_kernel, u_kernel, w_kernel
from .forward import combine_kernel, forward_kernel
from .operands import Form, Operands, Strided
from .segments import batch_stride, segment_reach
from .support import ceil_div, narrowest_for, next_power_of_2, shared_memory
from .tuning import Tile, Tuning, tuning

INTERPRETED = not isinstance(forward_kernel, triton.JITFunction)
MOST_PARTS = 64
"""Most parts into which senders are split: one program adds their results."""


class KernelArguments(NamedTuple):
    """Arguments of the registered operation, as :class:`..relational.blocks.LinearArguments`.

    Attributes:
        max_offset, symbol_offset: of :class:`.OffsetSymbols`, P and the place of the first receiver; None and 0 with
            shared symbols.
        sizes: :meth:`.Tuning.numbers`; by default those for the device.
        keep: whether the relation keys under the weights are a result, for the backward pass.
    """

    q: Tensor
    k: Tensor
    u: Tensor
    w: Tensor
    table: Tensor
    padding: Tensor | None
    receiver_segments: Tensor | None
    sender_segments: Tensor | None
    max_offset: int | None
    symbol_offset: int
    causal: bool
    window: int | None
    offset: int
    scale: float
    rel_scale: float
    sizes: list[int] | None
    keep: bool


class Call:
    """One call's tensors, and what its kernels take by name: each kernel takes what it lists."""

    def __init__(self, x: KernelArguments) -> None:
        self.batch, self.heads, self.n, _ = x.q.shape
        self.groups, self.m = x.k.shape[1:3]
        self.n_relations, self.p = x.u.shape[2:]
        self.relative = x.max_offset is not None
        self.head_width = x.table.shape[-1]
        self.table, self.keep = x.table, x.keep
        self.like = x.q
        self.narrowest = narrowest_for(self.like)
        self.sizes = self.default_sizes() if x.sizes is None else Tuning.from_numbers(x.sizes)
        self.segments = None
        if x.receiver_segments is not None and x.sender_segments is not None:
            self.segments = x.receiver_segments.contiguous(), x.sender_segments.contiguous()
        self.reaches: dict[tuple[bool, int], Tensor] = {}
        self.places = {"offset": x.offset, "symbol_offset": x.symbol_offset}
        self.operands, self.form = self.operands_of(x), self.form_of(x)

    def operands_of(self, x: KernelArguments) -> Operands:
        q, k, table = (t if t.stride(-1) == 1 else t.contiguous() for t in (x.q, x.k, x.table))
        u, w = (t if t.stride()[2:] == (self.p, 1) else t.contiguous() for t in (x.u, x.w))
        first, second, third = table.stride()[:3]
        of_one = (0, first, second) if self.relative else (first * (len(table) > 1), third, second)
        receivers, senders = self.segments or (None, None)
        return Operands(
            q=Strided(q, q.stride(0), q.stride(2), q.stride(1)),
            k=Strided(k, k.stride(0), k.stride(2), k.stride(1)),
            u=Strided(u, *u.stride()[:2]),
            w=Strided(w, *w.stride()[:2]),
            s=Strided(table, *of_one),
            padding=None if x.padding is None else x.padding.contiguous().view(torch.uint8),
            receivers=receivers,
            senders=senders,
            receivers_batch=batch_stride(receivers),
            senders_batch=batch_stride(senders),
            n=self.n,
            m=self.m,
            heads=self.heads,
            window=min(x.window or 0, self.n + self.m + abs(x.offset)),  # far enough, and sums of it stay small
            max_offset=x.max_offset or 0,
            log2_scale=x.scale * math.log2(math.e),
            scale=x.scale,
            rel_scale=x.rel_scale,
        )

    def form_of(self, x: KernelArguments) -> Form:
        # Products of float32 may not be rounded to fewer bits, unless PyTorch has been told that they may.
        exact = x.q.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
        width = x.q.shape[-1]
        return Form(
            REP=self.heads // self.groups,
            D=width,
            DH=self.head_width,
            R=self.n_relations,
            P=self.p,
            D_PAD=self.padded(width),
            DH_PAD=self.padded(self.head_width),
            P_PAD=next_power_of_2(self.p),
            CAUSAL=x.causal,
            WINDOW=x.window is not None,
            HOLES=x.window is not None or x.padding is not None or self.segments is not None,
            RELATIVE=self.relative,
            PRECISION="ieee" if exact else "tf32",
            WIDEN=INTERPRETED and x.q.dtype == torch.bfloat16,
        )

    def shared_memory(self) -> int | None:
        """Bytes that a program may have; None off the GPU."""
        return shared_memory(self.like) if self.like.is_cuda else None

    def default_sizes(self) -> Tuning:
        columns = self.n_relations * next_power_of_2(self.p)
        width = max(self.like.shape[-1], self.head_width)
        return tuning(width, columns, self.relative, self.like.dtype, self.shared_memory()).for_receivers(self.n)

    def launch(
        self, kernel: Any, grid: tuple[int, int, int], tile: Tile, *, owns_senders: bool = False, **own: Any
    ) -> None:
        """Run a kernel whose programs own blocks of receivers, or of senders; ``own``: arguments of this launch."""
        if 0 in grid:
            return
        size, groups = self.relation_groups(tile)
        form = self.form._replace(
            I=tile.receivers,
            J=tile.senders,
            T=next_power_of_2(tile.receivers + tile.senders - 1),
            GROUP=size,
            GROUPS=groups,
        )
        on_device = torch.cuda.device(self.like.device) if self.like.is_cuda else contextlib.nullcontext()
        with on_device:
            reach = self.reach(owns_senders, tile.senders if owns_senders else tile.receivers)
            # One by one: before Triton 3.8 the fields of a tuple that is one constant cannot be shapes.
            constants = Form._make(map(triton.language.constexpr, form))
            known = {"x": self.operands, **self.places, "reach": reach, "form": constants, **own}
            arguments = {name: known[name] for name in kernel.arg_names}
            kernel[grid](**arguments, num_warps=tile.warps, num_stages=tile.stages)

    def reach(self, of_senders: bool, block: int) -> Strided:
        """Range of each block's segments on the other side."""
        if self.segments is None:
            return Strided(None, 0, 0)
        if (of_senders, block) not in self.reaches:
            own, other = reversed(self.segments) if of_senders else self.segments
            self.reaches[of_senders, block] = segment_reach(own, other, block)
        reach = self.reaches[of_senders, block]
        return Strided(reach, batch_stride(reach), 2)

    def padded(self, width: int) -> int:
        """Power of two that a matmul can take."""
        return max(next_power_of_2(width), self.narrowest)

    def relation_groups(self, tile: Tile) -> tuple[int, int]:
        """Relations in a tile, and how many groups of them there are."""
        padded = next_power_of_2(self.p)
        least = max(1, self.narrowest // padded)
        size = min(max(tile.columns // padded, least), max(next_power_of_2(self.n_relations), least))
        return size, ceil_div(self.n_relations, size)

    def forward(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Attended symbols and relations, the row log-sum-exp, and relation keys under the weights or nothing."""
        tile = self.sizes.forward
        groups = self.relation_groups(tile)[1]
        blocks = ceil_div(self.n, tile.receivers)
        of_part = self.senders_of_part(blocks * groups)
        parts = 1 if of_part is None else ceil_div(self.m, of_part)
        shape = (self.batch, self.heads, self.n)
        attended = self.like.new_empty((*shape, self.n_relations, self.p) if self.keep else (0,))
        results = self.results(shape, self.like.dtype)
        of_parts = results if of_part is None else self.results((parts, *shape), torch.float32)
        names = ("out_symbols", "out_relations", "log_sum")
        named = dict(zip(names, of_parts, strict=True))
        self.operands = self.operands._replace(**named, attended=attended if self.keep else None)
        for first, count in ((0, 1), (1, groups - 1)):
            grid = (self.heads, blocks * parts, self.batch * count)
            own = {"groups": count, "first_group": first, "of_part": of_part}
            self.launch(forward_kernel, grid, tile, **own, SYMBOLS=first == 0)
        if of_part is not None:
            self.operands = self.operands._replace(**dict(zip(names, results, strict=True)))
            given: dict[str, Any] = dict(zip(("symbols", "relations", "log_sums"), of_parts, strict=True))
            given |= {"rows": math.prod(shape), "parts": parts}
            given |= {"PARTS": next_power_of_2(parts), "R_PAD": next_power_of_2(self.n_relations)}
            self.launch(combine_kernel, (given["rows"], 1, 1), tile, **given)
        return *results, attended

    def results(self, shape: Sequence[int], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Memory for attended symbols and relations, and the row log-sum-exp."""
        new = partial(self.like.new_empty, dtype=dtype)
        return new((*shape, self.head_width)), new((*shape, self.n_relations)), new(shape, dtype=torch.float32)

    def senders_of_part(self, blocks: int) -> int | None:
        """Senders of a program of the forward pass if several share a block of receivers; else None.

        They do where all receivers are one block, as in a step of decoding, and there are too few programs.
        """
        tile = self.sizes.forward
        wanted = self.sizes.programs // max(self.heads * self.batch * blocks, 1)
        parts = min(wanted, ceil_div(self.m, tile.senders), MOST_PARTS)
        if self.keep or self.n > tile.receivers or parts < 2:
            return None
        return ceil_div(ceil_div(self.m, parts), tile.senders) * tile.senders

    def backward(
        self,
        grad_symbols: Tensor,
        grad_relations: Tensor,
        out_symbols: Tensor,
        log_sum: Tensor,
        attended: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Gradients of q, k, u, w and the symbols, from those of the results."""
        self.operands = self.operands._replace(
            grad_symbols=grad_symbols.contiguous(),
            grad_relations=grad_relations.contiguous(),
            out_symbols=out_symbols,
            log_sum=log_sum,
            attended=attended,
            delta=log_sum.new_empty(1 + self.relation_groups(self.sizes.relation_queries)[1], *log_sum.shape),
            grad_keys=self.like.new_empty(self.batch, self.heads, self.n, self.n_relations, self.p),
        )
        du = self.backward_u()
        dq, tails = self.backward_q()
        dk, dsymbols = self.backward_k()
        dw = self.backward_w()
        if self.relative:
            dsymbols = self.backward_table(tails)
        elif len(self.table) != self.batch:
            dsymbols = dsymbols.transpose(1, 2).sum(0, keepdim=True).transpose(1, 2)  # with heads still side by side
        return dq, dk, du, dw, dsymbols.to(self.like.dtype)

    def backward_q(self) -> tuple[Tensor, Tensor]:
        new = self.like.new_empty
        dq = new(self.like.shape)
        tails = new((2, *dq.shape[:3]) if self.relative else (0,), dtype=torch.float32)
        tile = self.sizes.queries
        grid = (self.heads, ceil_div(self.n, tile.receivers), self.batch)
        parts = self.relation_groups(self.sizes.relation_queries)[1]
        self.launch(q_kernel, grid, tile, tails=tails, parts=parts, dq=dq)
        return dq, tails

    def backward_u(self) -> Tensor:
        du = self.like.new_empty(self.batch, self.n, self.n_relations, self.p)
        tile = self.sizes.relation_queries
        grid = (self.relation_groups(tile)[1], ceil_div(self.n, tile.receivers), self.batch)
        self.launch(u_kernel, grid, tile, du=du)
        return du

    def backward_k(self) -> tuple[Tensor, Tensor]:
        new = self.like.new_empty
        dk = new(self.batch, self.groups, self.m, self.like.shape[-1])
        shared = not self.relative and len(self.table) != self.batch  # then summed over the batch, in float32
        shape = (0, 0, 0) if self.relative else (self.batch, self.m, self.groups, self.head_width)
        dsymbols = new(shape, dtype=torch.float32 if shared else self.like.dtype)
        tile = self.sizes.keys
        grid = (self.groups, ceil_div(self.m, tile.senders), self.batch)
        self.launch(k_kernel, grid, tile, owns_senders=True, dk=dk, ds=dsymbols)
        return dk, dsymbols.transpose(1, 2)

    def backward_w(self) -> Tensor:
        tile = self.sizes.relation_keys
        groups = self.relation_groups(tile)[1]
        blocks = ceil_div(self.m, tile.senders)
        # One program sums over all heads, unless that leaves too few programs: then partial sums are added up here.
        wanted = ceil_div(self.sizes.programs, max(groups * blocks * self.batch, 1))
        of_split = ceil_div(self.heads, min(wanted, self.heads))
        splits = ceil_div(self.heads, of_split)
        shape = (splits, self.batch, self.m, self.n_relations, self.p)
        dw = self.like.new_empty(shape, dtype=self.like.dtype if splits == 1 else torch.float32)
        grid = (groups * splits, blocks, self.batch)
        self.launch(w_kernel, grid, tile, owns_senders=True, dw=dw, groups=groups, heads_of_split=of_split)
        return dw[0] if splits == 1 else dw.sum(0).to(self.like.dtype)

    def backward_table(self, tails: Tensor) -> Tensor:
        rep, rows = self.heads // self.groups, len(self.table)
        shape = (self.batch * rep, self.groups, rows, self.head_width)
        dtable = self.like.new_empty(shape, dtype=torch.float32)
        tile = self.sizes.table
        grid = (ceil_div(rows, tile.senders), self.groups, self.batch * rep)
        self.launch(table_kernel, grid, tile, dtable=dtable)
        dtable = dtable.sum(0).transpose(0, 1).contiguous()  # (K, G, d_h)
        grads = self.operands.grad_symbols.float().unflatten(1, (self.groups, rep))
        ends = torch.einsum("tbgrn,bgrnd->tgd", tails.unflatten(2, (self.groups, rep)), grads)
        dtable[0] += ends[0]
        dtable[-1] += ends[1]
        return dtable
