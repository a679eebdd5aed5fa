"""The place of ``native`` in the table until it is enabled, and where it would help. Nothing else here knows of C."""

from __future__ import annotations

import torch

from ..checks import is_open
from .dense import FEWEST_RECEIVERS, reason_for_dense
from .inputs import RelationalAttentionOutput, RelationalInputs
from .table import UNSUITED, Implementation, Verdict, register_implementation

HOW = "dual_attention.native.enable()"

KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def gains_by_c(x: RelationalInputs) -> bool:
    """Whether C kernels make a training step a tenth faster or more, which they do with more senders than H max(d, p).

    The operation is then a large part of a model. In ``benchmarks/results/2026-11-26-cpu-native.md`` steps gain 1.08 to
    1.52 beyond that number, 1.22 in the mean, and 0.94 to 1.12 up to it, 1.03 in the mean.
    """
    fewest = x.q.shape[1] * max(x.q.shape[3], x.u.shape[3])
    return is_open(x.n(), x.m()) or (x.n() >= FEWEST_RECEIVERS and x.m() > fewest)


def _obstacle(x: RelationalInputs) -> str | None:
    return f"is not enabled: {HOW} compiles and registers it"


def _suits(x: RelationalInputs) -> Verdict:
    """Never, but the reason mentions the kernels where they would help."""
    computes = x.q.is_cpu and x.q.dtype in KERNEL_DTYPES and not x.activated() and x.bias is None
    if not computes or not gains_by_c(x) or reason_for_dense(x, in_bfloat16=False) is not None:
        return UNSUITED
    return Verdict(False, f"{HOW} offers C kernels")


def _run(x: RelationalInputs) -> RelationalAttentionOutput:
    raise RuntimeError(f"impl='native' {_obstacle(x)}")


NOT_ENABLED = Implementation("native", _run, _obstacle, _suits, priority=80, hints=True)
register_implementation(NOT_ENABLED)
