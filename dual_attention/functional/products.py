"""Products with weights on processors for which PyTorch's library of products has no fast code.

In float32 PyTorch leaves products on a CPU to Intel's MKL. On processors of other makers it takes code for vectors of
AVX2 at most, half as wide as those of AVX-512. oneDNN, which PyTorch itself calls for half precision and in models that
its compiler froze, takes what the processor has: with AVX-512 about twice as fast there (``benchmarks/run.py --suite
products``), without it a little slower than MKL. Weights are read where they lie, and nothing is kept but what
:func:`torch.nn.functional.linear` keeps. What oneDNN is slow at, and products of a few rows, which MKL is slow at on
all processors of other makers, a library in C computes where it can be built (:mod:`.compiled_products`).
``torch.backends.mkldnn.flags(enabled=False)`` switches both off.

Shapes: ``...`` any axes, T all of them together, i and o widths of input and output.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import compiled_products
from .checks import dispatches, has_numbers, is_autocast, is_exporting, leaves_pytorch
from .derivatives import are_taken_otherwise, needs_plain
from .registered import without_gradient

FEWEST = 2**20
"""Multiplications from which a product is worth oneDNN's preparation, 15 µs: some 10 to 20 µs of MKL's time."""

FEWEST_WEIGHTS = 2**18
"""The same of weights, however few their inputs: reading them is most of the time then."""

FEWEST_WITH_GRADIENT = 2**22
"""Multiplications from which it is worth a node of the graph in Python, too."""

WIDTH_FOR_COPY = 96
"""Width of outputs or inputs, for each thread, from which a gradient of weights is worth a transposed copy of the
narrower of the two: one thread makes the copy, all of them the product."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """:func:`torch.nn.functional.linear` but for rounding, and the time it takes.

    Math: y = x W^T + b

    Args:
        x: ``(..., i)``.
        weight: ``(o, i)``; bias: ``(o,)``.

    Returns:
        ``(..., o)``.
    """
    if torch.compiler.is_compiling() or not _can_be_fast(x, weight, bias):
        return F.linear(x, weight, bias)
    differentiable = _is_differentiable(x, weight, bias)
    if not _is_worth_it(x, weight, differentiable) or _is_watched(x, weight, bias):
        return F.linear(x, weight, bias)
    return _Linear.apply(x, weight, bias) if differentiable else _times(x, weight, bias)


def compiled_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same while it is being compiled; only without gradients, since a compiler differentiates its own operations.

    Weights alone decide, since one graph serves many lengths.
    """
    large = weight.numel() >= FEWEST_WEIGHTS and not (_is_differentiable(x, weight, bias) or are_taken_otherwise())
    return _compiled(x, weight, bias) if large and _can_be_fast(x, weight, bias) else F.linear(x, weight, bias)


def _is_differentiable(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    needed = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    return needed and torch.is_grad_enabled()


def gradient_of_weight(grads: Tensor, inputs: Tensor) -> Tensor:
    """Gradient ``(o, i)`` of a weight, from those of the outputs ``(T, o)`` and the inputs ``(T, i)``.

    Math: sum_t g_t x_t^T
    """
    o, i = grads.shape[1], inputs.shape[1]
    if torch.compiler.is_compiling() or not SLOW_PRODUCTS:
        return torch.mm(grads.t(), inputs)
    if _suits_library(grads, inputs):
        return compiled_products.gradient_of_weight(grads, inputs)
    if max(o, i) < WIDTH_FOR_COPY * torch.get_num_threads():
        return torch.mm(grads.t(), inputs)
    if o <= i:  # the first factor is copied, transposed
        return linear(grads.t(), inputs.t())
    return linear(inputs.t(), grads.t()).t()


def _suits_library(grads: Tensor, inputs: Tensor) -> bool:
    """Whether :mod:`.compiled_products` is to compute the gradient of a weight."""
    return (
        torch.backends.mkldnn.enabled
        and grads.numel() * inputs.shape[1] >= FEWEST
        and all(_is_plain(x) and x.stride(1) == 1 for x in (grads, inputs))
        and not _is_differentiable(grads, inputs, None)
        and not _is_watched(grads, inputs)
        and not is_autocast(grads)
        and compiled_products.LIBRARY.is_available()
    )


def _can_be_fast(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether these are matrices that oneDNN and the library in C take, and on this machine some are worth it."""
    return (
        SLOW_ROWS
        and _is_plain(x)
        and _is_plain(weight)
        and (bias is None or _is_plain(bias))
        and not (is_exporting() or leaves_pytorch() or is_autocast(x))
        and weight.dim() == 2
        and x.shape[-1:] == weight.shape[1:]
        # For a part of a larger matrix oneDNN has no fast code: a thousand times as slow.
        and (weight.is_contiguous() or weight.t().is_contiguous())
    )


def _is_worth_it(x: Tensor, weight: Tensor, differentiable: bool) -> bool:
    multiplications = x.numel() * weight.shape[0]
    if differentiable:
        return SLOW_PRODUCTS and multiplications >= FEWEST_WITH_GRADIENT
    return _are_few(x, weight) or (SLOW_PRODUCTS and (weight.numel() >= FEWEST_WEIGHTS or multiplications >= FEWEST))


def _are_few(x: Tensor, weight: Tensor) -> bool:
    """Whether these are so few rows, and so many weights, that reading the weights is most of the time."""
    return x.numel() <= compiled_products.MOST_ROWS * x.shape[-1] and weight.numel() >= FEWEST_WEIGHTS


def _is_watched(*tensors: Tensor | None) -> bool:
    """Whether someone takes derivatives in another way, or sees operations to count or imitate them."""
    return needs_plain(*tensors) or dispatches()


def _is_plain(x: Tensor) -> bool:
    return has_numbers(x) and x.is_cpu and x.dtype == torch.float32 and x.layout == torch.strided


def _slow_products() -> tuple[bool, bool]:
    """Whether PyTorch's library of products is slow at a few rows in float32 on this machine, and at all products."""
    libraries = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    rows = libraries and hasattr(torch.ops.mkldnn, "_linear_pointwise") and maker() not in (None, "GenuineIntel")
    return rows, rows and torch.backends.cpu.get_cpu_capability() == "AVX512"


def maker() -> str | None:
    """Maker of the processor, by the name that it gives itself; None where that cannot be found out."""
    if platform.system() == "Windows":
        return platform.processor().rpartition(" ")[2]
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), None)


def _times(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``, without a graph."""
    if not x.numel() or not torch.backends.mkldnn.enabled:
        return F.linear(x, weight, bias)
    if _are_few(x, weight) and weight.stride(1) == 1 and compiled_products.LIBRARY.is_available():
        return compiled_products.few_rows(x, weight, bias)
    if not SLOW_PRODUCTS:
        return F.linear(x, weight, bias)
    bias = None if bias is None else bias.contiguous()  # its strides would be ignored
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _like_compiled(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


@without_gradient("linear_without_gradient", "(Tensor x, Tensor weight, Tensor? bias) -> Tensor", _like_compiled)
def _compiled(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product as one operation for compilers, whose own calls of oneDNN want weights that never change."""
    return _times(x, weight, bias)


SLOW_ROWS, SLOW_PRODUCTS = _slow_products()
"""Whether that library is slow at products of a few rows on this machine, and whether oneDNN is faster at others."""


class _Linear(torch.autograd.Function):
    """The product and its two others, of the gradient with the weights and with the input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        return _times(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (grad,) = ctx.saved_tensors, grads
        rows = grad.reshape(-1, grad.shape[-1])
        return (
            None if weight is None else linear(grad, weight.t()),
            None if x is None else gradient_of_weight(rows, x.reshape(-1, x.shape[-1])),
            rows.sum(0) if ctx.needs_input_grad[2] else None,
        )
