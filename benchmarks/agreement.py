"""Whether two sides that are meant to compute the same do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 8e-2}
"""Largest difference that counts as agreement, by dtype; see :func:`difference`."""

SMALL = 1e-3
"""Tensors whose largest entry is below this part of the largest of their kind are measured by the latter: a gradient
that is zero but for rounding has no relative error."""


@dataclass(frozen=True)
class Difference:
    """How far results lie from expected ones.

    Attributes:
        size: largest difference relative to the largest expected entry; infinite if something is missing or not finite.
        where: name of the tensor in which it is found.
    """

    size: float
    where: str


def difference(values: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> Difference:
    """The largest difference of any tensor.

    Math: max_t  max |a_t - b_t| / max(max |b_t|, SMALL * max_t' max |b_t'|), t' over results or over gradients

    Of integers (generated tokens) it is the part that differs.
    """
    if values.keys() != expected.keys():
        return Difference(math.inf, ", ".join(sorted(values.keys() ^ expected.keys())))
    scales = {name: largest(tensor) for name, tensor in expected.items()}
    worst = Difference(0.0, "")
    for name, right in expected.items():
        left = values[name]
        if left.shape != right.shape:
            size = math.inf
        elif not right.is_floating_point():
            size = float((left != right).double().mean())
        else:
            kind = [scale for other, scale in scales.items() if is_gradient(other) == is_gradient(name)]
            distance = largest(left.double() - right.double())
            scale = max(scales[name], SMALL * max(kind))
            size = distance / scale if distance else 0.0
            size = size if math.isfinite(size) else math.inf
        if size > worst.size:
            worst = Difference(size, name)
    return worst


def is_gradient(name: str) -> bool:
    return name.startswith("gradient of ")


def largest(tensor: Tensor) -> float:
    """Largest absolute entry; zero of an empty tensor or one of integers, not a number if there is one in it."""
    if not tensor.is_floating_point() or not tensor.numel():
        return 0.0
    return float(tensor.double().abs().max())
