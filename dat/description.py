"""Description of a trained model: configuration, parameters by part, memory and arithmetic, in numbers and words."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from dual_attention.language_models import LanguageModel

from .checkpoints import Checkpoint
from .estimate import Estimate, estimate
from .estimate.result import Part
from .estimate.units import dtype_name, flops, nbytes
from .experiments import experiment_of_run
from .sweeps.experiment import SweptExperiment
from .training.experiment import AnyExperiment

_KEYS_OF_EVERY_RUN = ("experiment", "seed", "data", "optim", "loop", "machine", "output")

OPTIMISED_IN = torch.float32
"""The dtype of parameters in training."""

PARAMETERS = "parameters"
"""The heading under which numbers stand in columns."""


def describe(checkpoint: Checkpoint, dtype: torch.dtype) -> dict[str, Any]:
    """Everything that ``dat info`` says, as JSON holds it.

    Args:
        checkpoint: its model may be on the meta device, since only names and shapes of weights are read.
        dtype: of inference. Memory and arithmetic are estimated (:mod:`dat.estimate`) for one text as
            long as the context, or one image, on a GPU; where there is none, from a trace on a CPU.
    """
    model = checkpoint.model
    given = inputs_of(checkpoint)
    training = estimate(model, dtype=OPTIMISED_IN, **given)
    inference = training if dtype == OPTIMISED_IN else estimate(model, dtype=dtype, training=False, **given)
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
        "flops_per_token": {"forward": training.forward_flops_per_token, "backward": training.backward_flops_per_token},
        "part_flops_per_token": {
            name: part.forward_flops / training.tokens
            for name, part in named_parts(model, training)
            if part.forward_flops
        },
    }
    if isinstance(model, LanguageModel):
        found["context"] = model.block_size
    if checkpoint.run is not None and checkpoint.run.finished:
        result = checkpoint.run.read_result()
        kept = ("loss", "perplexity", "bits_per_byte", "accuracy", "steps", "tokens", "seconds")
        found["result"] = {name: result[name] for name in kept if name in result}
    return found


def inputs_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Inputs of the model of a run, see :func:`told_inputs`."""
    if checkpoint.run is None or isinstance(checkpoint.model, LanguageModel):
        return {}
    return told_inputs(experiment_of_run(checkpoint.run), checkpoint.config)


def told_inputs(experiment: AnyExperiment, config: Any) -> dict[str, Any]:
    """Inputs of the model of a configuration, if its experiment tells them."""
    inputs: tuple[Any, ...] = ()
    with suppress(FileNotFoundError):  # of data that are gone
        inputs = experiment.cost(config).inputs if isinstance(experiment, SweptExperiment) else ()
    return {"inputs": inputs} if inputs else {}


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
    return {
        name: {"parameters": part.parameters, "trained": part.trainable}
        for name, part in named_parts(model, costs)
        if part.parameters
    }


def named_parts(model: nn.Module, costs: Estimate) -> Iterator[tuple[str, Part]]:
    """The parts of an estimate, with names that say what is shared."""
    tied = {"embeddings": "embeddings, also the output"} if getattr(model, "tie_weights", False) else {}
    for part in costs.parts:
        yield tied.get(part.name, part.name), part


def settings(config: Any) -> dict[str, Any]:
    """The configuration of the model as nested dicts, without what is null."""
    if hasattr(config, "arguments"):
        values: dict[str, Any] = {"model": config.model, **config.arguments()}
    else:
        own = dataclasses.asdict(config)
        values = {name: own[name] for name in own if name not in _KEYS_OF_EVERY_RUN}
        values.update(values.pop("model", {}))
    return {name: value for name, value in values.items() if value is not None}


def sections_of(found: Mapping[str, Any]) -> dict[str, Sequence[Sequence[str]]]:
    """The description in words: rows by heading, each a name and what is said of it."""
    of_parts = [(part, f"{n['parameters']:,}", _frozen(n)) for part, n in found["parts"].items()]
    in_all = {"parameters": found["parameters"], "trained": found["trained_parameters"]}
    example = "one text" if "context" in found else "one input"
    of_example = f"{example} of {found['memory']['tokens']:,} tokens on a GPU"
    approximate = "" if found["memory"]["traced_on"] == "cuda" else " (approximate: traced on a CPU)"
    sections: dict[str, Sequence[Sequence[str]]] = {
        "configuration": [(name, _written(value)) for name, value in found["config"].items()],
        PARAMETERS: [*of_parts, ("in all", f"{found['parameters']:,}", _frozen(in_all))],
        f"memory, estimated for {of_example}{approximate}": _memory_rows(found),
        "arithmetic of matrix products": [
            (name, f"{flops(number)} a token") for name, number in found["flops_per_token"].items()
        ],
    }
    if "result" in found:
        sections["result"] = [(name.replace("_", " "), _written(value)) for name, value in found["result"].items()]
    return sections


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
