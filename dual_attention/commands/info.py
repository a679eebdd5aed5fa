"""``dat info``: what a trained model is, from its configuration and the names and shapes of its weights alone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ..checkpoints import Checkpoint, open_checkpoint
from ..language_models import LanguageModel
from ..training.config_io import option_parser, parse_options
from ..training.run_folder import RunFolder

DTypeName = Literal["float32", "bfloat16", "float16", "float64"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}

# Which part a parameter belongs to, by what its name holds; the first that fits.
_PARTS = (
    ("symbols", ("symbol_retriever",)),
    ("relational attention", (".relational_attention.", ".rel_attn.")),
    ("sensory attention", (".self_attention.", ".self_attn.")),
    ("feed-forward", (".ff_block.",)),
    ("token embedding", ("token_embedder",)),
    ("positions", ("positional_embedder", "pos_embedding", "cls_token")),
    ("patch embedding", ("patch_embedding",)),
    ("output", ("final_out", "classifier")),
    ("normalisation", (".norm", "norm.", "norm1", "norm2")),
)


def part_of(name: str) -> str:
    """What a parameter is part of, in words; the first component of its name if that says nothing."""
    return next((part for part, marks in _PARTS if any(mark in name for mark in marks)), name.partition(".")[0])


def parameters_by_part(model: nn.Module) -> dict[str, dict[str, int]]:
    """Parameters of each part, and how many of them are trained; shared ones count once, where they come first."""
    parts: dict[str, dict[str, int]] = {}
    for name, parameter in model.named_parameters():
        numbers = parts.setdefault(part_of(name), {"parameters": 0, "trained": 0})
        numbers["parameters"] += parameter.numel()
        numbers["trained"] += parameter.numel() * parameter.requires_grad
    if isinstance(model, LanguageModel) and model.layers.token_embedder.weight is model.layers.final_out.weight:
        renamed = {"token embedding": "token embedding, also the output"}
        parts = {renamed.get(part, part): numbers for part, numbers in parts.items()}
    return parts


def memory(model: nn.Module, dtype: torch.dtype) -> dict[str, int]:
    """Bytes that are sure to be needed.

    Returns:
        ``weights`` in ``dtype``; of a language model ``cache``, what generation keeps of one text as long as the
        context; and ``training``: weights, gradients and AdamW's two moments in float32, without activations.
    """
    parameters = list(model.parameters())
    count = sum(parameter.numel() for parameter in parameters)
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    found = {"weights": count * dtype.itemsize}
    if isinstance(model, LanguageModel):
        found["cache"] = model.new_cache().numbers_per_token * model.block_size * dtype.itemsize
    found["training"] = (count + 3 * trained) * torch.float32.itemsize
    return found


def describe(checkpoint: Checkpoint, dtype: torch.dtype) -> dict[str, Any]:
    """All that ``dat info`` says, as JSON has it."""
    model = checkpoint.model
    parts = parameters_by_part(model)
    found: dict[str, Any] = {
        "checkpoint": checkpoint.source,
        "kind": checkpoint.kind,
        "state": checkpoint.state or None,
        "model": type(model).__name__,
        "config": settings(checkpoint.config),
        "parameters": sum(numbers["parameters"] for numbers in parts.values()),
        "trained_parameters": sum(numbers["trained"] for numbers in parts.values()),
        "parts": parts,
        "weights": {
            "file": str(checkpoint.weights),
            "bytes": checkpoint.weights.stat().st_size,
            "dtype": dtype_name(checkpoint.weights_dtype),
        },
        "memory": {"dtype": dtype_name(dtype), **memory(model, dtype)},
    }
    if isinstance(model, LanguageModel):
        found["flops_per_token"] = model.flops_per_token()
        found["context"] = model.block_size
    run = RunFolder(Path(checkpoint.source).expanduser())
    if checkpoint.kind != "model folder" and run.finished:
        result = run.read_result()
        kept = ("loss", "perplexity", "bits_per_byte", "accuracy", "steps", "tokens", "seconds")
        found["result"] = {name: result[name] for name in kept if name in result}
    return found


def settings(config: Any) -> dict[str, Any]:
    """The configuration of the model as nested dicts, without what is null."""
    if hasattr(config, "to_dict"):
        values: dict[str, Any] = config.to_dict()
    else:
        values = {"task": config.task, **dataclasses.asdict(config.model)}
    return {name: value for name, value in values.items() if value is not None}


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def report(found: Mapping[str, Any]) -> str:
    """The description in lines for a terminal."""
    state = f" ({found['state']})" if found["state"] else ""
    lines = [f"{found['checkpoint']}: {found['model']}, {found['kind']}{state}", "", "configuration"]
    lines += aligned([(name, _written(value)) for name, value in found["config"].items()])
    lines += ["", "parameters"]
    rows = [(part, f"{n['parameters']:,}", _frozen(n)) for part, n in found["parts"].items()]
    total = {"parameters": found["parameters"], "trained": found["trained_parameters"]}
    rows.append(("in all", f"{found['parameters']:,}", _frozen(total)))
    lines += aligned(rows, right=1)
    lines += ["", f"memory (in {found['memory']['dtype']} for inference)"]
    lines += aligned(list(_memory_rows(found)))
    if "flops_per_token" in found:
        lines += ["", f"arithmetic of training: {found['flops_per_token'] / 1e6:,.1f} MFLOP a token"]
    if "result" in found:
        lines += ["", "result"]
        lines += aligned([(name.replace("_", " "), _written(value)) for name, value in found["result"].items()])
    return "\n".join(lines)


def _memory_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    needed, stored = found["memory"], found["weights"]
    rows = [("file of weights", f"{size(stored['bytes'])}, {stored['dtype']}"), ("weights", size(needed["weights"]))]
    if "cache" in needed:
        rows.append(("cache of a text", f"{size(needed['cache'])} for {found['context']:,} tokens"))
    rows.append(
        (
            "training",
            f"{size(needed['training'])} of weights, gradients and AdamW's moments in float32, and activations",
        )
    )
    return rows


def _frozen(numbers: Mapping[str, int]) -> str:
    frozen = numbers["parameters"] - numbers["trained"]
    return f"of them {frozen:,} frozen" if frozen else ""


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_written(part)}" for name, part in value.items() if part is not None)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def aligned(rows: Sequence[Sequence[str]], right: int | None = None) -> list[str]:
    """Rows as indented lines with columns of one width; the column ``right`` to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if i == right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def size(number: int) -> str:
    """Bytes in words: 1.5 KiB, 682 MiB, 5.1 GiB."""
    value, unit = float(number), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:,.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:,.1f} {unit}"


def info(prog: str, arguments: Sequence[str]) -> int:
    """``dat info``."""
    parser = option_parser(
        prog=prog,
        description="Say what a trained model is: its configuration, parameters by part, and the memory it takes. Its "
        "weights are not read, only their names and shapes, which are checked.",
    )
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="Run folder, folder with config.json and model.safetensors, or name on the Hugging Face hub.",
    )
    parser.add_argument(
        "--dtype",
        type=DTypeName | None,
        help="Of inference; null takes that of the weights.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parse_options(parser, arguments)
    checkpoint = open_checkpoint(options.checkpoint, device="meta")
    found = describe(checkpoint, DTYPES[options.dtype] if options.dtype else checkpoint.weights_dtype)
    print(json.dumps(found, indent=2) if options.json else report(found))
    return 0
