"""Products of narrow tensors in float32, without a copy of these where a GPU can do so."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .checks import are_taken_otherwise, dispatches, leaves_pytorch

WRITES_WIDE = "dtype" in torch.ops.aten.bmm.overloads() and torch.version.hip is None
"""True if this PyTorch has a product whose result is wider than its factors: since 2.8, on CUDA."""


def wide_products(a: Tensor, b: Tensor, scale: float) -> Tensor | None:
    """``scale * a @ b`` of float16 or bfloat16 in float32; None where only copies in float32 give it.

    Tensors on the meta device stand for some on a GPU. The product has no derivative, and counters of operations do not
    know it.

    Args:
        a: ``(..., n, k)``; b: ``(..., k, m)``, with the same leading axes, one at least.

    >>> wide_products(torch.ones(1, 2, 3).half(), torch.ones(1, 3, 2).half(), 1.0) is None  # on a CPU
    True
    """
    if not (WRITES_WIDE and (a.is_cuda or a.is_meta)) or a.dim() < 3 or a.shape[:-2] != b.shape[:-2]:
        return None
    if (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)) or are_taken_otherwise() or leaves_pytorch():
        return None
    if not torch.compiler.is_compiling() and dispatches():
        return None
    exact = math.frexp(scale)[0] == 0.5 and a.dtype == torch.bfloat16  # a power of two rounds nothing
    products = torch.bmm((scale * a if exact else a).flatten(0, -3), b.flatten(0, -3), out_dtype=torch.float32)
    return (products if exact else products.mul_(scale)).view(*a.shape[:-1], b.shape[-1])
