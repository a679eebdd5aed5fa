"""Formulas with which ``torch.utils.flop_counter`` counts the operations that it does not know.

PyTorch's counter looks at each operation by itself and counts nothing for a custom one, nor for fused attention on a
CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..functional.relational import linear  # noqa: F401 (registers its operations)
from ..functional.relational.pair_symbols import worth_writing_out
from ..functional.relational.tiles import prefers_tiles
from ..functional.triton.support import INSTALLED
from .flops import Flops, block_pairs, fused_attention, fused_form, linear_form, pairs

Shape = Sequence[int]


def counter_formulas() -> dict[Any, Callable[..., int]]:
    """Formulas for our operations and for fused attention on a CPU, by operation.

    Give them to one counter, ``FlopCounterMode(custom_mapping=counter_formulas())``, or to all, by
    :func:`register_flop_formulas`.
    """
    ours, aten = torch.ops.dual_attention, torch.ops.aten
    formulas: dict[Any, Callable[..., int]] = {
        ours.linear_relational_attention: _linear_forward,
        ours.linear_relational_attention_backward: _linear_backward,
        aten._scaled_dot_product_flash_attention_for_cpu: _sdpa_forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _sdpa_backward,
    }
    if INSTALLED is not None:
        from ..functional.triton import operation  # noqa: F401 (registers its operations)

        formulas[ours.fused_relational_attention] = _fused_forward
        formulas[ours.fused_relational_attention_backward] = _fused_backward
    return formulas


def register_flop_formulas() -> None:
    """Let every ``FlopCounterMode`` of this process count our operations; a second call changes nothing.

    Formulas that PyTorch has already are left as they are.
    """
    from torch.utils.flop_counter import flop_registry, register_flop_formula

    for operation, formula in counter_formulas().items():
        if operation not in flop_registry:
            register_flop_formula(operation)(formula)


def _linear(
    q: Shape,
    k: Shape,
    u: Shape,
    table: Shape,
    index: Shape | None,
    causal: bool,
    window: int | None,
    offset: int,
    block: int,
) -> Flops:
    batch, heads, n, key_width = q
    computed = block_pairs(n, k[2], block, causal=causal, window=window, offset=offset)
    rows = 0 if index is None else table[0]
    symbol_pairs = pairs_with_symbols(n, k[2], k[1], rows, table[-1], computed, maps=batch * heads)
    sizes = (key_width, table[-1], *u[2:])
    return linear_form(batch, heads, computed, symbol_pairs, *sizes, tiles=prefers_tiles(heads, u[3]))


def pairs_with_symbols(n: int, m: int, groups: int, rows: int, head_width: int, computed: int, *, maps: int) -> int:
    """Pairs of receiver and symbol in a product: those computed, or N K if weights of the same symbol are summed first.

    Args:
        rows: K of relative symbols, or 0.
        maps: batch times heads.
    """
    summed = rows > 0 and not worth_writing_out(n * m, groups * head_width, maps)
    return n * rows if summed else computed


def _linear_forward(
    q: Shape, k: Shape, u: Shape, w: Shape, table: Shape, index: Shape | None, *rest: Any, **_: Any
) -> int:
    causal, window, offset, _, _, _, block = rest[6:13]
    return _linear(q, k, u, table, index, causal, window, offset, block).forward


def _linear_backward(*shapes: Any, **_: Any) -> int:
    q, k, u, _, table, index = shapes[2:8]
    causal, window, offset, _, _, _, block = shapes[14:21]
    return _linear(q, k, u, table, index, causal, window, offset, block).backward


def _fused(
    q: Shape, k: Shape, u: Shape, table: Shape, max_offset: int | None, causal: bool, window: int | None
) -> Flops:
    batch, heads, n, key_width = q
    computed = pairs(n, k[2], causal=causal, window=window)
    return fused_form(batch, heads, computed, computed, key_width, table[-1], *u[2:])


def _fused_forward(q: Shape, k: Shape, u: Shape, w: Shape, table: Shape, *rest: Any, **_: Any) -> int:
    return _fused(q, k, u, table, *rest[3:6]).forward


def _fused_backward(*shapes: Any, **_: Any) -> int:
    q, k, u, _, table = shapes[5:10]
    return _fused(q, k, u, table, *shapes[13:16]).backward


def _sdpa(q: Shape, k: Shape, v: Shape) -> Flops:
    batch, heads, n, width = q
    return fused_attention(batch, heads, n * k[2], width, v[-1])


def _sdpa_forward(q: Shape, k: Shape, v: Shape, *_: Any, **__: Any) -> int:
    return _sdpa(q, k, v).forward


def _sdpa_backward(grad: Shape, q: Shape, k: Shape, v: Shape, *_: Any, **__: Any) -> int:
    return _sdpa(q, k, v).backward
