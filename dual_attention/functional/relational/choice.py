"""Choice of an implementation of relational attention, by measured rules, with its reason; and its run.

``impl="auto"`` takes ``dense`` under transforms of ``torch.func`` and forward derivatives, which need plain operations,
and in a program for ONNX or from ``torch.jit.trace``, which runs where operations of this library are not known. Else
it takes the first of the :mod:`.table` that suits:

1. ``triton`` on CUDA in bfloat16 and float16, where the kernels can run, but not for a step of decoding;
2. ``native`` on a CPU, if it is enabled, in place of ``linear`` for many senders (:func:`.asked_for.gains_by_c`);
3. ``dense`` if maps are asked for, if there are few pairs (:data:`.dense.LARGEST_DENSE`), or if relative symbols have
   about a row for each pair;
4. ``sdpa`` on CUDA in bfloat16 and float16, without a mask or with the causal one, for which SDPA has fused kernels;
5. ``linear``, and ``blockwise`` for activated relations.

Where ``torch.export`` or a compiler leaves lengths open, one graph must serve all: ``linear``, and ``dense`` for
activated relations. Choices on a GPU are not tuned: on one H100 ``sdpa`` was faster than ``triton`` from 8,192 tokens
on, with half as much memory again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from ..checks import are_taken_otherwise, leaves_pytorch
from ..reference import Observe
from .inputs import RelationalAttentionOutput, RelationalInputs
from .table import IMPLEMENTATIONS, Choice, Implementation

_LOG = logging.getLogger("dual_attention.functional.relational")


def run_chosen(x: RelationalInputs, impl: str = "auto", observe: Observe | None = None) -> RelationalAttentionOutput:
    """Relational attention of inputs that have been checked, by the implementation that is chosen or named."""
    if observe is not None:
        return _observed(impl)(x.zeroed(), observe)
    told = not torch.compiler.is_compiling() and _LOG.isEnabledFor(logging.DEBUG)
    choice = choose(x, impl, told=told)
    if told:
        _LOG.debug("%s (q %s, %d senders)", choice, tuple(x.q.shape), x.m())
    implementation = IMPLEMENTATIONS[choice.name]
    if x.pattern.padding is not None and not implementation.takes_padded:
        x = x.zeroed()
    return implementation.run(x)


def _observed(impl: str) -> Callable[..., RelationalAttentionOutput]:
    """The run of an implementation whose steps can be observed."""
    implementation = IMPLEMENTATIONS.get("dense" if impl == "auto" else impl)
    if implementation is None or not implementation.observed:
        raise ValueError(f"impl: expected 'auto', 'dense' or 'reference' for an observer, got {impl!r}")
    return implementation.run


def choose(x: RelationalInputs, impl: str = "auto", *, told: bool = True) -> Choice:
    """The implementation of a call; ``ValueError`` for one that is unknown or cannot compute it.

    Args:
        told: whether somebody reads the reason; otherwise those that only hint are not asked.
    """
    if impl != "auto":
        return _named(x, impl)
    if leaves_pytorch():
        return Choice("dense", "operations of this library are not known where ONNX or a trace runs")
    if are_taken_otherwise() and x.needs_plain():
        return Choice("dense", "derivatives by torch.func, and forward ones, need plain operations")
    passed_over, fused = "", prefers_fused(x.q)
    for name, candidate in IMPLEMENTATIONS.items():
        if (candidate.fused and not fused) or (candidate.hints and not told):
            continue
        verdict = candidate.suits(x)
        if verdict.suits:
            return Choice(name, verdict.why + passed_over)
        if verdict.why:
            passed_over += f" (not {name}: {verdict.why})"
    raise AssertionError("linear or blockwise serves every call")


def prefers_fused(q: Tensor) -> bool:
    """Whether fused kernels are taken where they can run: on CUDA in bfloat16 and float16, which matrix units multiply.

    Exact float32 matmuls are no faster in Triton than in PyTorch.
    """
    return q.is_cuda and q.dtype in (torch.bfloat16, torch.float16)


def _named(x: RelationalInputs, impl: str) -> Choice:
    """The implementation that was asked for, or ``ValueError``."""
    if impl not in IMPLEMENTATIONS:
        raise ValueError(f"impl: expected one of auto, {', '.join(IMPLEMENTATIONS)}, got {impl!r}")
    named: Implementation = IMPLEMENTATIONS[impl]
    refusal = named.obstacle(x)
    if refusal is not None:
        raise ValueError(f"impl={impl!r} {refusal}")
    return named.instead(x) or Choice(impl, f"impl={impl!r} was asked for")
