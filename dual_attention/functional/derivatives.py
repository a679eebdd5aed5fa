"""Derivatives that fast operations lack: forward ones, those by ``torch.func``, and second ones.

A fast operation has one derivative, taken backwards. Its plain form, made of operations that autograd knows, has them
all, and builds all weights. It stands in for the operation where derivatives are taken in other ways, and for its
backward pass where that is to be differentiated again (``create_graph=True``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .checks import are_taken_otherwise, in_transform

Plain = Callable[..., tuple[Tensor, ...]]
"""Plain form of an operation, a function of its inputs."""


def needs_plain(*tensors: Tensor | None) -> bool:
    """Whether derivatives may be taken forwards, or by ``torch.func``, for which only plain operations will do."""
    if not are_taken_otherwise():
        return False
    if in_transform() or torch.compiler.is_compiling():
        return True
    return any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors)


def is_traced() -> bool:
    """Whether code is being compiled, exported or traced."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def differentiable_again(result: Tensor, plain: Plain, *inputs: Tensor | None) -> Tensor:
    """The result of a fast operation, whose backward pass can be differentiated, through the plain form.

    A backward pass without a graph is that of the operation. Compiled or traced code has no second derivatives.
    """
    if is_traced() or not result.requires_grad:
        return result
    return _DifferentiableAgain.apply(plain, result, *inputs)


def gradients_with_graph(
    plain: Plain, inputs: Sequence[Tensor | None], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Gradients of the inputs of a plain form, from those of its results, with a graph that leads to both."""
    with torch.enable_grad():
        inputs = [None if x is None else x.view_as(x) for x in inputs]  # one tensor may serve as two of them
        pairs = zip(plain(*inputs), grads, strict=True)
        known = [(result, grad) for result, grad in pairs if grad is not None and result.requires_grad]
        results, of_results = zip(*known, strict=True)
        leaves = [x for x in inputs if x is not None and x.requires_grad]
        found = iter(torch.autograd.grad(results, leaves, of_results, create_graph=True, allow_unused=True))
    return [next(found) if x is not None and x.requires_grad else None for x in inputs]


class _DifferentiableAgain(torch.autograd.Function):
    """The identity on a result. Its backward pass goes on to the operation, or past it, by the plain form."""

    @staticmethod
    def forward(ctx: Any, plain: Plain, result: Tensor, *inputs: Tensor | None) -> Tensor:
        ctx.plain = plain
        ctx.autocast = _autocast_of(result.device.type)
        ctx.save_for_backward(*inputs)
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled():
            return None, *grads, *[None] * len(ctx.saved_tensors)
        with torch.autocast(**ctx.autocast):
            return None, None, *gradients_with_graph(ctx.plain, ctx.saved_tensors, grads)


def _autocast_of(kind: str) -> dict[str, Any]:
    """Arguments with which :class:`torch.autocast` restores its present state on a kind of device."""
    kind = "cpu" if kind == "meta" else kind  # meta has none of its own
    return {"device_type": kind, "dtype": torch.get_autocast_dtype(kind), "enabled": torch.is_autocast_enabled(kind)}
