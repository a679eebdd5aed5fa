"""The place of the C kernels in the table of implementations of relational attention."""

from __future__ import annotations

import logging
from functools import cache, partial

import torch

from ..functional.activations import activation_name
from ..functional.checks import dispatches, is_exporting
from ..functional.relational.asked_for import FEWEST_SENDERS
from ..functional.relational.dense import reason_for_dense
from ..functional.relational.inputs import RelationalAttentionOutput, RelationalInputs, obstacle_to_operations
from ..functional.relational.table import UNSUITED, Implementation, Verdict
from ..functional.relational.tiles import multiplies_bfloat16
from ..functional.symbols import RelativeSymbols, symbol_table
from . import amx, kernels, step

FEW_SENDERS = f"one receiver has fewer than {FEWEST_SENDERS} senders; C gains from that many on"

LEFT = "half precision is left to this processor's matrix units"

_LOG = logging.getLogger("dual_attention.native")


def _run(x: RelationalInputs) -> RelationalAttentionOutput:
    return step.native_step(x) if step.can_step(x) else kernels.native_relational_attention(x.zeroed())


def _run_with_amx(x: RelationalInputs) -> RelationalAttentionOutput:
    return amx.amx_relational_attention(x.zeroed()) if x.q.dtype == torch.bfloat16 else _run(x)


def _obstacle(x: RelationalInputs) -> str | None:
    against = obstacle_to_operations(x)
    if against is not None:
        return against
    if x.activated:
        return f"needs relations with the activation 'identity', got {activation_name(x.rel_activation)!r}"
    if x.bias is not None:
        return "takes no bias"
    if not x.q.is_cpu or x.q.dtype not in (torch.float32, *kernels.HALVES):
        return f"computes on a CPU in float32, bfloat16 or float16, got {x.q.dtype} on {x.q.device}"
    if not (x.q.shape[-1] and symbol_table(x.symbols).shape[-1]):
        return "needs queries and symbols of some width"
    return None


def _suits(x: RelationalInputs, *, with_amx: bool = False) -> Verdict:
    if not x.q.is_cpu or is_exporting():
        return UNSUITED
    if step.can_step(x):
        if x.m < FEWEST_SENDERS:
            return Verdict(False, FEW_SENDERS)
        missing = _what_is_missing()
        return Verdict(missing is None, missing or "a C kernel reads the senders of one receiver once")
    by_amx = with_amx and x.q.dtype == torch.bfloat16
    in_c = by_amx or kernels.suits(x.q.dtype)
    if reason_for_dense(x, in_bfloat16=multiplies_bfloat16(x.u) and not in_c) is not None:
        return UNSUITED
    against = _obstacle(x) or (None if in_c else LEFT) or _reservation(x) or _what_is_missing()
    if against is not None:
        return Verdict(False, against)
    form = ", by AMX" if by_amx else "" if x.q.dtype == torch.float32 else ", in float32"
    return Verdict(True, "there are too many weights to build all at once, and C kernels are enabled" + form)


def _reservation(x: RelationalInputs) -> str | None:
    """Why not to take the kernels although they could compute this; None if they suit."""
    if torch.compiler.is_compiling():
        return None
    if dispatches():
        return "someone sees every operation, to count or imitate it"
    room = kernels.threads_with_room(x.q, x.k, x.u, symbol_table(x.symbols), isinstance(x.symbols, RelativeSymbols))
    return None if 2 * room >= _usual_threads() else "its threads would need too much memory for sums"


def _what_is_missing() -> str | None:
    """Why the libraries cannot be had, which matters where they are built when they are first used; or None."""
    for library in (step.LIBRARY, kernels.LIBRARY):
        found = library.find()
        if isinstance(found, str):
            return _told(f"the C kernels cannot be had: {found}")
    return None


# As torch.compiler.assume_constant_result does it, which imports the compiler for that.
vars(_what_is_missing)["_dynamo_marked_constant"] = True


@cache
def _told(reason: str) -> str:
    """The reason itself, which is logged once."""
    _LOG.warning("relational attention is left to PyTorch: %s", reason)
    return reason


@cache
def _usual_threads() -> int:
    """Threads that PyTorch had at the first call, a number that never changes.

    A block that is computed again in the backward pass must choose as before: other implementations draw other dropout.
    """
    return torch.get_num_threads()


NATIVE = Implementation("native", _run, _obstacle, _suits, priority=80, takes_padded=True)

NATIVE_WITH_AMX = NATIVE._replace(run=_run_with_amx, suits=partial(_suits, with_amx=True))
"""The same with :mod:`.amx` for bfloat16."""
