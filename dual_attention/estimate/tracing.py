"""Runs of a module on fake tensors: no computation and no memory, however large the model or the batch."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from .. import relational_attention as layers
from ..functional import RelativeSymbols
from ..transformer_blocks import Block
from .inputs import Example
from .meter import Kept, Meter
from .parts import parameter_counts

Implementation = Literal["auto", "dense", "linear", "triton"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Trace:
    """One run; ``parameters`` are numbers of them and of those that learn, by part."""

    meter: Meter
    kept: Kept
    parameters: dict[str, tuple[int, int]]


def on_fake_tensors(function: Callable[[], Result]) -> Result:
    """Call a function under a ``FakeTensorMode``.

    It has a thread of its own, whose settings (gradients, autocast) are the defaults, and whose workspaces, which
    operations keep between calls, end with it.
    """

    def call() -> Result:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return function()

    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(call).result()
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise ValueError(f"model: its forward pass depends on the values of tensors ({error.func})") from error
    except UnsupportedOperatorException as error:
        raise ValueError(f"model: {error.func} has no rule for the shapes of its results (register_fake)") from error


def fake_copy(model: nn.Module, dtype: torch.dtype, device: str, *, training: bool, checkpointing: bool) -> nn.Module:
    """A copy with fake parameters and buffers; what is shared stays shared, and no hooks of the owner are left.

    With ``checkpointing``, models that can checkpoint their steps do so; otherwise every block of the library.
    """
    model = getattr(model, "_orig_mod", model)  # compiled
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        kind = dtype if parameter.is_floating_point() else parameter.dtype
        like = torch.empty_strided(parameter.shape, parameter.stride(), dtype=kind, device=device)
        memo[id(parameter)] = nn.Parameter(like, requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = torch.empty_strided(buffer.shape, buffer.stride(), dtype=buffer.dtype, device=device)
    copied = copy.deepcopy(model, memo).train(training)
    can = [module for module in copied.modules() if isinstance(getattr(module, "gradient_checkpointing", None), bool)]
    for module in can:
        module.__dict__["gradient_checkpointing"] = checkpointing
    for module in copied.modules():  # the owner's hooks expect tensors that hold something
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
        if checkpointing and not can and isinstance(module, Block):
            module.__dict__["forward"] = functools.partial(checkpoint, module.forward, use_reentrant=False)
    return copied


def trace(
    model: nn.Module, call: Example, dtype: torch.dtype, impl: Implementation, *, training: bool, checkpointing: bool
) -> Trace:
    """Run a model from :func:`fake_copy`, forward and if ``training`` backward, in ``dtype`` under autocast."""
    meter = Meter()
    meter.attach(model, own_products="output" if call.fuses_loss else None, checkpointing=checkpointing)
    meter.ignore(_tensors_in((call.args, call.kwargs)))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if training:
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
            meter.ignore([parameter.grad])
    stored = next((p for p in model.parameters() if p.is_floating_point()), None)
    autocast = nullcontext()
    if stored is not None and stored.dtype != dtype:
        autocast = torch.autocast(stored.device.type, dtype=dtype)
    hooks = torch.autograd.graph.saved_tensors_hooks(meter.keep, lambda tensor: tensor)
    with _implementation(impl), meter:
        with autocast, torch.set_grad_enabled(training), hooks:
            output = model(*call.args, **call.kwargs)
            if not training:
                return Trace(meter, Kept(), parameter_counts(model, meter.part_of))
            roots = output if call.loss is None else call.loss(output)
            del output
            roots = [tensor for tensor in _tensors_in(roots) if tensor.requires_grad]
            kept = meter.kept(leave_out=roots)
        meter.is_backward = True
        if roots:
            torch.autograd.backward(roots, [torch.ones_like(tensor) for tensor in roots])
    return Trace(meter, kept, parameter_counts(model, meter.part_of))


@contextmanager
def _implementation(impl: Implementation) -> Iterator[None]:
    """Let all layers compute relational attention in one way; not for several threads at once."""
    if impl == "auto":
        yield
        return
    operation = layers.relational_attention
    layers.relational_attention = functools.partial(operation, impl=impl)
    try:
        yield
    finally:
        layers.relational_attention = operation


def _tensors_in(value: Any) -> list[Tensor]:
    """All tensors among arguments or results."""
    leaves = (leaf.library if isinstance(leaf, RelativeSymbols) else leaf for leaf in tree_leaves(value))
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]
