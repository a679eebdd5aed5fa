"""Formulas with which ``torch.utils.flop_counter`` counts the operations that it does not know.

PyTorch's counter looks at each operation by itself and counts nothing for a custom one, nor for fused attention on a
CPU.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dual_attention.functional.relational import linear  # noqa: F401 (registers its operations)
from dual_attention.functional.relational.pair_symbols import worth_writing_out
from dual_attention.functional.relational.tiles import prefers_tiles
from dual_attention.functional.triton.support import INSTALLED
from dual_attention.native import kernels  # noqa: F401 (likewise, and compiles nothing)

from .flops import Flops, RelationalSizes, block_pairs, fused_attention, pairs

Shape = Sequence[int]


def counter_formulas() -> dict[Any, Callable[..., int]]:
    """Formulas for our operations and for fused attention on a CPU, by operation.

    Give them to one counter, ``FlopCounterMode(custom_mapping=counter_formulas())``, or to all, by
    :func:`register_flop_formulas`.
    """
    ours, aten = torch.ops.dual_attention, torch.ops.aten
    formulas: dict[Any, Callable[..., int]] = {
        ours.linear_relational_attention: _forward_of(_linear),
        ours.linear_relational_attention_backward: _backward_of(_linear, 2),
        ours.native_relational_attention: _forward_of(_linear),
        ours.native_relational_attention_backward: _backward_of(_linear, 2),
        aten._scaled_dot_product_flash_attention_for_cpu: _forward_of(_sdpa),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward_of(_sdpa, 1),
    }
    if INSTALLED is not None:
        from dual_attention.functional.triton import operation  # noqa: F401 (registers its operations)

        formulas[ours.fused_relational_attention] = _forward_of(_fused)
        formulas[ours.fused_relational_attention_backward] = _backward_of(_fused, 5)
    return formulas


def register_flop_formulas() -> None:
    """Let every ``FlopCounterMode`` of this process count our operations; a second call changes nothing.

    Formulas that PyTorch has already are left as they are.
    """
    from torch.utils.flop_counter import flop_registry, register_flop_formula

    for operation, formula in counter_formulas().items():
        if operation not in flop_registry:
            register_flop_formula(operation)(formula)


def _forward_of(operation: Callable[..., Flops]) -> Callable[..., int]:
    return lambda *shapes, **_: operation(*shapes).forward


def _backward_of(operation: Callable[..., Flops], gradients: int) -> Callable[..., int]:
    """Formula of a backward pass, whose arguments are so many gradients and results, and then those of the forward."""
    return lambda *shapes, **_: operation(*shapes[gradients:]).backward


def _linear(q: Shape, k: Shape, u: Shape, w: Shape, table: Shape, index: Shape | None, *rest: Any) -> Flops:
    """In float32: shapes do not tell of bfloat16, in which a CPU may take the form of more operations."""
    causal, window, offset, _, _, _, block = rest[6:13]
    batch, heads, n, key_width = q
    computed = symbol_pairs = block_pairs(n, k[2], block, causal=causal, window=window, offset=offset)
    if index is not None and not worth_writing_out(n * k[2], k[1] * table[-1], batch * heads):
        symbol_pairs = n * table[0]  # weights of the same symbol are summed first
    sizes = RelationalSizes(batch, heads, computed, symbol_pairs, key_width, table[-1], *u[2:])
    return sizes.linear(tiles=prefers_tiles(heads, u[3]))


def _fused(q: Shape, k: Shape, u: Shape, w: Shape, table: Shape, *rest: Any) -> Flops:
    batch, heads, n, key_width = q
    computed = pairs(n, k[2], causal=rest[4], window=rest[5])
    return RelationalSizes(batch, heads, computed, computed, key_width, table[-1], *u[2:]).fused()


def _sdpa(q: Shape, k: Shape, v: Shape, *_: Any) -> Flops:
    batch, heads, n, width = q
    return fused_attention(batch, heads, n * k[2], width, v[-1])
