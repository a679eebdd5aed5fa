"""Relational attention in linear memory by one library in C, as an operation of PyTorch.

``relational_attention.c`` does for blocks of receivers, one in each lane of one or two vectors, what
:mod:`dual_attention.functional.relational.blocks` does by PyTorch's operations, and never stores relations of more than
a few senders. It computes in float32. Tensors of half precision are cast, and results cast back.

Shapes: as in :mod:`dual_attention.functional.reference`.
"""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..functional.checks import HALVES
from ..functional.relational.blocks import Gradients, LinearArguments
from ..functional.relational.inputs import RelationalAttentionOutput, RelationalInputs
from ..functional.relational.operation import linear_arguments, registered
from ..functional.relational.workspace import Workspace
from .library import Library
from .threads import team

SOURCE = Path(__file__).with_name("relational_attention.c")

LEVELS = 2**16
"""Number of rates of dropout, to one of which a rate is rounded; the factor of what is kept is that of the rounded."""


def _left_to_pytorch() -> frozenset[torch.dtype]:
    """Types that matrix units of this processor multiply (AMX), or may multiply if it is not x86."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return frozenset(HALVES)
    units = {torch.bfloat16: "_is_amx_tile_supported", torch.float16: "_is_amx_fp16_supported"}
    return frozenset(dtype for dtype, name in units.items() if getattr(torch.cpu, name, lambda: False)())


LEFT_TO_PYTORCH = _left_to_pytorch()
"""Types of half precision that ``impl="auto"`` does not cast."""

LARGEST_SCRATCH = 9 * 2**24
"""Bytes of intermediate results, at most, that all threads have together: a layer of the 343M models then takes less
than 2.5 times the memory of plain attention at 8,192 tokens. Sums over receivers are among them, for each thread its
own, and grow with the number of senders. Where less than half of the threads have room, ``impl="auto"`` does not take
the library."""

LARGEST_KEPT = 2**26
"""Bytes of them, at most, that are kept for the next call."""

FEWEST_MULTIPLICATIONS = 2**17
"""Least work for a thread, which takes up to 20 µs to start."""


def _strides(*names: str) -> list[tuple[str, Any]]:
    lengths = {"u": 2, "w": 2, "index": 2, "mask": 4}
    return [(f"{name}_strides", ctypes.c_int64 * lengths.get(name, 3)) for name in names]


class _Call(ctypes.Structure):
    """Arguments of the library, in the order of its own ``Call``."""

    _fields_ = [
        *[
            (name, ctypes.c_int64)
            for name in ("batch", "heads", "groups", "n", "m", "d", "relations", "p", "width", "library")
        ],
        *_strides("q", "k", "u", "w", "table", "symbols", "dq", "dk", "dtable", "grad_symbols", "mask", "index"),
        *[(name, ctypes.c_int64) for name in ("causal", "window", "offset", "threads", "one_table", "block")],
        *[(name, ctypes.c_uint64) for name in ("seed", "share")],
        *[(name, ctypes.c_double) for name in ("scale", "rel_scale", "factor")],
        *[(name, ctypes.c_void_p) for name in ("q", "k", "u", "w", "table", "index", "mask", "padding")],
        *[(name, ctypes.c_void_p) for name in ("receiver_segments", "sender_segments", "wrong", "symbols", "attended")],
        *[(name, ctypes.c_void_p) for name in ("grad_symbols", "grad_attended", "dq", "dk", "du", "dw", "dtable")],
        ("scratch", ctypes.c_void_p),
        ("team", ctypes.c_void_p),
    ]


LIBRARY = Library(SOURCE, _Call, ["scratch_size", "block_of"], ["forward", "backward", "dropout_factors"])


def suits(dtype: torch.dtype) -> bool:
    """Whether the library is as good as others with tensors of that type, cast to float32 if need be."""
    return dtype == torch.float32 or (dtype in HALVES and dtype not in LEFT_TO_PYTORCH)


def native_relational_attention(x: RelationalInputs) -> RelationalAttentionOutput:
    """Relational attention for the identity activation, without maps or a bias."""
    return x.output(*_operation(*linear_arguments(x, x.n())))


def threads_with_room(q: Tensor, k: Tensor, u: Tensor, table: Tensor, relative: bool) -> int:
    """Threads whose scratch is at most :data:`LARGEST_SCRATCH` together; about, by what grows with the senders."""
    (batch, heads, *_), (_, groups, m, d), (relations, p), width = q.shape, k.shape, u.shape[2:], table.shape[-1]
    d, width = (-(-x // 16) * 16 for x in (d, width))
    of_senders = m * (groups * d + relations * p) + groups * width * (table.shape[0] if relative else m)
    of_block = 32 * m * (2 * heads + 2)
    if batch == 1:  # threads share the senders, and each has sums
        return max(0, LARGEST_SCRATCH // 4 - of_senders) // (of_senders + of_block)
    return LARGEST_SCRATCH // 4 // (3 * of_senders + of_block)  # the senders, and sums of two examples


def forward(x: LinearArguments, symbols: Tensor, attended: Tensor) -> None:
    """Write attended symbols ``(B, H, N, d_h)`` and relations ``(B, H, N, R)``, which are contiguous."""
    if _has_no_pairs(x):
        symbols.zero_()
        attended.zero_()
        return
    call = _Arguments(x)
    call.fill("symbols", symbols, 3)
    call.fill("attended", attended)
    call.run("forward")


def backward(x: LinearArguments, grad_symbols: Tensor, grad_attended: Tensor, into: Gradients) -> None:
    """Write gradients of q, k, u, w and the table; those of u and w are contiguous."""
    if _has_no_pairs(x):
        for gradient in (into.q, into.k, into.u, into.w, into.table):
            gradient.zero_()
        return
    call = _Arguments(x)
    call.read("grad_symbols", grad_symbols, 3)
    call.write("grad_attended", grad_attended.float().contiguous())
    call.fill("dq", into.q, 3)
    call.fill("dk", into.k, 3)
    call.fill("du", into.u)
    call.fill("dw", into.w)
    call.fill("dtable", _groups_first(into.table) if call.call.library else into.table, 3)
    call.run("backward")


def _has_no_pairs(x: LinearArguments) -> bool:
    return 0 in (*x.q.shape[:3], x.k.shape[2])


def dropout_factors(x: LinearArguments) -> Tensor:
    """Factors of dropout of all weights, ``(B, H, N, M)`` in float32."""
    call = _Arguments(x)
    factors = x.q.new_empty(*x.q.shape[:3], x.k.shape[2], dtype=torch.float32)
    call.write("attended", factors)
    call.run("dropout_factors")
    return factors


class _Arguments:
    """A call's arguments as the library takes them; holds the tensors that they point into."""

    def __init__(self, x: LinearArguments) -> None:
        (batch, heads, n, d), (_, groups, m, _), (*_, relations, p) = x.q.shape, x.k.shape, x.u.shape
        relative = x.symbol_index is not None
        if relative and not x.table.shape[0]:
            raise IndexError("symbols.index: expected rows of the library, which has none")
        rows, width = x.table.shape[0] if relative else 0, x.table.shape[-1]
        room = threads_with_room(x.q, x.k, x.u, x.table, relative)
        multiplications = batch * heads * n * m * (d + width + relations)
        threads = min(torch.get_num_threads(), room, multiplications // FEWEST_MULTIPLICATIONS)
        library = LIBRARY.get()
        self.like, self.library, self.held = x.q.new_empty(0, dtype=torch.float32), library, []
        self.wrong = ctypes.c_int64(0)
        self.cast_back: list[tuple[Tensor, Tensor]] = []
        sizes = batch, heads, groups, n, m, d, relations, p, width, rows
        self.call = _Call(
            *sizes,
            causal=x.causal,
            window=-1 if x.window is None else min(x.window, 2**30),
            offset=x.offset,
            threads=max(1, threads),
            block=library.block_of(ctypes.c_int64(n)),
            scale=x.scale,
            rel_scale=x.rel_scale,
            team=team(),
            wrong=ctypes.addressof(self.wrong),
        )
        self.read("q", x.q, 3)
        self.read("k", x.k, 3)
        self.read("u", x.u, 2)
        self.read("w", x.w, 2)
        if x.symbol_index is not None:
            self.read("table", _groups_first(x.table), 3)
            self._take_index(x.symbol_index, n)
        else:
            self.read("table", x.table, 3)
        if relative or x.table.shape[0] == 1:
            self.call.one_table, self.call.table_strides[0] = True, 0
        self._take_mask(x)
        if x.seed is not None:
            share = max(1, round((1.0 - x.dropout) * LEVELS))
            self.call.seed, self.call.share, self.call.factor = int(x.seed), share, LEVELS / share

    def write(self, name: str, x: Tensor, strides: int = 0) -> None:
        """Hand over a tensor as it lies in memory, with that many of its strides."""
        x = x.resolve_neg()
        self.held.append(x)
        setattr(self.call, name, x.data_ptr())
        if strides:
            getattr(self.call, f"{name}_strides")[:] = x.stride()[:strides]

    def read(self, name: str, x: Tensor, strides: int) -> None:
        """Hand over a tensor whose axes behind those strides lie in a row, or a copy where they do not, in float32."""
        x = x.float()
        self.write(name, x if x[(0,) * strides].is_contiguous() else x.contiguous(), strides)

    def fill(self, name: str, x: Tensor, strides: int = 0) -> None:
        """Hand over a tensor for a result; in half precision it is given the rounded one after the run."""
        if x.dtype == torch.float32:
            return self.write(name, x, strides)
        result = torch.empty_like(x, dtype=torch.float32)
        self.cast_back.append((x, result))
        return self.write(name, result, strides)

    def run(self, name: str) -> None:
        size = self.library.scratch_size(ctypes.byref(self.call), name == "backward")
        scratch = Workspace(self.like, LARGEST_KEPT).tensor("scratch", size)
        self.call.scratch = scratch.data_ptr()
        getattr(self.library, name)(ctypes.byref(self.call))
        row, rows = self.wrong.value, self.call.library
        if rows and not 0 <= row < rows:  # of which the kernels read and write nothing
            raise IndexError(f"symbols.index: expected 0 to {rows - 1}, rows of the library, got {row}")
        for x, result in self.cast_back:
            x.copy_(result)

    def _take_index(self, index: Tensor, n: int) -> None:
        index = index.long()
        if index.dim() == 2:
            return self.write("index", index, 2)
        self.write("index", index.contiguous())  # along diagonals: the pair of receiver i and sender j is at j - i + N
        self.call.index += n * index.itemsize
        self.call.index_strides[:] = (-1, 1)

    def _take_mask(self, x: LinearArguments) -> None:
        (batch, heads, n, _), m = x.q.shape, x.k.shape[2]
        if x.attn_mask is not None:
            self.write("mask", x.attn_mask.expand(batch, heads, n, m), 4)
        if x.padding is not None:
            self.write("padding", x.padding.expand(batch, m).contiguous())
        if x.receiver_segments is not None and x.sender_segments is not None:
            self.write("receiver_segments", x.receiver_segments.expand(batch, n).long().contiguous())
            self.write("sender_segments", x.sender_segments.expand(batch, m).long().contiguous())


def _groups_first(library: Tensor) -> Tensor:
    """A library of relative symbols ``(K, G, d_h)`` with the axes of shared symbols, ``(1, G, K, d_h)``."""
    return library.movedim(0, 1)[None]


_operation = registered("native_relational_attention", forward=forward, backward=backward, kept=dropout_factors)
