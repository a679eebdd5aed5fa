"""One weight for an embedding and the output layer, and state dicts that hold it under both names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def tie(embedding: nn.Module, output: nn.Module) -> None:
    """Let the output layer ``(vocab, d)`` have the weight of the embedding."""
    output.weight = embedding.weight


def untie(embedding: nn.Module, output: nn.Module) -> None:
    """Give the output layer a weight of its own, equal to the embedding's."""
    shared = embedding.get_parameter("weight")
    output.weight = nn.Parameter(shared.detach().clone(), requires_grad=shared.requires_grad)


def fill_tied(state_dict: dict[str, Any], names: tuple[str, str]) -> bool:
    """Let a state dict that has a tied weight under one of its names, as safetensors keeps it, have it under both.

    Returns:
        Whether the two agree; True as well if neither is there, or if their shapes differ, which torch reports.
    """
    first, second = (state_dict.get(name) for name in names)
    if first is None and second is None:
        return True
    if first is None or second is None:
        state_dict.update(dict.fromkeys(names, second if first is None else first))
        return True
    return first is second or first.shape != second.shape or torch.equal(first, second.to(first))


def differ(names: tuple[str, str]) -> str:
    """What to say of a state dict that holds two weights where the model has one."""
    first, second = names
    return (
        f"{first} and {second} differ, which tie_weights=True does not allow: build the model with tie_weights=False."
    )


def move_prefix(state_dict: dict[str, Any], old: str, new: str) -> Mapping[str, Tensor]:
    """Rename what begins with ``old``, unless it is there under the new name already; returns what was found."""
    found = {name: state_dict.pop(name) for name in list(state_dict) if name.startswith(old)}
    for name, tensor in found.items():
        state_dict.setdefault(new + name.removeprefix(old), tensor)
    return found
