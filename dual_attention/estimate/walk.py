"""One forward pass of a model on the meta device: which modules are called, with which shapes.

Nothing is computed and no memory is taken, however large the model or the input. A module with a formula describes its
call. What happens between such modules is looked at as it happens: tensors that it keeps for the backward pass are
counted, and a matrix product is an error, since no formula would count it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .registry import Setting
from .watcher import Guard, Visit, Watcher


@dataclass
class Walk:
    """What a forward pass showed.

    Attributes:
        model: the copy on the meta device.
        visits: in order of their calls; the loss comes last.
        part_of: heading for each module, by the module's identity.
        output: of the model.
    """

    model: nn.Module
    visits: list[Visit]
    part_of: dict[int, str]
    output: Any


def meta_copy(model: nn.Module, dtype: torch.dtype, training: bool) -> nn.Module:
    """A copy whose parameters and buffers have shapes and no memory; what is shared stays shared."""
    model = getattr(model, "_orig_mod", model)  # compiled
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        like = torch.empty_like(parameter, device="meta", dtype=dtype)
        memo[id(parameter)] = nn.Parameter(like, requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    copied = copy.deepcopy(model, memo).train(training)
    for module in copied.modules():  # the owner's hooks expect tensors that hold something
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
        if getattr(module, "gradient_checkpointing", False) is True:
            module.__dict__["gradient_checkpointing"] = False  # the walk sees to it
    return copied


def walk(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    *,
    checkpointing: bool = False,
    loss: Callable[[Any], Tensor] | None = None,
    kept: Iterable[Tensor] = (),
) -> Walk:
    """Call a model on the meta device with these arguments, and see what it does.

    Args:
        model: from :func:`meta_copy`.
        checkpointing: every block of the library is checkpointed, or every step of a model that can do so itself.
        loss: of the model's output, taken at the end.
        kept: tensors that a loss which is not taken here keeps for the backward pass.

    Raises:
        ValueError: if a module with parameters has no formula, or a matrix product happens outside of formulas.
    """
    watcher = Watcher(setting, checkpointing)
    with ExitStack() as stack:
        stack.callback(watcher.detach)
        watcher.attach(model)
        stack.enter_context(torch.set_grad_enabled(setting.training))
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(watcher.keep, lambda tensor: tensor))
        stack.enter_context(Guard(watcher))
        output = model(*args, **kwargs)
        watcher.begin_loss()
        if loss is not None:
            loss(output)
        if setting.training:
            for tensor in kept:
                watcher.keep(tensor)
    return Walk(model, watcher.visits, watcher.part_of, output)
