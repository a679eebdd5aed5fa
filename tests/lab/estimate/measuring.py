"""Real runs that estimates are held against: arithmetic, tensors that autograd keeps, bytes that are allocated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from dat.estimate import counter_formulas
from dual_attention.functional import free_workspace, losses
from tests.support.combinations import pairwise


def in_pairs(**options: Sequence[Any]) -> pytest.MarkDecorator:
    """Parameters of a test in which every pair of values of two options occurs."""
    chosen = [tuple(values.values()) for values in pairwise(options)]
    return pytest.mark.parametrize(tuple(options), chosen)


@dataclass
class Measured:
    forward: int
    backward: int
    saved: int


class Loss(nn.Module):
    """A model and its loss, so that the parameters are known."""

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, *args: Any) -> Tensor:
        return self.loss(self.model, *args)


def summed(model: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
    """The sum of what a module returns."""
    output = model(*args, **kwargs)
    return (output if isinstance(output, Tensor) else output[0]).sum()


def measure(model: nn.Module, loss: Callable[..., Tensor], *, leave_out: tuple[Tensor, ...] = ()) -> Measured:
    """Matrix products of both passes, and bytes of the tensors kept between them, each storage once.

    Args:
        loss: of the model, its only argument.
        leave_out: tensors that are not counted, as parameters and buffers are not.
    """
    owned = {storage(tensor) for tensor in (*model.parameters(), *model.buffers(), *leave_out)}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if storage(tensor) not in owned:
            kept[storage(tensor)] = tensor
        return tensor

    with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as counter:
        early, make = [], losses.output_layer_gradients

        def made(*args: Any) -> Any:
            """Gradients that a loss makes in the forward pass."""
            before = counter.get_total_flops()
            found = make(*args)
            early.append(counter.get_total_flops() - before)
            return found

        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        with hooks, patch.object(losses, "output_layer_gradients", made):
            value = loss(model)
        forward = counter.get_total_flops() - sum(early)
        value.backward()
        backward = counter.get_total_flops() - forward
    return Measured(forward, backward, sum(tensor.untyped_storage().nbytes() for tensor in kept.values()))


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def peak(function: Callable[[], Any]) -> int:
    """Most bytes allocated at a time while a function runs, beyond those before it; what is kept between calls too."""
    free_workspace()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = function()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    del result
    return most
