"""Relational attention of one receiver by a library in C, on a CPU in float32: a step of decoding.

What PyTorch has multiplies the one row by matrices, at a small part of the rate at which memory is read. Here each
sender is read once, as a cache holds it, and those that are hidden are not. Nothing has a graph. Code that
``torch.compile`` makes calls the same as one operation.

Shapes: as in :mod:`dual_attention.functional.reference`, with N = 1.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional.checks import dispatches, has_numbers, is_autocast, is_exporting, leaves_pytorch
from ..functional.derivatives import are_taken_otherwise
from ..functional.op_schema import op_schema
from ..functional.relational.inputs import RelationalAttentionOutput, RelationalInputs
from ..functional.symbols import RelativeSymbols, symbol_table
from .library import Library, check_symbol_rows, structure
from .threads import team

SOURCE = Path(__file__).with_name("step.c")

FEWEST_PER_THREAD = 2**16
"""Numbers to read; fewer are not worth another thread."""

_Step = structure(
    "_Step",
    (ctypes.c_int64, "batch heads groups m d relations p width library"),
    (ctypes.c_int64 * 2, "q_strides"),
    (ctypes.c_int64 * 3, "k_strides table_strides"),
    (ctypes.c_int64 * 2, "w_strides"),
    (ctypes.c_int64, "u_stride"),
    (ctypes.c_int64 * 3, "mask_strides"),
    (ctypes.c_int64, "index_stride threads"),
    (ctypes.c_double, "scale rel_scale"),
    (ctypes.c_void_p, "q k table u w index wrong mask symbols attended scratch team"),
)

LIBRARY = Library(SOURCE, {"size_of_step": _Step}, sizes=["scratch_of_step"], procedures=["step"])


def can_step(x: RelationalInputs) -> bool:
    """Whether this is one receiver, whose call needs no graph, no maps and no activation."""
    if is_exporting() or leaves_pytorch():  # first: sizes may be symbols there
        return False
    if x.n != 1 or x.need_weights or x.activated or x.bias is not None or x.dropout:
        return False
    if is_autocast(x.q) or are_taken_otherwise():
        return False
    tensors = (x.q, x.k, x.u, x.w, symbol_table(x.symbols))
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return False
    if not all(x.is_cpu and x.dtype == torch.float32 and has_numbers(x) and x.numel() for x in tensors):
        return False
    return torch.compiler.is_compiling() or (all(x.stride(-1) == 1 for x in tensors) and not dispatches())


def native_step(x: RelationalInputs) -> RelationalAttentionOutput:
    """Relational attention of one receiver; padded senders are not read."""
    index = x.symbols.index if isinstance(x.symbols, RelativeSymbols) else None
    arguments = StepArguments(x.q, x.k, symbol_table(x.symbols), x.u, x.w, index, x.mask, x.scale, x.rel_scale)
    return x.output(*(_operation if torch.compiler.is_compiling() else _step)(*arguments))


class StepArguments(NamedTuple):
    """Arguments of the registered operation.

    Attributes:
        table: shared symbols ``(B or 1, G, M, d_h)``; with an index, the library of relative ones ``(K, G, d_h)``.
        symbol_index: rows of the library by sender, integers ``(1, M)``.
        mask: hidden senders are not read unless some head sees them.
    """

    q: Tensor
    k: Tensor
    table: Tensor
    u: Tensor
    w: Tensor
    symbol_index: Tensor | None
    mask: Tensor | None
    scale: float
    rel_scale: float


def _empty_results(*arguments: Any) -> tuple[Tensor, Tensor]:
    """Attended symbols ``(B, H, 1, d_h)`` and attended relations ``(B, H, 1, R)``, yet to be written."""
    x = StepArguments(*arguments)
    batch, heads = x.q.shape[:2]
    return x.q.new_empty(batch, heads, 1, x.table.shape[-1]), x.q.new_empty(batch, heads, 1, x.u.shape[2])


def _step_of_compiled_code(*arguments: Any) -> tuple[Tensor, Tensor]:
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in arguments):
        raise RuntimeError("dual_attention::step has no gradient, and an argument requires one")
    return _step(*arguments)


# Not by `torch.library.custom_op`, which looks for gradients and shared memory at each call, for some 30 µs.
NAMESPACE = "dual_attention"
_OPERATIONS = torch.library.Library(NAMESPACE, "FRAGMENT")
_OPERATIONS.define("step" + op_schema(StepArguments, 2), tags=torch.Tag.pt2_compliant_tag)
_OPERATIONS.impl("step", _step_of_compiled_code, "CPU")
torch.library.register_fake(f"{NAMESPACE}::step", _empty_results, lib=_OPERATIONS)
_operation = torch.ops.dual_attention.step.default


def _step(*arguments: Any) -> tuple[Tensor, Tensor]:
    x = StepArguments(*arguments)
    q, k, table = (x if x.stride(-1) == 1 else x.contiguous() for x in x[:3])
    u, w = (x if x[0, 0].is_contiguous() else x.contiguous() for x in (x.u, x.w))  # relations of a token lie in a row
    index, mask = x.symbol_index, x.mask
    library = LIBRARY.get()
    (batch, heads, _, d), (_, groups, m, _), width = q.shape, k.shape, table.shape[-1]
    n_relations, p = u.shape[2:]
    rows = 0 if index is None else table.shape[0]
    if index is not None:
        table, index = table.movedim(0, 1)[None], index.long()
    hidden = None if mask is None else mask.expand(batch, heads, 1, m)
    symbols, attended = _empty_results(*x)
    wrong = ctypes.c_int64(0)
    read = batch * m * (groups * (d + width) + n_relations * p)
    by_example = table.stride(0) if table.shape[0] > 1 else 0
    call = _Step(
        batch,
        heads,
        groups,
        m,
        d,
        n_relations,
        p,
        width,
        rows,
        q.stride()[:2],
        k.stride()[:3],
        (by_example, *table.stride()[1:3]),
        w.stride()[:2],
        u.stride(0),
        (0, 0, 0) if hidden is None else (hidden.stride(0), hidden.stride(1), hidden.stride(3)),
        0 if index is None else index.stride(1),
        max(1, min(torch.get_num_threads(), read // FEWEST_PER_THREAD)),
        x.scale,
        x.rel_scale,
        q.data_ptr(),
        k.data_ptr(),
        table.data_ptr(),
        u.data_ptr(),
        w.data_ptr(),
        None if index is None else index.data_ptr(),
        ctypes.addressof(wrong),
        None if hidden is None else hidden.data_ptr(),
        symbols.data_ptr(),
        attended.data_ptr(),
        None,
        team(),
    )
    scratch = q.new_empty(library.scratch_of_step(ctypes.byref(call)))
    call.scratch = scratch.data_ptr()
    library.step(ctypes.byref(call))
    check_symbol_rows(wrong.value, rows)
    return symbols, attended
