"""Checks shared by several operations, and conditions under which they may look at values or sizes."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from numbers import Real
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.torch_version import TorchVersion

MaybeNone: TypeAlias = Any
"""None beside a type, which only the caller can rule out. A type checker lets both uses pass, as in typeshed."""


HALVES = (torch.bfloat16, torch.float16)
"""Types that are too narrow for the scores of a softmax."""


def is_readable(x: Tensor) -> bool:
    """Whether the values of ``x`` can be looked at without waiting for a device or breaking a graph.

    True for plain tensors on the CPU, unless they are being compiled, exported or mapped over by ``torch.func``. Shapes
    and dtypes may be checked anywhere; where values may not, the operation itself must fail on a wrong one, as lookups
    do.
    """
    return not torch.compiler.is_compiling() and x.device.type == "cpu" and type(x) is Tensor and not in_transform()


def in_transform() -> bool:
    """Whether a transform of ``torch.func``, such as ``vmap`` or ``jvp``, is at work."""
    return torch._C._are_functorch_transforms_active()


def are_taken_otherwise() -> bool:
    """Whether derivatives are being taken forwards, or by ``torch.func``."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def dispatches() -> bool:
    """Whether someone sees every operation, to count or imitate it."""
    return torch._C._len_torch_dispatch_stack() > 0


def saves_launches(x: Tensor) -> bool:
    """Whether operations on ``x`` wait for launches: anywhere but on a CPU."""
    return not x.is_cpu


def fake_mode() -> Any:
    """The mode in which tensors are fake, with a shape and no numbers; None outside of one."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)


def check_tensor(name: str, x: Any) -> None:
    """Raise ``TypeError`` unless ``x`` is a tensor that holds all of its numbers, not a list or a sparse one."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if x.layout != torch.strided:
        raise TypeError(f"{name}: expected a dense tensor, got one of layout {x.layout}")


def check_floating(name: str, x: Any) -> None:
    """Raise ``TypeError`` unless ``x`` is a floating-point tensor."""
    if not isinstance(x, Tensor) or x.layout != torch.strided:
        check_tensor(name, x)
    if not x.is_floating_point():
        raise TypeError(f"{name}: expected a floating-point tensor, got dtype {x.dtype}")


def check_floating_tensors(**tensors: Tensor) -> None:
    """:func:`check_floating` of each tensor by its name."""
    for name, tensor in tensors.items():
        check_floating(name, tensor)


def check_like(name: str, x: Tensor, layer: nn.Module | None) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless a layer can take the floating-point tensor ``x``.

    Its device and, unless under autocast, its dtype must be those of the layer's weight.
    """
    weight = getattr(layer, "weight", None)
    # Layers that took the place of linear ones may hold other types (quantised) or nothing yet (offloaded).
    if not isinstance(weight, Tensor) or not weight.is_floating_point() or _is_fetched(layer, weight):
        check_floating(name, x)
        return
    if weight.is_meta and not x.is_meta:
        raise ValueError(f"{name}: the parameters on meta have no values; .to_empty() and a state dict give them some")
    if x.device != weight.device:
        raise ValueError(f"{name}: expected a tensor on {weight.device} as the parameters, got one on {x.device}")
    if is_autocast(x):
        check_floating(name, x)
    elif x.dtype != weight.dtype:
        raise TypeError(f"{name}: expected dtype {weight.dtype} as the parameters, got {x.dtype}")


def _is_fetched(layer: nn.Module | None, weight: Tensor) -> bool:
    """Whether something fetches the weight when the layer is called: a hook, or another ``forward``."""
    if not weight.is_meta or layer is None:
        return False
    return bool(layer._forward_pre_hooks) or "forward" in vars(layer)


def check_rows(name: str, x: Any) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``x`` is a floating-point tensor ``(..., length, width)``."""
    check_floating(name, x)
    if x.dim() < 2:
        raise ValueError(f"{name}: expected shape (..., length, width), got {tuple(x.shape)}")


def is_number(x: Any) -> bool:
    """Whether ``x`` is a real number; a boolean is not."""
    return isinstance(x, Real) and not isinstance(x, bool)


LARGEST = 1 << 1023
"""An integer that a float holds; twice as much, none does."""


def check_finite(**numbers: float) -> None:
    """Raise ``TypeError`` or ``ValueError`` for the first that is not a finite number."""
    for name, number in numbers.items():
        if not is_number(number):
            raise TypeError(f"{name}: expected a number, got {number!r}")
        if not abs(number) < math.inf:  # which compilers can ask of a number that they leave open, too
            raise ValueError(f"{name}: expected a finite number, got {number}")
        if isinstance(number, int) and not -LARGEST <= number <= LARGEST:
            raise ValueError(
                f"{name}: expected a number that floats hold, got an integer of {number.bit_length():,} bits"
            )


def require_rate(name: str, value: float) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless a number is positive and finite."""
    check_finite(**{name: value})
    if not value > 0:
        raise ValueError(f"{name}: expected a positive number, got {value}")


def check_dropout(name: str, rate: float) -> float:
    """The rate itself; ``TypeError`` unless it is a number, ``ValueError`` outside [0, 1)."""
    if not is_number(rate):
        raise TypeError(f"{name}: expected a rate in [0, 1), got {rate!r}")
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"{name}: expected a rate in [0, 1), got {rate}")
    return rate


def check_axes(**tensors: tuple[Tensor, int]) -> None:
    """Raise ``TypeError`` or ``ValueError`` for the first that is no tensor with the number of axes beside it."""
    for name, (tensor, axes) in tensors.items():
        check_tensor(name, tensor)
        if tensor.dim() != axes:
            raise ValueError(f"{name}: expected {axes} axes, got shape {tuple(tensor.shape)}")


def check_same_device(**tensors: Tensor | None) -> None:
    """Raise ``ValueError`` for the first tensor on another device than the first; None is skipped."""
    first = device = None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            check_tensor(name, tensor)
        if device is None:
            first, device = name, tensor.device
        elif tensor.device != device:
            raise ValueError(f"{name}: expected a tensor on {device} as {first}, got one on {tensor.device}")


def check_same_dtype(**tensors: Tensor) -> None:
    """Raise ``TypeError`` for the first tensor of another type than the first, which must be floating point."""
    first, like = next(iter(tensors.items()))
    check_floating(first, like)
    dtype = like.dtype
    for name, tensor in tensors.items():
        if tensor.dtype != dtype:
            raise TypeError(f"{name}: expected dtype {dtype} as {first}, got {tensor.dtype}")


def check_broadcast(name: str, x: Tensor, like: Tensor) -> None:
    """Raise ``ValueError`` unless ``x`` broadcasts to the shape of another tensor."""
    have, want = tuple(x.shape), tuple(like.shape)
    last = want[max(len(want) - len(have), 0) :]
    if len(have) > len(want) or [a for a, b in zip(have, last, strict=True) if a not in (1, b)]:
        raise ValueError(f"{name}: expected a shape that broadcasts to {want}, got {have}")


def check_shapes(q: Tensor, /, **expected: tuple[Any, tuple[int, ...]]) -> None:
    """Raise ``ValueError`` for the first tensor without the shape given beside it, which follows from the queries'."""
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name}: expected shape {shape} beside q of {tuple(q.shape)}, got {tuple(tensor.shape)}")


def check_key_heads(heads: int, groups: int) -> None:
    """Raise ``ValueError`` unless each key/value head serves as many query heads as the others."""
    if not groups or heads % groups:
        raise ValueError(f"k: {groups} key/value heads do not divide {heads} query heads")


def is_autocast(x: Tensor) -> bool:
    """Whether autocast casts products of tensors like ``x`` to one type."""
    kind = x.device.type  # meta has no autocast; torch 2.7 cannot trace is_autocast_available
    return kind != "meta" and torch.is_autocast_enabled(kind)


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """A context in which products of tensors like ``x`` keep their types."""
    return torch.autocast(x.device.type, enabled=False) if is_autocast(x) else nullcontext()


def leaves_pytorch() -> bool:
    """Whether a program is being made that runs without this library's operations: ONNX, or a trace."""
    tracing = torch._C._get_tracing_state() is not None
    return tracing or (torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export())


KNOWS_ALL_SIZES = TorchVersion(torch.__version__) >= "2.9"
"""True if compiled code may ask what holds for all sizes; PyTorch 2.8 cannot compile the comparison."""


def is_certain(condition: bool) -> bool:
    """Whether a condition on sizes holds; for a compiler that leaves them open, whether it holds for all of them.

    What is only faster is chosen by it, so that no graph is compiled again for the other choice.
    """
    if not torch.compiler.is_compiling() or not KNOWS_ALL_SIZES:
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def is_open(*lengths: int) -> bool:
    """Whether an export leaves lengths open: a choice must then serve all of them, and may not depend on them."""
    for length in lengths:  # noqa: SIM110 (a generator is one more call)
        if isinstance(length, torch.SymInt):
            return True
    return False
