"""Attention of one receiver by a library in C, on a CPU in float32, where a compiler is found: a step of decoding.

What PyTorch has multiplies the one row by matrices, at a small part of the rate at which memory is read. Here each
sender is read once, as a cache holds it, and those that are hidden are not. Nothing has a graph. Code that
``torch.compile`` makes calls the same as one operation.

Shapes: as in :mod:`.reference`, with N = 1.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import reference
from .checks import dispatches, has_numbers, is_autocast, is_exporting, leaves_pytorch
from .derivatives import are_taken_otherwise
from .mask_patterns import MaskPattern
from .native.library import Library, structure
from .native.threads import team
from .op_schema import op_schema
from .registered import without_gradient
from .symbols import RelativeSymbols

SOURCE = Path(__file__).parent / "native" / "step.c"

FEWEST_PER_THREAD = 2**16
"""Numbers to read; fewer are not worth another thread."""

_Step = structure(
    "_Step",
    (ctypes.c_int64, "batch heads groups m d relations p width"),
    (ctypes.c_int64 * 2, "q_strides"),
    (ctypes.c_int64 * 3, "k_strides table_strides"),
    (ctypes.c_int64 * 2, "w_strides"),
    (ctypes.c_int64, "u_stride"),
    (ctypes.c_int64 * 3, "mask_strides"),
    (ctypes.c_int64, "index_stride threads"),
    (ctypes.c_double, "scale rel_scale"),
    (ctypes.c_void_p, "q k table u w index mask symbols attended scratch team"),
)

CAN_TELL_EXPORTS = hasattr(torch.compiler, "is_exporting")
"""Whether an export can be told from code that is compiled: since torch 2.7."""

LIBRARY = Library(SOURCE, {"size_of_step": _Step}, sizes=["scratch_of_step"], procedures=["step"])


def can_step(q: Tensor, bias: Tensor | None, dropout: float, *senders: Tensor) -> bool:
    """Whether the library is to compute a call that wants neither maps nor activated relations.

    Args:
        senders: everything else that would be read, keys first.
    """
    if is_exporting() or leaves_pytorch():  # first: sizes may be symbols there
        return False
    if q.shape[2] != 1 or bias is not None or dropout or is_autocast(q) or are_taken_otherwise():
        return False
    tensors = (q, *senders)
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return False
    if not all(x.is_cpu and x.dtype == torch.float32 and has_numbers(x) and x.numel() for x in tensors):
        return False
    if torch.compiler.is_compiling():
        return CAN_TELL_EXPORTS and _is_available()
    return all(x.stride(-1) == 1 for x in tensors) and not dispatches() and LIBRARY.is_available()


def _is_available() -> bool:
    return LIBRARY.is_available()


# As torch.compiler.assume_constant_result does, which imports the whole compiler: the library is not looked for by code
# that is being compiled.
_is_available._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def step(
    q: Tensor,
    k: Tensor,
    table: Tensor,
    mask: MaskPattern,
    *,
    scale: float,
    relations: tuple[Tensor, Tensor, float] | None = None,
    index: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attended symbols, or values, ``(B, H, 1, d_h)``, and attended relations ``(B, H, 1, R)``.

    Args:
        table: values or shared symbols ``(B or 1, G, M, d_h)``; with an index, the library of relative ones
            ``(K, G, d_h)``.
        mask: hidden senders are not read unless some head sees them.
        relations: u, w and the factor of relations, if there are any.
        index: rows of the library by sender, integers ``(1, M)``.
    """
    u, w, rel_scale = (None, None, 1.0) if relations is None else relations
    arguments = StepArguments(q, k, table, u, w, index, mask.dense(q.device), scale, rel_scale)
    return _operation(*arguments) if torch.compiler.is_compiling() else _step(arguments)


class StepArguments(NamedTuple):
    """Arguments of the registered operation; those of :func:`step`, with relations apart and the mask written out."""

    q: Tensor
    k: Tensor
    table: Tensor
    u: Tensor | None
    w: Tensor | None
    symbol_index: Tensor | None
    mask: Tensor | None
    scale: float
    rel_scale: float


def _empty_results(*arguments: Any) -> tuple[Tensor, Tensor]:
    """Attended symbols and relations, yet to be written."""
    x = StepArguments(*arguments)
    batch, heads = x.q.shape[:2]
    n_relations = 0 if x.u is None else x.u.shape[2]
    return x.q.new_empty(batch, heads, 1, x.table.shape[-1]), x.q.new_empty(batch, heads, 1, n_relations)


@without_gradient("step", op_schema(StepArguments, 2), _empty_results)
def _operation(*arguments: Any) -> tuple[Tensor, Tensor]:
    """Attention of one receiver as one operation of compiled code: checks at run time what numbers tell, and layouts.

    A graph that was kept may be run where there is no library.
    """
    x = StepArguments(*arguments)
    if x.symbol_index is not None:
        least, most = (int(row) for row in x.symbol_index.aminmax())
        if least < 0 or most >= x.table.shape[0]:
            raise IndexError(f"index: expected rows of a library of {x.table.shape[0]}, got {least} to {most}")
    x = x._replace(q=in_rows(x.q), k=in_rows(x.k), table=in_rows(x.table))
    symbols, attended = _step(x) if LIBRARY.is_available() else _equation(x)
    return symbols.contiguous(), attended.contiguous()


def in_rows(x: Tensor) -> Tensor:
    """The tensor, or a copy in which the numbers of a row lie side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _equation(x: StepArguments) -> tuple[Tensor, Tensor]:
    """The results of :func:`_step` by the operations of :mod:`.reference`."""
    q, k, table, u, w, index, mask, scale, rel_scale = x
    if mask is not None:  # whatever those hold that no head sees
        hidden = ~mask.any(1, keepdim=True).transpose(2, 3)
        k, w = k.masked_fill(hidden, 0.0), None if w is None else w.masked_fill(hidden.transpose(1, 2), 0.0)
        table = table.masked_fill(hidden, 0.0) if index is None else table
    alpha = reference.attention_weights(q, k, scale=scale, mask=mask)
    symbols = reference.attend_to_symbols(alpha, table if index is None else RelativeSymbols(table, index))
    if u is None or w is None:
        return symbols, q.new_empty(*q.shape[:3], 0)
    return symbols, torch.einsum("bhnm,bnmr->bhnr", alpha, reference.relations(u, w, scale=rel_scale))


def _step(x: StepArguments) -> tuple[Tensor, Tensor]:
    q, k, table, u, w, index, mask, scale, rel_scale = x
    library = LIBRARY.get()
    (batch, heads, _, d), (_, groups, m, _), width = q.shape, k.shape, table.shape[-1]
    if index is not None:
        table, index = table.movedim(0, 1)[None], index.long()
    hidden = None if mask is None else mask.expand(batch, heads, 1, m)
    n_relations, p = (0, 1) if u is None else u.shape[2:]
    symbols, attended = _empty_results(*x)
    if u is not None and w is not None:  # relations of a token lie in a row
        u, w = (x if x[0, 0].is_contiguous() else x.contiguous() for x in (u, w))
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
        q.stride()[:2],
        k.stride()[:3],
        (by_example, *table.stride()[1:3]),
        (0, 0) if w is None else w.stride()[:2],
        0 if u is None else u.stride(0),
        (0, 0, 0) if hidden is None else (hidden.stride(0), hidden.stride(1), hidden.stride(3)),
        0 if index is None else index.stride(1),
        max(1, min(torch.get_num_threads(), read // FEWEST_PER_THREAD)),
        scale,
        rel_scale,
        q.data_ptr(),
        k.data_ptr(),
        table.data_ptr(),
        None if u is None else u.data_ptr(),
        None if w is None else w.data_ptr(),
        None if index is None else index.data_ptr(),
        None if hidden is None else hidden.data_ptr(),
        symbols.data_ptr(),
        attended.data_ptr(),
        None,
        team(),
    )
    scratch = q.new_empty(library.scratch_of_step(ctypes.byref(call)))
    call.scratch = scratch.data_ptr()
    library.step(ctypes.byref(call))
    return symbols, attended
