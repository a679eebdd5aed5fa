"""The place of ``native`` in the table until somebody asks for it. Nothing else here knows of C kernels."""

from __future__ import annotations

import importlib
import os

import torch

from .dense import reason_for_dense
from .inputs import RelationalAttentionOutput, RelationalInputs
from .table import UNSUITED, Implementation, Verdict, register_implementation

HOW = "dual_attention.native.enable()"

SWITCH = "DUAL_ATTENTION_NATIVE"
"""Environment variable; 1 enables the C kernels, which are then built when they first run."""

KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

FEWEST_SENDERS = 8192
"""Senders of one receiver from which ``impl="auto"`` takes the kernel for a step of decoding.

A token after 8,192 others came 0.99 to 1.16 times as fast with it, 1.10 in the mean; after 768 others 1.00 and 1.03.
Lengths between were not measured: see ``benchmarks/results/2026-11-26-cpu-native.md``.
"""


def _obstacle(x: RelationalInputs) -> str | None:
    return f"is not enabled: {HOW} compiles and registers it"


def _suits(x: RelationalInputs) -> Verdict:
    """Never, but the reason mentions the kernels where they would help."""
    computes = x.q.is_cpu and x.q.dtype in KERNEL_DTYPES and not x.activated and x.bias is None
    few = x.m < FEWEST_SENDERS if x.n == 1 else reason_for_dense(x, in_bfloat16=False) is not None
    if few or not computes:
        return UNSUITED
    return Verdict(False, f"{HOW} offers C kernels")


def _run(x: RelationalInputs) -> RelationalAttentionOutput:
    raise RuntimeError(f"impl='native' {_obstacle(x)}")


def register_place() -> None:
    """Say in the table how to ask for ``native``."""
    register_implementation(Implementation("native", _run, _obstacle, _suits, priority=80))


register_place()
if os.environ.get(SWITCH) == "1":
    importlib.import_module("dual_attention.native").enable_when_used()
