"""A model that begins with the weights of another one, of the same widths; data, optimiser and steps begin anew."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention.checkpoints.weights import Weights, shared_names

from .objective import PREFIX
from .run_folder import RunFolder
from .saved_weights import load_by_name, weights_of_run
from .sharding import local, placed, whole_tensor
from .weights_file import Misfit, check_all_finite

KEY = "loop.weights_from"
OF_TOKENS = ("token_embedder.weight", "final_out.weight", "final_out.bias")
"""Ends of names of tensors with a row for each token. A model may have more tokens, whose rows stay as drawn."""
OF_POSITIONS = ("positional_embedder.weight", "symbol_library.weight")
"""Ends of names of tensors with a row for each position. A model may have more positions, or only the first ones."""


def weights_named(name: str, *, meta: bool = False) -> Weights:
    """The weights of a run, one of its checkpoints, a folder or a name on the hub; the average, if there is one.

    Args:
        meta: only shapes and dtypes, as tensors on the meta device.

    Raises:
        FileNotFoundError, OSError, TypeError, ValueError: naming the key, if there are none, or they cannot be read.
    """
    try:
        run, checkpoint = RunFolder.at(name)
        if run.config.is_file():
            return weights_of_run(run, checkpoint, meta=meta)[0]
        loaded = load_by_name(name, device="meta" if meta else "cpu")
        return Weights(loaded.model.state_dict(), {}, loaded.files)
    except (OSError, TypeError, ValueError) as error:
        raise type(error)(f"{KEY}: {error}") from error


def rows_taken(model: nn.Module, weights: Weights) -> dict[str, tuple[Tensor, int | None]]:
    """The tensors that a model takes, each under one of its names, and of how many rows; None: all of its own.

    Raises:
        ValueError: naming each tensor that one of the two lacks, or that has another shape, with both shapes.
    """
    tensors = {**weights.tensors, **{name: weights.tensors[kept] for name, kept in weights.aliases.items()}}
    wanted = model.state_dict(keep_vars=True)
    taken: dict[str, tuple[Tensor, int | None]] = {}
    problems = [f"{name} is not in {type(model).__name__}" for name in tensors if name not in wanted]
    for names in shared_names(model):
        name = next((name for name in names if name in tensors), None)
        if name is None and names[0].startswith(PREFIX):
            continue  # it stays as drawn
        if name is None:
            problems.append(f"{names[0]} is missing")
            continue
        value, own = tensors[name], wanted[name]
        others = [other for other in names if other in tensors and not value.is_meta]
        if any(not torch.equal(value, tensors[other]) for other in others):
            problems.append(f"{' and '.join(others)} differ, and are one tensor in {type(model).__name__}")
            continue
        n, m = (shape[0] if (shape := tuple(tensor.shape)) else 0 for tensor in (value, own))
        by_row = value.shape[1:] == own.shape[1:] and (
            name.endswith(OF_POSITIONS) or (name.endswith(OF_TOKENS) and m >= n)
        )
        if value.shape == own.shape:
            taken[name] = value, None
        elif by_row:
            taken[name] = value, min(n, m)
        else:
            problems.append(f"{name}: expected shape {tuple(own.shape)}, got {tuple(value.shape)}")
    if problems:
        raise Misfit(f"{KEY}: the weights do not fit: {'; '.join(problems[:8])}")
    return taken


@torch.no_grad()
def take_weights(model: nn.Module, weights: Weights) -> None:
    """Put weights into a model, whole or sharded; all processes that have parts of it do so at once.

    Raises:
        ValueError: as :func:`rows_taken`, or naming a tensor with numbers that are not finite.
    """
    wanted: Mapping[str, Any] = model.state_dict(keep_vars=True)
    taken = rows_taken(model, weights)
    check_all_finite({name: value for name, (value, _) in taken.items()}, KEY)
    for name, (value, rows) in taken.items():
        own = wanted[name].detach()
        value = value.to(own.device, own.dtype)
        if rows is not None:
            whole = whole_tensor(own).clone()
            whole[:rows] = value[:rows]
            value = whole
        local(own).copy_(local(placed(value, own)))


def source_run(name: str) -> Path | None:
    """The folder of the run whose weights have this name; None if it is none's."""
    try:
        run, _ = RunFolder.at(name)
    except FileNotFoundError:  # which reading them says
        return None
    return run.path if run.config.is_file() else None
