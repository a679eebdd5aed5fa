"""Schemas of registered operations, from named tuples of their arguments."""

from __future__ import annotations

from typing import NamedTuple, get_type_hints

from torch import Tensor

SCHEMA_TYPES = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    bool: "bool",
    float: "float",
    int: "SymInt",
    int | None: "SymInt?",
    list[int] | None: "SymInt[]?",
}
"""Types in the language of ``torch.library``."""


def op_schema(arguments: type[NamedTuple], results: int, *before: str) -> str:
    """Schema of an operation that takes the tensors ``before`` and the fields of a named tuple, and returns tensors.

    ``torch.library.custom_op`` would infer it from a signature that lists every argument again, forward and backward.
    """
    tensors = [f"Tensor {name}" for name in before]
    fields = [f"{SCHEMA_TYPES[kind]} {name}" for name, kind in get_type_hints(arguments).items()]
    return f"({', '.join(tensors + fields)}) -> ({', '.join(['Tensor'] * results)})"
