"""Functions as operations of PyTorch, which compilers call as one instead of looking inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

NAMESPACE = "dual_attention"

Function = Callable[..., Any]

_LIBRARIES: dict[str, torch.library.Library] = {}
"""What holds each operation, by its name."""


def without_gradient(name: str, schema: str, like: Function) -> Callable[[Function], Function]:
    """Register a function of tensors on a CPU, which has no gradient and returns new tensors.

    ``torch.library.custom_op`` looks for gradients and shared memory at each call. That takes some 30 µs, about as long
    as the product of one row with 512 x 512 weights.

    Args:
        name: of the operation.
        schema: its arguments and results, in the language of ``torch.library``.
        like: empty results, from the same arguments.
    """

    def register(function: Function) -> Function:
        operation = f"{NAMESPACE}::{name}"

        def call(*arguments: Any) -> Any:
            tensors = [x for x in arguments if isinstance(x, Tensor)]
            if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
                raise RuntimeError(f"{operation}: has no gradient, and an argument requires one")
            return function(*arguments)

        if name in _LIBRARIES:  # the module is loaded again
            _LIBRARIES.pop(name)._destroy()
        library = _LIBRARIES[name] = torch.library.Library(NAMESPACE, "FRAGMENT")
        library.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
        library.impl(name, call, "CPU")
        torch.library.register_fake(operation, like, lib=library)
        return getattr(getattr(torch.ops, NAMESPACE), name).default

    return register
