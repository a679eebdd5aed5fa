"""C kernels for relational attention, which the lab enables on CPUs; the library does so only when it is asked to."""

import os
import sys
from collections.abc import Callable

from torch import nn

from dual_attention import native
from dual_attention.native.building import SWITCH
from dual_attention.relational_attention import RelationalAttention

from ._terminal import tell

ENABLED = f"C kernels for relational attention on this CPU ({SWITCH}=0 turns them off)"


def use_native(model: nn.Module, say: Callable[[], bool] = lambda: sys.stderr.isatty()) -> None:
    """Enable the kernels if a model has relational heads, and is on a CPU, unless they are switched off.

    Args:
        say: whether to tell that they are enabled, or why they cannot be; asked when there is something to tell.
    """
    parameter = next(model.parameters(), None)
    if parameter is None or parameter.device.type != "cpu" or os.environ.get(SWITCH) == "0" or native.is_enabled():
        return
    if not any(isinstance(module, RelationalAttention) for module in model.modules()):
        return
    try:
        native.enable()
        told = ENABLED
    except RuntimeError as error:
        told = f"relational attention by PyTorch's operations: {error}"
    if say():
        tell(told)
