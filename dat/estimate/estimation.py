"""Costs of a model, measured by running it on fake tensors."""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, get_args

import torch
from torch import nn

from dual_attention import CacheGroup, ContextCache, TokenCache

from .inputs import Example, InputSizes
from .models import resolve_model
from .parts import CHECKPOINTS
from .result import Device, Estimate, Part
from .tracing import Implementation, Run, TracedCall
from .units import DTYPES, dtype_name

NO_GPU = (
    "No GPU here: traced with the kernels of a CPU. Parameters, gradients, AdamW, caches and the least",
    "arithmetic hold for CUDA. Arithmetic as run, activations and transient memory are approximate:",
    "CUDA's kernels keep other tensors (of dropout, for instance), and others may be chosen.",
)
IN_AUTOCAST = torch.bfloat16, torch.float16


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
    """Estimate parameters, arithmetic and memory of a model by running a copy of it on fake tensors.

    What is counted, :mod:`dat.estimate` says. The model itself is neither run nor changed.

    Args:
        model: a module, of the library or not; a configuration with a method ``build``; the name of a preset; or a
            mapping of ``model``, the name of a model class of the library, and its arguments.
        batch: sequences, or images.
        length: tokens of a sequence, by default the context length; images have their own.
        context_length: tokens of the source of an encoder-decoder model, by default ``length``.
        dtype: of matrix products and activations; by default that of the parameters.
        param_dtype: of parameters, their gradients and the optimiser's state; by default ``dtype`` or else the model's.
            Where the two differ, products run under autocast, in bfloat16 or float16.
        device: ``"cuda"`` or ``"cpu"``, whose kernels run. Those of CUDA can be traced only where there is a GPU;
            elsewhere those of a CPU are, and :attr:`Estimate.notes` says what is approximate then.
        training: forward and backward; otherwise only the forward pass.
        impl: of relational attention: ``"auto"``, what the layers choose; ``"dense"``, ``"linear"`` or ``"triton"``.
        checkpointing: each block keeps only its inputs and is computed again in the backward pass; by default what the
            model's ``gradient_checkpointing`` says, if it has that.
        fused_loss: the loss of a language model is computed without holding all logits, as the library's own loop does;
            by default where it can be.
        inputs: the arguments of the call instead of ``batch`` and ``length``, for a module that is no model of the
            library: a tensor, a tuple of arguments or a dict of them. Values do not matter; a tensor that requires
            gradients is the output of earlier layers. The backward pass begins with gradients of all its results.
        name: of the model in reports; by default its class or its own name.

    Raises:
        ValueError: for a size, name or dtype that is wrong, an implementation that cannot compute the call, or a model
            whose forward pass depends on the values of tensors.
    """
    _check(batch=batch, length=length, context_length=context_length)
    for argument, value, choices in (("device", device, Device), ("impl", impl, Implementation)):
        if value not in get_args(choices):
            raise ValueError(f"{argument}: expected one of {', '.join(get_args(choices))}, got {value!r}")
    known, module = resolve_model(model)
    products, stored = _dtypes(module, dtype, param_dtype)
    if checkpointing is None:
        checkpointing = any(getattr(part, "gradient_checkpointing", False) is True for part in module.modules())
    checkpointing = checkpointing and training
    traced_on: Device = "cuda" if device == "cuda" and torch.cuda.is_available() else "cpu"
    sizes = InputSizes(batch, length, context_length, stored, traced_on)
    run = Run(module, sizes, products, impl, checkpointing, fused_loss, inputs)
    evaluated = run.trace(training=False)
    trained = run.trace(training=True) if training else None
    return _estimate_of(run, known if name is None else name, device, evaluated, trained)


def _estimate_of(run: Run, name: str, device: Device, evaluated: TracedCall, trained: TracedCall | None) -> Estimate:
    """The estimate that follows from a forward pass without gradients and, if there is one, a training step."""
    seen, call = trained or evaluated, evaluated.call
    parts = tuple(_parts(seen))
    kept = sum(part.activation_bytes for part in parts) + seen.kept.casts - seen.kept.inputs
    floors = getattr(evaluated.model, "least_beside_plain", None)
    cached, context_cached = _caches(evaluated.model, call, run.dtype)
    return Estimate(
        model=name,
        batch=call.batch,
        length=call.length,
        context_length=call.context_length,
        dtype=run.dtype,
        param_dtype=run.sizes.dtype,
        device=device,
        training=trained is not None,
        checkpointing=run.checkpointing,
        parts=parts,
        parameter_tensors=sum(parameter.requires_grad for parameter in evaluated.model.parameters()),
        cast_bytes=seen.kept.casts,
        transient_bytes=0 if trained is None else max(0, trained.meter.peak - kept),
        inference_bytes=evaluated.meter.peak,
        cached=cached,
        context_cached=context_cached,
        traced_on=run.sizes.device,
        notes=NO_GPU if device != run.sizes.device else (),
        beside_plain=None if floors is None else floors(call.length),
    )


def _dtypes(
    module: nn.Module, dtype: torch.dtype | str | None, param_dtype: torch.dtype | str | None
) -> tuple[torch.dtype, torch.dtype]:
    """The dtypes of products and of parameters."""
    own = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    products = None if dtype is None else _dtype("dtype", dtype)
    stored = products or own if param_dtype is None else _dtype("param_dtype", param_dtype)
    products = products or stored
    if products != stored and products not in IN_AUTOCAST:
        expected = " or ".join(map(dtype_name, (*IN_AUTOCAST, stored)))
        raise ValueError(f"dtype: expected {expected} with parameters in the latter, got {products}")
    return products, stored


def _dtype(name: str, value: torch.dtype | str) -> torch.dtype:
    dtype = DTYPES.get(value) if isinstance(value, str) else value
    if dtype is None or dtype not in DTYPES.values():
        raise ValueError(f"{name}: expected one of {', '.join(DTYPES)}, got {value!r}")
    return dtype


def _check(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ValueError(f"{name}: expected a positive integer, got {size!r}")


def _parts(seen: TracedCall) -> Iterator[Part]:
    """Figures by part, in the order in which the parts are first met."""
    meter, kept = seen.meter, dict(seen.kept.by_part)
    for part, nbytes in ((CHECKPOINTS, seen.kept.otherwise), ("recomputed block", meter.recomputed)):
        if nbytes:
            kept[part] = kept.get(part, 0) + nbytes
    for name in dict.fromkeys((*meter.parts, *seen.parameters, *meter.forward, *meter.backward, *kept)):
        figures = (of.get(name, 0) for of in (meter.forward, meter.backward, meter.least, kept))
        part = Part(name, *seen.parameters.get(name, (0, 0)), *figures)
        if part.parameters or part.forward_flops or part.backward_flops or part.activation_bytes:
            yield part


def _caches(model: nn.Module, call: Example, dtype: torch.dtype) -> tuple[tuple[tuple[int, int | None], ...], int]:
    """Bytes that decoding keeps of an example: for each layer those of a token and a window; and of the context."""
    is_causal = call.kwargs.get("is_causal", getattr(model, "is_causal", getattr(model, "causal", True)))
    new_cache = getattr(model, "new_cache", None)
    if new_cache is None or not is_causal:
        return (), 0
    try:
        caches: list[Any] = [new_cache()]
    except ValueError:  # symbols that depend on later objects cannot be continued
        return (), 0
    cached: list[tuple[int, int | None]] = []
    of_context = 0
    while caches:
        cache = caches.pop(0)
        if isinstance(cache, CacheGroup):
            caches.extend(cache.caches.values())
        elif isinstance(cache, ContextCache):
            of_context += sum(prod(shape) for shape in cache.shapes.values()) * dtype.itemsize
        elif isinstance(cache, TokenCache) and cache.numbers_per_token:
            cached.append((cache.bytes_per_token(dtype), cache.window))
    return tuple(cached), of_context
