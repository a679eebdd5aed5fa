"""Trained models of this library, encoders and image classifiers among them, from any folder or name on the hub.

Those two are in transformers' format and need it; language models do not, unless they are told by an adapter of PEFT.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .._base.extras import require
from .._base.files import first_line, read_json_object
from ..checkpoints.files import ADAPTER, CheckpointFiles, is_adapter
from ..checkpoints.language import (
    LoadedModel,
    empty_language_model,
    format_of,
    is_language_model,
    language_config,
    load_language_checkpoint,
    read_into,
)
from ..checkpoints.weights import read_weights

ADAPTER_WEIGHTS = "adapter_model.safetensors"


def load_model(
    name_or_path: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None, **download: Any
) -> LoadedModel:
    """As :func:`load_language_model`, and for encoders with their heads, image classifiers, and adapters as well.

    An adapter of PEFT is merged into the language model that it names. An ``ImportError`` says which package is needed
    and not installed.

    >>> TransformerLM_HFHub(50, d_model=32, n_layers=1, n_heads=2, max_block_size=16).save_pretrained("folder")
    >>> type(load_model("folder").model).__name__
    'TransformerLM'
    """
    files = CheckpointFiles(name_or_path, **download)
    if is_adapter(files):
        return _with_adapter(files, torch.device(device), dtype)
    saved = files.config()
    if is_language_model(saved):
        return load_language_checkpoint(files, device=device, dtype=dtype)
    config, model = model_from_config(saved, source=files.name, dtype=dtype)
    model, weights = read_into(model, files, device, saved)
    return LoadedModel(model, config, format_of(saved), weights.files, weights.dtype)


def _with_adapter(files: CheckpointFiles, device: torch.device, dtype: torch.dtype | None) -> LoadedModel:
    """A language model with an adapter merged into it, in float32 or wider."""
    try:
        import peft
    except ImportError as error:
        raise ImportError(f"{files.name}: an adapter, which needs PEFT ({error}): pip install peft") from error
    from .convert import to_transformers

    about, weights = files.find(ADAPTER), files.find(ADAPTER_WEIGHTS)
    if about is None or weights is None:
        raise FileNotFoundError(f"{files.name}: an adapter without {ADAPTER_WEIGHTS}")
    saved = read_json_object(about)
    task, source = saved.get("task_type"), saved.get("base_model_name_or_path")
    if task not in (None, "CAUSAL_LM") or not isinstance(source, str):
        raise ValueError(
            f"{files.name}: expected an adapter of a language model that it names, got task_type={task!r} and "
            f"base_model_name_or_path={source!r}"
        )
    base = files.beside(source, saved.get("revision"))
    wide = torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)
    loaded = load_language_checkpoint(base, dtype=wide)
    model: Any = to_transformers(loaded.model, loaded.config)  # pyright: ignore[reportArgumentType]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of transformers, about PEFT
            merged = peft.PeftModel.from_pretrained(model, str(about.parent)).merge_and_unload()
    except (AttributeError, RuntimeError, TypeError) as error:  # of kinds that cannot be merged, and of sizes
        raise ValueError(f"{files.name}: cannot be merged into {source} ({first_line(error)})") from error
    owned = merged.model.to(device, dtype or torch.get_default_dtype()).eval()
    kept = (weights, *loaded.files)
    return LoadedModel(owned, merged.config.language_config(), "adapter", kept, read_weights(weights, meta=True).dtype)


def model_from_config(
    saved: Mapping[str, Any], *, source: str, dtype: torch.dtype | None = None
) -> tuple[Any, nn.Module]:
    """The configuration that a ``config.json`` holds, and its model on the meta device; errors name the ``source``."""
    if is_language_model(saved):
        config = language_config(saved, source=source)
        return config, empty_language_model(config, source=source, dtype=dtype)
    kind = _class_for_transformers(saved, source)
    try:
        config = kind.config_class.from_dict(dict(saved))
        with torch.device("meta"):
            model = kind(config).model
    except Exception as error:  # transformers checks types with exceptions of its own
        raise ValueError(f"{source}: config.json is not that of a {kind.__name__} ({error})") from error
    return config, model if dtype is None else model.to(dtype)


def _class_for_transformers(saved: Mapping[str, Any], source: str) -> Any:
    """The class for transformers that a ``config.json`` names."""
    model_type = saved["model_type"]
    if model_type not in ("dual_attn_encoder", "dual_attn_vision"):
        raise ValueError(f"{source}: expected a model of this library, got model_type={model_type!r}")
    require("transformers", extra="hf")
    from .encoders import DualAttnForMaskedLM, DualAttnForSequenceClassification
    from .vision import DualAttnForImageClassification

    classes: tuple[Any, ...] = (DualAttnForMaskedLM, DualAttnForSequenceClassification, DualAttnForImageClassification)
    kinds = {kind.__name__: kind for kind in classes if kind.config_class.model_type == model_type}
    named = saved.get("architectures") or []
    found = [kind for name, kind in kinds.items() if name in named]
    if not found:
        raise ValueError(f"{source}: architectures in config.json: expected {' or '.join(kinds)}, got {named!r}")
    return found[0]
