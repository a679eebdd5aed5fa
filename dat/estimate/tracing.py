"""Runs of a module on fake tensors: no computation and no memory, however large the model or the batch."""

import copy
import functools
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils.checkpoint import checkpoint

from dual_attention.functional import losses
from dual_attention.functional.relational import choice
from dual_attention.transformer_blocks import Block

from .inputs import Example, InputSizes, example
from .meter import Kept, Meter, tensors_in
from .parts import parameter_counts

Implementation = Literal["auto", "dense", "linear", "triton"]


@dataclass(frozen=True)
class TracedCall:
    """One run of ``model``, a copy; ``parameters`` counts all parameters and those that learn, by part."""

    model: nn.Module
    call: Example
    meter: Meter
    kept: Kept
    parameters: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Run:
    """A run on fake tensors; attributes as :func:`.estimate` takes them."""

    module: nn.Module
    sizes: InputSizes
    dtype: torch.dtype
    impl: Implementation
    checkpointing: bool
    fused_loss: bool | None
    inputs: Any

    def trace(self, *, training: bool) -> TracedCall:
        """Run a copy of the module, forward and if ``training`` backward.

        It has a thread of its own, whose settings (gradients, autocast) are the defaults, and whose workspaces, which
        operations keep between calls, end with it.
        """
        try:
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(self._trace, training).result()
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise ValueError(f"model: its forward pass depends on the values of tensors ({error.func})") from error
        except UnsupportedOperatorException as error:
            raise ValueError(
                f"model: {error.func} has no rule for the shapes of its results (register_fake)"
            ) from error

    def _trace(self, training: bool) -> TracedCall:
        again = self.checkpointing and training
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = fake_copy(self.module, self.sizes, training=training, checkpointing=again)
            call = example(model, self.sizes, self.inputs)
            if self.fused_loss and call.fused_loss is None:
                raise ValueError(f"fused_loss: {type(self.module).__name__} has none")
            own_products = None
            if training and call.fused_loss is not None and self.fused_loss is not False:
                arguments = {**call.kwargs, **call.fused_loss}
                call, own_products = replace(call, kwargs=arguments, loss=lambda output: output.loss), "output"
            meter = Meter(model, own_products=own_products, checkpointing=again)
            kept = self._measure(model, call, meter, training=training)
            return TracedCall(model, call, meter, kept, parameter_counts(model, meter.part_of))

    def _measure(self, model: nn.Module, call: Example, meter: Meter, *, training: bool) -> Kept:
        """Let the meter see the call, under autocast if products have another dtype than the parameters."""
        meter.ignore(tensors_in((call.args, call.kwargs)))
        if training:
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.grad = torch.empty_like(parameter)
                    meter.ignore([parameter.grad])
        autocast = nullcontext()
        if self.sizes.dtype != self.dtype and any(p.is_floating_point() for p in model.parameters()):
            autocast = torch.autocast(self.sizes.device, dtype=self.dtype)
        hooks = torch.autograd.graph.saved_tensors_hooks(meter.keep, lambda tensor: tensor)
        chosen, at_once = choice.choose, meter.gradients_at_once(losses.output_layer_gradients)
        if self.impl != "auto":
            chosen = lambda x, _, choose=choice.choose, **told: choose(x, self.impl, **told)  # noqa: E731
        # Gradients that a loss makes at once are the backward pass's. Not for several threads at once.
        with patch.object(choice, "choose", chosen), patch.object(losses, "output_layer_gradients", at_once), meter:
            with autocast, torch.set_grad_enabled(training), hooks:
                output = model(*call.args, **call.kwargs)
                if not training:
                    return Kept()
                roots = output if call.loss is None else call.loss(output)
                del output
                roots = [tensor for tensor in tensors_in(roots) if tensor.requires_grad]
                kept = meter.kept(leave_out=roots)
            meter.is_backward = True
            if roots:
                torch.autograd.backward(roots, [torch.ones_like(tensor) for tensor in roots])
        return kept


def fake_copy(model: nn.Module, sizes: InputSizes, *, training: bool, checkpointing: bool) -> nn.Module:
    """A copy with fake parameters and buffers; what is shared stays shared, and no hooks of the owner are left.

    With ``checkpointing``, models that can checkpoint their steps do so; otherwise every block of the library.
    """
    model = getattr(model, "_orig_mod", model)  # compiled
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(sizes.like(parameter), requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = sizes.like(buffer, buffer.dtype)
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
