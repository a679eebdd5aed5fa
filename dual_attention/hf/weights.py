"""Weights of a checkpoint: read, with names as this library has them, and fitted to a model.

Files keep a tensor with several names once. safetensors holds it under one of them, and its metadata, or the model that
is to be filled, knows the others: in published checkpoints the token embedding is the output matrix, the symbol
retriever of all layers is that of the first, and with symmetric relations ``wk_rel`` is ``wq_rel``.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor, nn

from .files import CheckpointFiles

__all__ = ["Weights", "fit_state_dict", "load_weights", "read_weights", "shared_names"]

# Names of files, as they are looked for in turn. An index says which of several files has which tensor.
_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


class Weights(NamedTuple):
    """What files of weights hold.

    Attributes:
        tensors: by name, each under one name at least.
        aliases: further name -> name in ``tensors``, as far as the files tell.
    """

    tensors: dict[str, Tensor]
    aliases: dict[str, str]


def load_weights(files: CheckpointFiles) -> Weights:
    """The weights of a checkpoint, from safetensors if it has them.

    Raises:
        FileNotFoundError: if it has none.
        ValueError: as :func:`read_weights`.
        OSError: if the hub cannot be reached.
    """
    for name in _FILES:
        path = files.find_cached(name)
        if path is None:
            continue
        if not name.endswith(".index.json"):
            return read_weights(path)
        shards = sorted(set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()))
        parts = [read_weights(shard) for shard in map(files.find, shards) if shard is not None]
        if len(parts) < len(shards):
            raise FileNotFoundError(f"{files.name}: {name} names {len(shards)} files, only {len(parts)} are there")
        return Weights(
            {name: tensor for part in parts for name, tensor in part.tensors.items()},
            {name: kept for part in parts for name, kept in part.aliases.items()},
        )
    files.find(_FILES[0])  # says so if it is the hub that cannot be reached
    raise FileNotFoundError(f"{files.name}: has no weights, neither of {', '.join(_FILES)}")


def read_weights(path: str | Path) -> Weights:
    """The weights in one file: safetensors, or what ``torch.save`` wrote, if it holds nothing but data.

    A training checkpoint, with the weights beside the state of an optimiser, will do as well. Prefixes that
    ``torch.compile`` and ``DistributedDataParallel`` put before names are taken away.

    Raises:
        ValueError: if the file is damaged, holds no weights, or is a pickle that would run code when it is read.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="pt") as file:
                names = list(file.keys())
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in names}
        except Exception as error:  # safetensors has an exception of its own, which it does not export for reading
            raise ValueError(f"{path}: cannot be read as safetensors ({error})") from error
        aliases = {clean_name(name): clean_name(kept) for name, kept in metadata.items() if kept in tensors}
        return Weights({clean_name(name): tensor for name, tensor in tensors.items()}, aliases)
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path}: refused, since it holds more than data: to read it would run code. Convert it where it comes "
            "from, with safetensors or torch.save(model.state_dict(), ...)"
        ) from error
    except (RuntimeError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read by torch.load ({error})") from error
    tensors = _state_dict_in(saved)
    if tensors is None:
        raise ValueError(f"{path}: expected a state dict, or a dict with one in it")
    return Weights({clean_name(name): tensor for name, tensor in tensors.items()}, {})


def clean_name(name: str) -> str:
    """The name of a parameter without what wrappers of a model put into it."""
    return name.replace("_orig_mod.", "").removeprefix("module.")


def _state_dict_in(saved: Any) -> Mapping[str, Tensor] | None:
    """The state dict that was saved, or the only one among the entries of a training checkpoint."""

    def is_state_dict(value: Any) -> bool:
        return isinstance(value, Mapping) and bool(value) and all(isinstance(part, Tensor) for part in value.values())

    if is_state_dict(saved):
        return saved
    found = [value for value in saved.values() if is_state_dict(value)] if isinstance(saved, Mapping) else []
    return found[0] if len(found) == 1 else None


def shared_names(model: nn.Module) -> list[list[str]]:
    """The names in the state dict of a model, those of one tensor together."""
    groups: dict[int, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


def fit_state_dict(model: nn.Module, weights: Weights, *, source: str, strict: bool = True) -> dict[str, Tensor]:
    """A state dict for a model, with all its names.

    Args:
        source: where the weights come from, for messages.
        strict: False leaves out what the model does not have, and keeps what the weights lack as it is.

    Raises:
        ValueError: if weights are missing, there are others, or some have another shape, all of which the message
            names; or if two differ that are one in the model.
    """
    wanted = model.state_dict(keep_vars=True)
    tensors = dict(weights.tensors)
    for name, kept in weights.aliases.items():
        if name in wanted and kept in tensors:
            tensors.setdefault(name, tensors[kept])
    problems: list[str] = []
    for names in shared_names(model):
        there = [name for name in names if name in tensors]
        if not there:
            continue
        first = tensors[there[0]]
        differing = [name for name in there[1:] if not _same(first, tensors[name])]
        if differing:
            problems.append(f"of different values, though the model has one: {_listed([there[0], *differing])}")
        tensors.update((name, first) for name in names if name not in tensors)

    missing = [name for name in wanted if name not in tensors]
    unexpected = [name for name in tensors if name not in wanted]
    misshapen = [
        f"{name} {tuple(tensors[name].shape)}, expected {tuple(parameter.shape)}"
        for name, parameter in wanted.items()
        if name in tensors and tensors[name].shape != parameter.shape
    ]
    if strict and missing:
        problems.append(f"missing: {_listed(missing)}")
    if strict and unexpected:
        problems.append(f"unexpected: {_listed(unexpected)}")
    if misshapen:
        problems.append(f"of another shape: {_listed(misshapen)}")
    if problems:
        raise ValueError(f"{source}: the weights do not fit {type(model).__name__}. " + "; ".join(problems))
    return {name: tensors[name] for name in wanted if name in tensors}


def _same(first: Tensor, second: Tensor) -> bool:
    return first is second or (first.shape == second.shape and torch.equal(first, second))


def _listed(names: list[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
