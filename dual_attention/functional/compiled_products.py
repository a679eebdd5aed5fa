"""Products of linear layers in C, on a CPU in float32: gradients of weights, and products of a few rows.

oneDNN has to be given the gradients of a layer's outputs transposed, in a copy, before it multiplies them with the
inputs; and its products of a few rows, as in decoding, read weights at two thirds of the rate of the memory
(``benchmarks/run.py --suite products``). Where no compiler is found, :mod:`.products` leaves both to others.

Shapes: T rows, i and o widths of input and output.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from .native.library import Library, structure
from .native.threads import team

SOURCE = Path(__file__).parent / "native" / "linear.c"

MOST_ROWS = 8
"""Of a product of few rows."""

FEWEST_FOR_THREAD = 2**19
"""Multiplications of a gradient that are worth another thread."""

PIECE = 2**15
"""Weights that a thread takes at a time, of a product of few rows."""


_Gradient = structure(
    "_Gradient",
    (ctypes.c_int64, "rows outputs inputs a_apart b_apart"),
    (ctypes.c_void_p, "a b c scratch"),
    (ctypes.c_int64, "threads"),
    (ctypes.c_void_p, "team"),
)
_FewRows = structure(
    "_FewRows",
    (ctypes.c_int64, "rows outputs inputs apart"),
    (ctypes.c_void_p, "x w bias y"),
    (ctypes.c_int64, "threads piece"),
    (ctypes.c_void_p, "team"),
)


LIBRARY = Library(
    SOURCE,
    {"size_of_gradient": _Gradient, "size_of_few_rows": _FewRows},
    sizes=["scratch_of_gradient"],
    procedures=["gradient_of_weight", "few_rows"],
)


def gradient_of_weight(grads: Tensor, inputs: Tensor) -> Tensor:
    """Gradient ``(o, i)`` of a weight, from those of the outputs ``(T, o)`` and the inputs ``(T, i)``.

    Args:
        grads, inputs: numbers of a row lie side by side.
    """
    library = LIBRARY.get()
    (rows, outputs), inputs_ = grads.shape, inputs.shape[1]
    threads = max(1, min(torch.get_num_threads(), rows * outputs * inputs_ // FEWEST_FOR_THREAD))
    found, scratch = (
        grads.new_empty(outputs, inputs_),
        grads.new_empty(threads * library.scratch_of_gradient(ctypes.c_int64(outputs), ctypes.c_int64(inputs_))),
    )
    library.gradient_of_weight(
        ctypes.byref(
            _Gradient(
                rows=rows,
                outputs=outputs,
                inputs=inputs_,
                a_apart=grads.stride(0),
                b_apart=inputs.stride(0),
                a=grads.data_ptr(),
                b=inputs.data_ptr(),
                c=found.data_ptr(),
                scratch=scratch.data_ptr(),
                threads=threads,
                team=team(),
            )
        )
    )
    return found


def few_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias``, the same for a row whatever rows are beside it.

    Args:
        x: ``(..., i)``, with at most :data:`MOST_ROWS` rows.
        weight: ``(o, i)``, with the numbers of a row side by side; bias: ``(o,)``.
    """
    library = LIBRARY.get()
    outputs, inputs = weight.shape
    x, bias = x.contiguous(), None if bias is None else bias.contiguous()
    y = x.new_empty(*x.shape[:-1], outputs)
    library.few_rows(
        ctypes.byref(
            _FewRows(
                rows=x.numel() // inputs,
                outputs=outputs,
                inputs=inputs,
                apart=weight.stride(0),
                x=x.data_ptr(),
                w=weight.data_ptr(),
                bias=None if bias is None else bias.data_ptr(),
                y=y.data_ptr(),
                threads=torch.get_num_threads(),
                piece=max(MOST_ROWS, PIECE // inputs),
                team=team(),
            )
        )
    )
    return y
