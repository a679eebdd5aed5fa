"""Weights of a model in a safetensors file: the same bytes for the same weights, and nothing read that does not fit.

A safetensors file is the length of its header (8 bytes), the header, JSON with dtype, shape and place of each tensor,
and their bytes. It is written here, rather than by the library of that name, part by part, in one order of names, and
with the permissions of other files. Tensors with several names are written once; the metadata names the others.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention._base.extras import require
from dual_attention._base.files import replaced_atomically
from dual_attention.checkpoints.weights import DTYPES

from .sharding import is_sharded, local, placed

SAFETENSORS = {dtype: name for name, dtype in DTYPES.items()}
"""Names of dtypes in these files."""
_ALIGNMENT = 8
"""Alignment of the header in bytes; wider dtypes come first, so that each tensor is aligned as its dtype needs."""


class Misfit(ValueError):
    """Saved state that seems whole, but is of another model or other settings than those that continue it."""


def save_weights(weights: nn.Module | Mapping[str, Tensor], path: Path) -> str:
    """Write weights to the safetensors file ``path``, atomically; tied tensors are written once.

    Args:
        weights: a model, or a state dict.

    Returns:
        The SHA-256 of the file.
    """
    state = weights.state_dict() if isinstance(weights, nn.Module) else weights
    groups = tied_names(state)
    aliases = {name: names[0] for names in groups for name in names[1:]}
    kept = {names[0]: state[names[0]].detach() for names in groups}
    order = sorted(kept, key=lambda name: (-kept[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **dict(sorted(aliases.items()))}}
    end = 0
    for name in order:
        tensor, begin = kept[name], end
        if tensor.dtype not in SAFETENSORS:
            raise TypeError(f"{name}: expected a dtype that safetensors files have, got {tensor.dtype}")
        end += tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        header[name] = {"dtype": SAFETENSORS[tensor.dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT)
    with replaced_atomically(path) as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            file.write(kept[name].cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return file.digest()


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the safetensors file ``path`` into ``model``, which is left as it was if they do not fit.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file, if it is damaged, or if names, shapes, dtypes or values are not those of weights
            of the model.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of weights")
    library = require("safetensors.torch", extra="train")
    try:
        tensors: dict[str, Tensor] = library.load_file(str(path))
    except Exception as error:  # the library has an exception of its own for files
        raise ValueError(f"{path}: damaged or incomplete ({' '.join(str(error).split())})") from error
    wanted = model.state_dict(keep_vars=True)
    for names in tied_names(wanted):
        found = next((name for name in names if name in tensors), None)
        if found is not None:
            tensors.update({name: tensors[found] for name in names if name not in tensors})
    if problems := misfits(tensors, wanted):
        raise Misfit(f"{path}: the weights do not fit {type(model).__name__}: {'; '.join(problems[:8])}")
    check_all_finite(tensors, path)
    model.load_state_dict({name: placed(tensor, wanted[name]) for name, tensor in tensors.items()})


def check_all_finite(tensors: Mapping[str, Tensor], source: object) -> None:
    """Raise ``ValueError`` naming the first tensor, whole or in parts, with a number that is not finite."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(local(tensor).isfinite().all()):
            raise ValueError(f"{source}: {name}: expected finite numbers, got NaN or infinity")


def tied_names(state: Mapping[str, Tensor]) -> list[list[str]]:
    """Names in a state dict, sorted, those of one tensor together; sharded ones are objects, not detached from them."""
    groups: dict[Any, list[str]] = {}
    for name, tensor in sorted(state.items()):
        if is_sharded(tensor):
            place: Any = id(tensor)
        elif tensor.numel():
            place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        else:
            place = name
        groups.setdefault(place, []).append(name)
    return list(groups.values())


def misfits(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> list[str]:
    """Sentences about each tensor that is missing, unexpected, or of another shape or dtype."""
    problems = [f"{name} is missing" for name in wanted if name not in tensors]
    for name, tensor in tensors.items():
        if name not in wanted:
            problems.append(f"{name} is unexpected")
        elif tensor.shape != wanted[name].shape:
            problems.append(f"{name}: expected shape {tuple(wanted[name].shape)}, got {tuple(tensor.shape)}")
        elif tensor.dtype != wanted[name].dtype:
            problems.append(f"{name}: expected {wanted[name].dtype}, got {tensor.dtype}")
    return problems
