"""Read the golden files that `make_golden.py` wrote."""

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

HERE = Path(__file__).resolve().parent

# Values are stored in the narrowest dtype that holds them; calculations are in float64.
WIDE = {
    torch.uint8: torch.bool,
    torch.int32: torch.int64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.float64: torch.float64,
}


@dataclass(frozen=True)
class Golden:
    """One call of the published package: how to make it, and what came of it.

    Attributes:
        name: of the configuration.
        target: path of the class or function within the package.
        kwargs: constructor arguments of a class.
        state_dict: parameters and buffers of a module, under all their names.
        aliases: further name of a parameter -> the name under which `weight_grads` has it.
        inputs: tensors; those in `input_grads` are to be differentiated.
        args: argument of the call -> name of the input it takes.
        options: the other arguments of the call.
        outputs: the results, in order.
        cotangents: coefficients of the linear functional of the outputs whose gradient the golden holds.
        weight_grads: by parameter; the published gradient of a parameter that is not here is None.
        input_grads: by input.
        note: what there is to know about it.
    """

    name: str
    target: str
    kwargs: dict[str, Any]
    state_dict: dict[str, Tensor]
    aliases: dict[str, str]
    inputs: dict[str, Tensor]
    args: dict[str, str]
    options: dict[str, Any]
    outputs: dict[str, Tensor]
    cotangents: dict[str, Tensor]
    weight_grads: dict[str, Tensor]
    input_grads: dict[str, Tensor]
    note: str = field(default="")


def areas() -> list[str]:
    """Names of the golden files."""
    return sorted(path.stem for path in HERE.glob("*.safetensors"))


@functools.cache
def descriptions(area: str) -> dict[str, dict[str, Any]]:
    """The configurations of one file, by name."""
    with safe_open(HERE / f"{area}.safetensors", framework="pt") as file:
        return json.loads(file.metadata()["golden"])["configurations"]


def load(area: str, name: str) -> Golden:
    """One configuration, with fresh tensors."""
    about = descriptions(area)[name]
    with safe_open(HERE / f"{area}.safetensors", framework="pt") as file:
        stored = {
            key.removeprefix(f"{name}/"): widen(file.get_tensor(key))
            for key in file.keys()  # noqa: SIM118  (the file is not a mapping)
            if key.startswith(f"{name}/")
        }
    weights, outputs, inputs = about.get("weights", {}), about["outputs"], group(stored, "input/")
    state = unpack(stored, "weight", weights) | group(stored, "buffer/")
    aliases = about.get("aliases", {})
    input_shapes = {key: tensor.shape for key, tensor in inputs.items()}
    return Golden(
        name=name,
        target=about["target"],
        kwargs=about["kwargs"],
        state_dict=state | {alias: state[owner] for alias, owner in aliases.items()},
        aliases=aliases,
        inputs=inputs,
        args=about.get("args", {}),
        options=about.get("options", {}),
        outputs=unpack(stored, "output", outputs),
        cotangents=unpack(stored, "cotangent", {key: outputs[key] for key in about.get("loss", [])}),
        weight_grads=unpack(
            stored, "weight_grad", {key: shape for key, shape in weights.items() if key not in about.get("no_grad", [])}
        ),
        input_grads=unpack(stored, "input_grad", {key: input_shapes[key] for key in about.get("input_grads", [])}),
        note=about.get("note", ""),
    )


def widen(tensor: Tensor) -> Tensor:
    return tensor.to(WIDE[tensor.dtype])


def group(stored: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors that were stored each on its own, as inputs and buffers are."""
    return {key.removeprefix(prefix): tensor for key, tensor in stored.items() if key.startswith(prefix)}


def unpack(stored: Mapping[str, Tensor], role: str, shapes: Mapping[str, Any]) -> dict[str, Tensor]:
    """Take one flat tensor apart; it holds tensors of these shapes one after another."""
    if not shapes:
        return {}
    sizes = [math.prod(shape) for shape in shapes.values()]
    parts = stored[role].split(sizes)
    return {key: part.view(tuple(shape)).clone() for (key, shape), part in zip(shapes.items(), parts, strict=True)}
