"""What a model costs: parameters, arithmetic, memory and time, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import nn

from . import attention, baselines, basic, cross, relational, symbols  # noqa: F401 (register their formulas)
from .flops import Flops
from .inputs import Example, example, logits_of
from .memory import Kept, cast_bytes, inference_peak, kept, training_peak
from .models import resolve_model
from .registry import Device, Implementation, Setting, storage_bytes
from .result import Estimate, Part
from .walk import Walk, meta_copy, walk
from .watcher import tensors_in

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
"""Names of dtypes."""


def estimate(
    model: nn.Module | str | Mapping[str, Any] | Any,
    *,
    batch: int = 1,
    length: int | None = None,
    context_length: int | None = None,
    dtype: torch.dtype | str | None = None,
    param_dtype: torch.dtype | str | None = None,
    device: Device = "cuda",
    training: bool = True,
    impl: Implementation = "auto",
    checkpointing: bool | None = None,
    fused_loss: bool | None = None,
    inputs: Any = None,
    name: str | None = None,
) -> Estimate:
    """Estimate parameters, arithmetic and memory of a model from closed formulas.

    Matrix products are counted, a multiply-add as two operations; elementwise work, norms and softmax are not. Of
    memory, tensors are counted, not what an allocator adds. The model itself is neither run nor changed.

    Args:
        model: a module; a configuration with a method ``build``; the name of a preset; or a mapping of ``model``, the
            name of a model class of the library, and its arguments.
        batch: sequences, or images.
        length: tokens of a sequence, by default the context length; images have their own.
        context_length: tokens of the source of an encoder-decoder model, by default ``length``.
        dtype: of matrix products and activations; by default that of the parameters.
        param_dtype: of parameters, their gradients and the optimiser's state; by default ``dtype`` or else the model's.
            Where the two differ, products run under autocast.
        device: ``"cuda"`` or ``"cpu"``: decides which kernels run and what they keep.
        training: forward and backward; otherwise the forward pass alone.
        impl: of relational attention: ``"auto"``, what the layers choose; ``"dense"``, ``"linear"`` or ``"triton"``.
        checkpointing: each block keeps its inputs alone and is computed again in the backward pass; by default what the
            model's ``gradient_checkpointing`` says, if it has that.
        fused_loss: the loss of a language model is computed without holding all logits, as the library's own loop does;
            by default where it can be.
        inputs: the arguments of the call instead of ``batch`` and ``length``, for a module that is no model of the
            library: a tensor, a tuple of arguments or a dict of them. Values do not matter.
        name: of the model in reports; by default what it is called anyway.

    Raises:
        ValueError: for a size, name or dtype that is wrong, or a part of the model that has no formula (see
            :func:`.register`).
    """
    _check(batch=batch, length=length, context_length=context_length)
    for argument, value, choices in (("device", device, Device), ("impl", impl, Implementation)):
        if value not in get_args(choices):
            raise ValueError(f"{argument}: expected one of {', '.join(get_args(choices))}, got {value!r}")
    known, module = resolve_model(model)
    stored = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    products = _dtype("dtype", dtype) if dtype is not None else None
    stored = _dtype("param_dtype", param_dtype) if param_dtype is not None else products or stored
    products = products or stored
    if checkpointing is None:
        checkpointing = any(getattr(part, "gradient_checkpointing", False) is True for part in module.modules())

    def look(training: bool) -> tuple[Walk, Setting, Example]:
        setting = Setting(products, stored, device, training, impl)
        copy = meta_copy(module, stored, training)
        call = example(copy, setting, batch, length, context_length, inputs, fused_loss)
        loss = call.loss if training else None
        again = checkpointing and training
        seen = walk(copy, call.args, call.kwargs, setting, checkpointing=again, loss=loss, kept=call.kept)
        return seen, setting, call

    seen, setting, call = look(training)
    evaluated, _, evaluation = look(False) if training else (seen, setting, call)
    if call.logits_again:
        loss_takes_output(seen)
    saved = kept(seen)
    loss_bytes = call.loss_bytes(logits_of(seen.output), setting) if training else 0
    peak = training_peak(seen, saved, loss_bytes) if training else 0
    return Estimate(
        model=known if name is None else name,
        batch=call.batch,
        length=call.length,
        context_length=call.context_length,
        dtype=products,
        param_dtype=stored,
        device=device,
        training=training,
        checkpointing=checkpointing and training,
        parts=_parts(seen, saved),
        parameter_tensors=sum(p.requires_grad for p in seen.model.parameters()),
        cast_bytes=cast_bytes(seen.visits, products),
        transient_bytes=max(0, peak - saved.total),
        inference_bytes=inference_peak(evaluated, tensors_in(evaluation.args, evaluation.kwargs)),
        cached=tuple(item for visit in evaluated.visits for item in visit.cached),
        context_cached=sum(visit.context_cached for visit in evaluated.visits),
    )


def _dtype(name: str, value: torch.dtype | str) -> torch.dtype:
    dtype = DTYPES.get(value) if isinstance(value, str) else value
    if dtype is None or dtype not in DTYPES.values():
        raise ValueError(f"{name}: expected one of {', '.join(DTYPES)}, got {value!r}")
    return dtype


def _check(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ValueError(f"{name}: expected a positive integer, got {size!r}")


def loss_takes_output(walk: Walk) -> None:
    """Describe an output layer that is computed within the loss.

    It keeps its argument as it is, its logits are computed again in the backward pass, its gradients within the loss.
    """
    for visit in walk.visits:
        if visit.part == "output":
            hidden = visit.held[-1]
            visit.saved, visit.casts, visit.gradients = [(hidden, storage_bytes(hidden))], [], 0
            visit.flops += Flops(0, visit.flops.forward, 0)


def _parts(walk: Walk, saved: Kept) -> tuple[Part, ...]:
    """Figures added up by heading, in the order in which the parts come."""
    flops: dict[str, Flops] = {}
    nbytes: dict[str, int] = {}
    for place, visit in enumerate(walk.visits):
        flops[visit.part] = flops.get(visit.part, Flops()) + visit.flops
        nbytes[visit.part] = nbytes.get(visit.part, 0) + saved.at(place)
    for part, again in recomputed(walk).items():
        flops[part] += Flops(0, again, 0)
    parameters = parameters_by_part(walk)
    names = [name for name in (*flops, *parameters) if name in parameters or flops[name].forward or nbytes[name]]
    return tuple(
        Part(
            name,
            *parameters.get(name, (0, 0)),
            flops.get(name, Flops()).forward,
            flops.get(name, Flops()).backward,
            flops.get(name, Flops()).least,
            nbytes.get(name, 0),
        )
        for name in dict.fromkeys(names)
    )


def parameters_by_part(walk: Walk) -> dict[str, tuple[int, int]]:
    """Numbers of parameters, and of those that learn, by heading."""
    counts: dict[str, tuple[int, int]] = {}
    seen: set[int] = set()
    for module in walk.model.modules():
        part = walk.part_of[id(module)]
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                all_, learning = counts.get(part, (0, 0))
                counts[part] = all_ + parameter.numel(), learning + parameter.numel() * parameter.requires_grad
    return counts


def recomputed(walk: Walk) -> dict[str, int]:
    """Forward arithmetic of checkpointed blocks that the backward pass repeats, by heading.

    Recomputing a block ends with the last tensor that is kept, so a product after it is spared.
    """
    again: dict[str, int] = {}
    spared: dict[int, tuple[str, int]] = {}
    for visit in walk.visits:
        if visit.block is None:
            continue
        again[visit.part] = again.get(visit.part, 0) + visit.flops.forward
        if visit.saved or visit.flops.forward:
            spared[visit.block] = (visit.part, visit.tail)
    for part, tail in spared.values():
        again[part] -= tail
    return again
