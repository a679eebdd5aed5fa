"""Checks of what layers are given: sizes, sequences, and what a cache may keep.

Shapes: B batch, L length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor, nn

from .._base.words import suggestion
from ..functional.checks import check_dropout as check_dropout
from ..functional.checks import check_floating, check_like, check_same_device, check_tensor, is_number

LARGEST_SIZE = 100_000_000
"""Largest axis accepted. PyTorch would only report a failed allocation."""


def check_positive(**sizes: int) -> None:
    """Raise ``TypeError`` or ``ValueError`` for the first size that is not an integer from one to the largest size."""
    for name, size in sizes.items():
        if not is_number(size):
            raise TypeError(f"{name}: expected a positive number, got {size!r}")
        if isinstance(size, float) or size < 1:
            raise ValueError(f"{name}: expected a positive number{' without a fraction' * (size >= 1)}, got {size}")
        _check_largest(name, size)


def check_not_negative(**sizes: int) -> None:
    """Raise ``TypeError`` or ``ValueError`` for the first size that is not an integer from zero to the largest size."""
    for name, size in sizes.items():
        if not is_number(size) or isinstance(size, float):
            raise TypeError(f"{name}: expected zero or more, a whole number, got {size!r}")
        if size < 0:
            raise ValueError(f"{name}: expected zero or more, got {size}")
        _check_largest(name, size)


def _check_largest(name: str, size: int) -> None:
    if size > LARGEST_SIZE:
        raise ValueError(f"{name}: expected at most {LARGEST_SIZE:,}, got {size}")


def check_boolean(**flags: bool) -> None:
    """Raise ``TypeError`` for the first that is neither True nor False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name}: expected True or False, got {flag!r}")


def check_choice(name: str, value: Any, choices: Any) -> None:
    """Raise ``ValueError`` unless a value is one of several, which are listed or those of a ``Literal``."""
    known = get_args(choices) or tuple(choices)
    if value not in known:
        *others, last = map(repr, known)
        near = suggestion(value, map(str, known)) if isinstance(value, str) else ""
        raise ValueError(f"{name}: expected {', '.join(others)} or {last}, got {value!r}{near}")


def check_kind(name: str, part: Any, kind: type) -> None:
    """Raise ``TypeError`` unless a part that a module is made of is of its kind."""
    if not isinstance(part, kind):
        raise TypeError(f"{name}: expected a {kind.__name__}, got {part!r}")


def check_members(name: str, members: Any) -> None:
    """Raise ``TypeError`` unless ``members`` is a list, a tuple, or another sequence or collection of modules."""
    if not isinstance(members, Sequence | nn.ModuleList) or isinstance(members, str):
        raise TypeError(f"{name}: expected a list, got {members!r}")


LARGEST_DEPTH = 10_000
"""Layers that a model may have; more are a slip, and would be built one by one until memory is full."""


def check_depth(least: int = 1, /, **depths: int) -> None:
    """Raise ``TypeError`` or ``ValueError`` for the first number of layers that is not from ``least``, 1 or 0, to the
    largest depth.
    """
    for name, depth in depths.items():
        if is_number(depth) and depth > LARGEST_DEPTH:
            raise ValueError(f"{name}: expected at most {LARGEST_DEPTH} layers, got {depth}")
        (check_positive if least else check_not_negative)(**{name: depth})


def check_sequence(
    name: str, x: Tensor, width: int, *, batch: Sequence[int] | None = None, layer: nn.Module | None = None
) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``x`` is a sequence ``(B, L, width)``, with B one of ``batch``.

    Device and dtype must suit ``layer``, the first that takes it, see :func:`check_like`.
    """
    shaped = isinstance(x, Tensor) and x.layout == torch.strided and x.dim() == 3 and x.shape[2] == width
    if not shaped or (batch is not None and x.shape[0] not in batch):
        check_tensor(name, x)
        rows = "batch" if batch is None else " or ".join(str(b) for b in sorted(set(batch)))
        raise ValueError(f"{name}: expected shape ({rows}, length, {width}), got {tuple(x.shape)}")
    weight = None if layer is None else layer._parameters.get("weight")  # which is faster than an attribute
    if not (isinstance(weight, Tensor) and x.dtype == weight.dtype and x.device == weight.device):
        check_like(name, x, layer)
    elif not x.is_floating_point():
        check_floating(name, x)


def check_batches(**inputs: Tensor) -> None:
    """Raise ``ValueError`` unless inputs have as many examples as each other, or one."""
    sizes = [len(x) for x in inputs.values()]
    if len({*sizes} - {1}) > 1:
        raise ValueError(f"{', '.join(inputs)}: expected the same number of examples, got {sizes}")


def check_no_values(name: str, expected: str, given: Any, x: Tensor) -> None:
    """Raise ``TypeError`` if the third argument of a call is values, by the habit of (query, key, value)."""
    if isinstance(given, Tensor) and given.is_floating_point() and given.dim() == 3 and given.shape == x.shape:
        raise TypeError(
            f"{name}: expected {expected}, got a third sequence {tuple(given.shape)}; relational heads are called "
            "with objects and symbols, (x, symbols), not with (query, key, value)"
        )


def check_features(name: str, x: Tensor, width: int, layer: nn.Module | None = None) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``x`` is ``(..., width)``; layer as :func:`check_like`."""
    if not isinstance(x, Tensor) or x.layout != torch.strided:
        check_tensor(name, x)
    if not x.dim() or x.shape[-1] != width:
        raise ValueError(f"{name}: expected shape (..., {width}), got {tuple(x.shape)}")
    weight = None if layer is None else layer._parameters.get("weight")  # which is faster than an attribute
    if not (isinstance(weight, Tensor) and x.dtype == weight.dtype and x.device == weight.device):
        check_like(name, x, layer)
    elif not x.is_floating_point():
        check_floating(name, x)


def check_one_device(module: nn.Module, **given: Any) -> None:
    """Raise ``ValueError`` for the first tensor that is not on the device of a module's parameters or, without
    parameters, of the first tensor.
    """
    like = {}
    for weight in module.parameters():  # of which PyTorch 2.7 compiles no next()
        like = {} if weight.is_meta else {"parameters": weight}  # on meta, they may be offloaded
        break
    check_same_device(**like, **{name: x for name, x in given.items() if isinstance(x, Tensor)})


def check_tokens(name: str, x: Tensor) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``x`` is a tensor ``(B, L, ...)`` of examples and tokens."""
    check_tensor(name, x)
    if x.dim() < 2:
        raise ValueError(f"{name}: expected shape (batch, length, ...), got {tuple(x.shape)}")


def check_indices(indices: Tensor, batch: int | None) -> Tensor:
    """The numbers of examples as int64; ``TypeError`` or ``ValueError`` unless they are a vector below ``batch``."""
    check_tensor("indices", indices)
    if indices.is_floating_point() or indices.dtype == torch.bool:
        raise TypeError(f"indices: expected integers, got dtype {indices.dtype}")
    if indices.dim() != 1:
        raise ValueError(f"indices: expected shape (examples,), got {tuple(indices.shape)}")
    if batch is not None and indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= batch):
        raise ValueError(f"indices: expected 0 to {batch - 1}, got {indices.tolist()}")
    return indices.long()


def check_no_gradient(name: str, tensor: Tensor) -> None:
    """Raise ``ValueError`` if a tensor that a cache would keep requires gradients."""
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise ValueError(f"cache: keeps no graph, got {name} that requires gradients; call it under torch.no_grad()")


def is_offloaded(weight: Tensor, x: Tensor) -> bool:
    """Whether a weight to be read beside ``x`` has no values now, since its layer has them only while it is called."""
    return weight.is_meta and not x.is_meta


def is_integer(x: Tensor) -> bool:
    """Whether a tensor holds integers, as which booleans do not count."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def check_places(name: str, places: Tensor, batch: int, length: int) -> None:
    """Raise ``ValueError`` unless positions or segments are integers ``(batch or 1, length)``."""
    check_tensor(name, places)
    if not is_integer(places) or tuple(places.shape) not in ((batch, length), (1, length)):
        raise ValueError(
            f"{name}: expected integers {(batch, length)} or {(1, length)}, got {places.dtype} {tuple(places.shape)}"
        )


def check_padding(name: str, padding_mask: Tensor | None, batch: int, length: int, earlier: int = 0) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless a padding mask, if there is one, is boolean ``(B, t + N)``."""
    if padding_mask is None:
        return
    if not isinstance(padding_mask, Tensor) or padding_mask.dtype != torch.bool:
        got = f"dtype {padding_mask.dtype}" if isinstance(padding_mask, Tensor) else type(padding_mask).__name__
        raise TypeError(f"{name}: expected a boolean tensor (True = a real position), got {got}")
    if tuple(padding_mask.shape) != (batch, earlier + length):
        raise ValueError(
            f"{name}: expected shape (batch, length) = {(batch, earlier + length)}, "
            + (f"the {earlier} tokens in the cache included, " if earlier else "")
            + f"got {tuple(padding_mask.shape)}"
        )


def check_vectors(name: str, vectors: Tensor, dim: int, layer: nn.Module | None = None) -> None:
    """Check vectors ``(B, L, dim)``; ``TypeError`` unless they are floating point, ``ValueError`` for another shape."""
    check_tensor(name, vectors)
    if not vectors.is_floating_point():
        raise TypeError(f"{name}: expected floating-point vectors, got dtype {vectors.dtype}")
    check_sequence(name, vectors, dim, layer=layer)
