"""The place of the fused kernels in the table of implementations; imports no Triton."""

from __future__ import annotations

from ..relational.dense import FEWEST_RECEIVERS
from ..relational.inputs import RelationalAttentionOutput, RelationalInputs
from ..relational.table import Implementation, Verdict, register_implementation
from . import support


def _run(x: RelationalInputs) -> RelationalAttentionOutput:
    from .operation import fused_relational_attention  # imports Triton, which most users need not have

    return fused_relational_attention(x)


def _obstacle(x: RelationalInputs) -> str | None:
    if x.needs_plain():
        return "has no derivatives by torch.func, and no forward ones: they need impl='dense'"
    against = support.obstacle(x)
    return None if against is None else f"cannot compute this: {against}"


def _suits(x: RelationalInputs) -> Verdict:
    if x.pattern.offset and x.n() < FEWEST_RECEIVERS:
        return Verdict(False, "in a step of decoding one program for each head would walk all senders")
    against = support.obstacle(x)
    if against is not None:
        return Verdict(False, against)
    return Verdict(True, "fused kernels suit bfloat16 and float16 on CUDA")


register_implementation(Implementation("triton", _run, _obstacle, _suits, priority=100, fused=True))
