"""``dat info``: a trained model, from its configuration and the names and shapes of its weights only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn

from .._files import json_text
from .._words import printable
from ..checkpoints import CHECKPOINT, Checkpoint, open_checkpoint
from ..estimate import Estimate, estimate
from ..estimate.units import DTYPES, aligned, dtype_name, flops, nbytes
from ..language_models import LanguageModel
from ..training.config_io import option_parser, parse_options

DTypeName = Literal["float32", "bfloat16", "float16", "float64"]
_KEYS_OF_EVERY_RUN = ("experiment", "seed", "data", "optim", "loop", "machine", "output")

OPTIMISED_IN = torch.float32
"""The dtype of parameters in training."""


def describe(checkpoint: Checkpoint, dtype: torch.dtype) -> dict[str, Any]:
    """Everything that ``dat info`` says, as JSON holds it.

    Args:
        dtype: of inference. Memory and arithmetic are estimated (:mod:`dual_attention.estimate`) for one text as
            long as the context, or one image, on a GPU; where there is none, from a trace on a CPU.
    """
    model = checkpoint.model
    training = estimate(model, dtype=OPTIMISED_IN)
    inference = training if dtype == OPTIMISED_IN else estimate(model, dtype=dtype, training=False)
    found: dict[str, Any] = {
        "checkpoint": checkpoint.source,
        "kind": checkpoint.kind,
        "state": checkpoint.state or None,
        "model": type(model).__name__,
        "config": settings(checkpoint.config),
        "parameters": training.parameters,
        "trained_parameters": training.trainable_parameters,
        "parts": parameters_by_part(model, training),
        "weights": {
            "files": [str(file) for file in checkpoint.files],
            "bytes": sum(file.stat().st_size for file in checkpoint.files),
            "dtype": dtype_name(checkpoint.weights_dtype),
        },
        "memory": memory(inference, training),
        "flops_per_token": {
            "forward": training.forward_flops_per_token,
            "backward": training.backward_flops_per_token,
        },
    }
    if isinstance(model, LanguageModel):
        found["context"] = model.block_size
    if checkpoint.run is not None and checkpoint.run.finished:
        result = checkpoint.run.read_result()
        kept = ("loss", "perplexity", "bits_per_byte", "accuracy", "steps", "tokens", "seconds")
        found["result"] = {name: result[name] for name in kept if name in result}
    return found


def memory(inference: Estimate, training: Estimate) -> dict[str, Any]:
    """Bytes that inference and training need; a cache only where decoding keeps one."""
    found: dict[str, Any] = {
        "dtype": dtype_name(inference.dtype),
        "tokens": inference.length,
        "traced_on": inference.traced_on,
        "weights": inference.parameter_bytes,
        "activations": inference.inference_bytes,
    }
    if inference.cached:
        found["cache"] = inference.cache_bytes()
    found["training"] = {
        "dtype": dtype_name(training.dtype),
        "weights": training.parameter_bytes,
        "gradients": training.gradient_bytes,
        "optimizer": training.optimizer_bytes,
        "activations": training.activation_bytes + training.transient_bytes,
        "in_all": training.training_bytes,
    }
    return found


def parameters_by_part(model: nn.Module, costs: Estimate) -> dict[str, dict[str, int]]:
    """Parameters of each part, and how many of them are trained; shared ones count once, where they come first."""
    tied = {"embeddings": "embeddings, also the output"} if getattr(model, "tie_weights", False) else {}
    return {
        tied.get(part.name, part.name): {"parameters": part.parameters, "trained": part.trainable}
        for part in costs.parts
        if part.parameters
    }


def settings(config: Any) -> dict[str, Any]:
    """The configuration of the model as nested dicts, without what is null."""
    if hasattr(config, "arguments"):
        values: dict[str, Any] = {"model": config.model, **config.arguments()}
    else:
        own = dataclasses.asdict(config)
        values = {name: own[name] for name in own if name not in _KEYS_OF_EVERY_RUN}
        values.update(values.pop("model", {}))
    return {name: value for name, value in values.items() if value is not None}


def report(found: Mapping[str, Any]) -> str:
    """The description in lines for a terminal."""
    of_parts = [(part, f"{n['parameters']:,}", _frozen(n)) for part, n in found["parts"].items()]
    in_all = {"parameters": found["parameters"], "trained": found["trained_parameters"]}
    example = "one text" if "context" in found else "one input"
    of_example = f"{example} of {found['memory']['tokens']:,} tokens on a GPU"
    approximate = "" if found["memory"]["traced_on"] == "cuda" else " (approximate: traced on a CPU)"
    sections = {
        "configuration": aligned([(name, _written(value)) for name, value in found["config"].items()]),
        "parameters": aligned([*of_parts, ("in all", f"{found['parameters']:,}", _frozen(in_all))], right=[1]),
        f"memory, estimated for {of_example}{approximate}": aligned(_memory_rows(found)),
        "arithmetic of matrix products": aligned(
            [(name, f"{flops(number)} a token") for name, number in found["flops_per_token"].items()]
        ),
    }
    if "result" in found:
        figures = [(name.replace("_", " "), _written(value)) for name, value in found["result"].items()]
        sections["result"] = aligned(figures)
    state = f" ({found['state']})" if found["state"] else ""
    lines = [f"{found['checkpoint']}: {found['model']}, {found['kind']}{state}"]
    for heading, rows in sections.items():
        lines += ["", heading, *(f"  {row}" for row in rows)]
    return "\n".join(lines)


def _memory_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    needed, stored, training = found["memory"], found["weights"], found["memory"]["training"]
    files = "file of weights" if len(stored["files"]) == 1 else "files of weights"
    of_step = _sizes(training, weights="weights", gradients="gradients", optimizer="AdamW", activations="activations")
    return [
        (files, f"{nbytes(stored['bytes'])}, {stored['dtype']}"),
        (f"inference, {needed['dtype']}", _sizes(needed, weights="weights", activations="activations", cache="cache")),
        (f"training, {training['dtype']}", f"{nbytes(training['in_all'])}: {of_step}"),
    ]


def _sizes(found: Mapping[str, Any], **names: str) -> str:
    return ", ".join(f"{name} {nbytes(found[key])}" for key, name in names.items() if key in found)


def _frozen(numbers: Mapping[str, int]) -> str:
    frozen = numbers["parameters"] - numbers["trained"]
    return f"of them {frozen:,} frozen" if frozen else ""


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_written(part)}" for name, part in value.items() if part is not None)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def info(prog: str, arguments: Sequence[str]) -> int:
    """``dat info``."""
    parser = option_parser(
        prog=prog,
        description="Say what a trained model is: its configuration, parameters by part, and estimates of memory and "
        "arithmetic (`dat estimate` takes other sizes). Its weights are not read, only their names and shapes, which "
        "are checked.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help=CHECKPOINT)
    parser.add_argument("--dtype", type=DTypeName, help="Of inference; by default that of the weights.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parse_options(parser, arguments)
    checkpoint = open_checkpoint(options.checkpoint, device="meta")
    found = describe(checkpoint, DTYPES[options.dtype] if options.dtype else checkpoint.weights_dtype)
    print(json_text(found, indent=2) if options.json else printable(report(found)))
    return 0
