"""The place of the fused kernels in the table of implementations; imports no Triton."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..relational.dense import FEWEST_RECEIVERS
from ..relational.inputs import RelationalAttentionOutput, RelationalInputs
from ..relational.table import Implementation, Verdict, register_implementation
from . import support


def _run(x: RelationalInputs) -> RelationalAttentionOutput:
    from .operation import fused_relational_attention  # imports Triton, which most users need not have

    return fused_relational_attention(x)


def _refused(obstacle: Callable[[RelationalInputs], str | None], x: RelationalInputs) -> str | None:
    if x.needs_plain():
        return "has no derivatives by torch.func, and no forward ones: they need impl='dense'"
    against = obstacle(x)
    return None if against is None else f"cannot compute this: {against}; impl='auto' takes another implementation"


def _suits(x: RelationalInputs) -> Verdict:
    if x.pattern.offset and x.n() < FEWEST_RECEIVERS:
        return Verdict(False, "in a step of decoding its programs share the senders, which is not timed yet")
    against = support.obstacle(x)
    if against is not None:
        return Verdict(False, against)
    return Verdict(True, "fused kernels suit bfloat16 and float16 on CUDA")


def _run_pairs(x: RelationalInputs) -> RelationalAttentionOutput:
    from .pairs_operation import relational_attention_by_pairs

    return relational_attention_by_pairs(x)


register_implementation(Implementation("triton", _run, partial(_refused, support.obstacle), _suits, 100, fused=True))
register_implementation(Implementation("pairs", _run_pairs, partial(_refused, support.obstacle_to_pairs)))
