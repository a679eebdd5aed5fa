"""When a check may look at the values of a tensor."""

from __future__ import annotations

import torch
from torch import Tensor


def is_readable(x: Tensor) -> bool:
    """Whether the values of ``x`` can be looked at without waiting for a device or breaking a graph.

    True for plain tensors on the CPU, unless they are being compiled or exported. Checks of shapes and dtypes need no
    leave; those of values do, and where they get none the operation itself must fail on a wrong value, as lookups do.
    """
    return not torch.compiler.is_compiling() and x.device.type == "cpu" and type(x) is Tensor
