"""C kernels for relational attention, which the lab enables on CPUs; the library does so only when it is asked to."""

from __future__ import annotations

import os
import sys

import torch
from torch import nn

from dual_attention import native
from dual_attention._layers.relational_heads import RelationalHeads

SWITCH = "DUAL_ATTENTION_NATIVE"
ENABLED = f"C kernels for relational attention on this CPU ({SWITCH}=0 turns them off)"


def use_native(model: nn.Module, *, quiet: bool = False) -> None:
    """Enable the kernels if a model has relational heads, and is on a CPU."""
    parameter = next(model.parameters(), None)
    if parameter is None or parameter.device.type != "cpu":
        return
    if any(isinstance(module, RelationalHeads) for module in model.modules()):
        enable_native(quiet=quiet)


def use_native_in_grid(device: str, *, quiet: bool = False) -> None:
    """Enable the kernels, so that they are built before the processes of a grid begin, if these train on CPUs."""
    if device == "cpu" or not torch.cuda.is_available():
        enable_native(quiet=quiet)


def enable_native(*, quiet: bool = False) -> None:
    """Enable the kernels unless they are switched off, and say so in a line; or why they cannot be had."""
    if native.is_enabled() or os.environ.get(SWITCH) == "0":
        return
    try:
        native.enable()
        said = ENABLED
    except RuntimeError as error:
        said = f"relational attention by PyTorch's operations: {error}"
    if not quiet:
        print(f"dat: {said}", file=sys.stderr)
