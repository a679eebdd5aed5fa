"""Limits of the fused kernels, checked without importing Triton."""

from __future__ import annotations

import importlib.metadata
import os
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..symbols import OffsetSymbols, RelativeSymbols, symbol_table

if TYPE_CHECKING:  # the room of the operation imports this module
    from ..relational.inputs import RelationalInputs

OLDEST = (3, 3)
"""Version of Triton that brought the gather within a tile."""
KERNEL_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDEST = 256
"""Largest width of a head's query, key or symbol, and of one relation."""
LEAST_SHARED = 99 * 1024
"""Bytes for the smallest tiles: those of Ada. Turing has 64 KiB."""
MOST_PAIRED, WIDEST_PAIRED = 8, 512
"""Most relations that are formed for every pair, and columns of all heads together, and of all relations."""
OLDEST_FOR_PAIRS = (3, 5)
"""Version of Triton from which their kernels compile."""


def ceil_div(length: int, size: int) -> int:
    """Number of parts of that size that cover a length."""
    return -(-length // size)


def next_power_of_2(n: int) -> int:
    """The least power of two that is no less than ``n``."""
    return 1 << (n - 1).bit_length()


def installed_version() -> tuple[int, int] | None:
    """Version of Triton, found without importing it; None if there is none."""
    for distribution in ("triton", "pytorch-triton", "triton-windows"):
        try:
            major, minor = importlib.metadata.version(distribution).split(".")[:2]
        except importlib.metadata.PackageNotFoundError:
            continue
        return int(major), int(minor)
    return None


INSTALLED = installed_version()

FIRST_SOUND_ASSEMBLER = (3, 8)
"""Version of Triton whose ptxas (CUDA 12.9) assembles the kernels right at every width.

That of CUDA 12.8, in Triton 3.6 and 3.7, uses a register before it is set where tiles of different widths, one of them
below 64, are multiplied in one loop on Hopper: wrong sums, and reads of memory that is not the tensor's.
"""
NARROWEST = 16
"""Columns of the narrowest matmul."""
NARROWEST_SOUND = 64
"""Columns of the narrowest matmul that every ptxas assembles right."""


def narrowest(dtype: torch.dtype, capability: tuple[int, int]) -> int:
    """Columns to which narrower tiles are padded."""
    hopper = capability[0] == 9 and dtype != torch.float32
    sound = INSTALLED is not None and INSTALLED >= FIRST_SOUND_ASSEMBLER
    return NARROWEST_SOUND if hopper and not sound else NARROWEST


def narrowest_for(q: Tensor) -> int:
    """The same for a tensor; off the GPU, in the interpreter, all widths are right."""
    return narrowest(q.dtype, torch.cuda.get_device_capability(q.device)) if q.is_cuda else NARROWEST


def shared_memory(x: Tensor) -> int:
    """Bytes that a program may have on the GPU of a tensor."""
    return torch.cuda.get_device_properties(x.device).shared_memory_per_block_optin


def obstacle(x: RelationalInputs) -> str | None:
    """Why the fused kernels cannot compute this, in words; None if they can."""
    q, symbols = x.q, x.symbols
    if x.need_weights:
        return "it never builds weights or relations whole: it needs need_weights=False"
    if x.activated():
        return f"relations must have the activation 'identity', got {x.rel_activation!r}"
    if x.dropout:
        return f"it knows no dropout of the weights, got dropout={x.dropout}"
    if x.bias is not None:
        return "it adds no bias to the scores"
    if x.pattern.attn_mask is not None:
        return "masks must be given in parts (causal, window, padding, segments), not as a tensor of pairs"
    if isinstance(symbols, RelativeSymbols) and not isinstance(symbols, OffsetSymbols):
        return "relative symbols must be OffsetSymbols, whose index it computes and need not read"
    if q.dtype not in KERNEL_DTYPES:
        return f"it needs bfloat16, float16 or float32, got {q.dtype}"
    widths = {"a query": q.shape[-1], "a symbol": symbol_table(symbols).shape[-1], "a relation": x.u.shape[-1]}
    if max(widths.values()) > WIDEST:
        return f"it holds widths up to {WIDEST}, got {widths}"
    return obstacle_of_machine(q)


def obstacle_of_machine(q: Tensor) -> str | None:
    """Why they cannot run where this tensor is."""
    if INSTALLED is None:
        return "the package triton is not installed"
    if INSTALLED < OLDEST:
        return "it needs Triton {}.{} or later, got {}.{}".format(*OLDEST, *INSTALLED)
    if q.is_cuda and (least := shared_memory(q)) < LEAST_SHARED:
        return f"its tiles need {LEAST_SHARED} bytes of shared memory for a program, got {least} on {q.device}"
    if not q.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it needs CUDA tensors (or TRITON_INTERPRET=1 in the environment, to debug), got device {q.device}"
    return None


def obstacle_to_pairs(x: RelationalInputs) -> str | None:
    """The same of the kernels that form relations once for all heads."""
    against = obstacle(x)
    if against is not None:
        return against
    (_, heads, _, width), (n_relations, p) = x.q.shape, x.u.shape[2:]
    if isinstance(x.symbols, RelativeSymbols):
        return "it needs shared symbols"
    if INSTALLED is None or INSTALLED < OLDEST_FOR_PAIRS:
        return "it needs Triton {}.{} or later".format(*OLDEST_FOR_PAIRS)
    if x.q.dtype == torch.float16 or (x.q.is_cuda and x.q.dtype == torch.float32):
        return f"it rounds relations, of any size, to bfloat16, which it needs, got {x.q.dtype}"
    of_head, of_relation = (max(next_power_of_2(size), narrowest_for(x.q)) for size in (width, p))
    columns = next_power_of_2(heads) * of_head, next_power_of_2(n_relations) * of_relation
    if n_relations > MOST_PAIRED or max(columns) > WIDEST_PAIRED:
        return (
            f"it holds up to {MOST_PAIRED} relations, and {WIDEST_PAIRED} columns of all heads or relations, each "
            f"padded to a power of two, got {n_relations} relations, and columns {columns}"
        )
    return None
