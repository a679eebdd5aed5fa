"""Relational attention in bfloat16 by the matrix units of an x86 processor (AMX), by a library in C, for those who ask.

Its products of tiles have run in an emulation only, which the tests build; no processor with AMX has run or timed it.

Shapes: as in :mod:`dual_attention.functional.reference`.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from ..functional.relational.blocks import Gradients, LinearArguments
from ..functional.relational.inputs import RelationalAttentionOutput, RelationalInputs
from ..functional.relational.operation import linear_arguments, registered
from . import kernels
from .library import Library

SOURCE = Path(__file__).with_name("relational_attention_amx.c")

LIBRARY = kernels.library(SOURCE, sizes=["can_run"], flags=["-mamx-tile", "-mamx-bf16"])


def missing_units() -> str | None:
    """Why it cannot run here, as a clause; None if it can."""
    found = LIBRARY.find()
    if isinstance(found, str):
        return f"the C kernels cannot be had: {found}"
    return None if found.can_run() else "no matrix units (AMX-BF16) that Linux lets this process use"


def amx_relational_attention(x: RelationalInputs) -> RelationalAttentionOutput:
    """Relational attention in bfloat16 for the identity activation, without maps or a bias; its sums are in float32."""
    return x.output(*_operation(*linear_arguments(x, x.n)))


def _library() -> Library:
    """The library, for a program that was exported on another machine, too."""
    against = missing_units()
    if against is not None:
        raise RuntimeError(f"relational attention by AMX: {against}")
    return LIBRARY


def _forward(x: LinearArguments, symbols: Tensor, attended: Tensor) -> None:
    kernels.forward(x, symbols, attended, _library())


def _backward(x: LinearArguments, grad_symbols: Tensor, grad_attended: Tensor, into: Gradients) -> None:
    kernels.backward(x, grad_symbols, grad_attended, into, _library())


_operation = registered("amx_relational_attention", forward=_forward, backward=_backward, kept=kernels.dropout_factors)
