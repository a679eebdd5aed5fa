"""The place of the C kernels in the table of implementations of relational attention."""

from __future__ import annotations

from functools import cache

import torch

from ..functional.activations import activation_name
from ..functional.checks import dispatches
from ..functional.relational.asked_for import KERNEL_DTYPES, gains_by_c
from ..functional.relational.dense import reason_for_dense
from ..functional.relational.inputs import RelationalAttentionOutput, RelationalInputs, obstacle_to_operations
from ..functional.relational.table import UNSUITED, Implementation, Verdict
from ..functional.relational.tiles import multiplies_bfloat16
from ..functional.symbols import RelativeSymbols, symbol_table
from . import kernels

LEFT = "half precision is left to this processor's matrix units"

FEW_SENDERS = "with so few senders C gains less than a tenth"


def _run(x: RelationalInputs) -> RelationalAttentionOutput:
    return kernels.native_relational_attention(x.zeroed())


def _obstacle(x: RelationalInputs) -> str | None:
    against = obstacle_to_operations(x)
    if against is not None:
        return against
    if x.activated():
        return f"needs relations with the activation 'identity', got {activation_name(x.rel_activation)!r}"
    if x.bias is not None:
        return "takes no bias"
    if not x.q.is_cpu or x.q.dtype not in KERNEL_DTYPES:
        return f"computes on a CPU in float32, bfloat16 or float16, got {x.q.dtype} on {x.q.device}"
    if not (x.q.shape[-1] and symbol_table(x.symbols).shape[-1]):
        return "needs queries and symbols of some width"
    return None


def _suits(x: RelationalInputs) -> Verdict:
    if not x.q.is_cpu or torch.compiler.is_exporting():
        return UNSUITED
    in_c = kernels.suits(x.q.dtype)
    if reason_for_dense(x, in_bfloat16=multiplies_bfloat16(x.u) and not in_c) is not None:
        return UNSUITED
    against = _obstacle(x) or (None if in_c else LEFT) or (None if gains_by_c(x) else FEW_SENDERS) or _reservation(x)
    if against is not None:
        return Verdict(False, against)
    form = "" if x.q.dtype == torch.float32 else ", in float32"
    return Verdict(True, "there are too many weights to build all at once, and C kernels are enabled" + form)


def _reservation(x: RelationalInputs) -> str | None:
    """Why not to take the kernels although they could compute this; None if they suit."""
    if torch.compiler.is_compiling():
        return None
    if dispatches():
        return "someone sees every operation, to count or imitate it"
    room = kernels.threads_with_room(x.q, x.k, x.u, symbol_table(x.symbols), isinstance(x.symbols, RelativeSymbols))
    return None if 2 * room >= _usual_threads() else "its threads would need too much memory for sums"


@cache
def _usual_threads() -> int:
    """Threads that PyTorch had at the first call, a number that never changes.

    A block that is computed again in the backward pass must choose as before: other implementations draw other dropout.
    """
    return torch.get_num_threads()


NATIVE = Implementation("native", _run, _obstacle, _suits, priority=80, takes_padded=True)
