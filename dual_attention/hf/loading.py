"""Trained models of this library, encoders and image classifiers among them, from any folder or name on the hub.

Those two are in transformers' format and need it; language models do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .._checkpoints.files import CheckpointFiles
from .._checkpoints.language import (
    LoadedModel,
    empty_language_model,
    format_of,
    is_language_model,
    language_config,
    load_language_checkpoint,
    read_into,
)
from .._extras import require

__all__ = ["load_model", "model_from_config"]


def load_model(
    name_or_path: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None, **download: Any
) -> LoadedModel:
    """As :func:`load_language_model`, and for encoders with their heads and image classifiers as well.

    An ``ImportError`` says which package is needed for that and not installed.
    """
    files = CheckpointFiles(name_or_path, **download)
    saved = files.config()
    if is_language_model(saved):
        return load_language_checkpoint(files, device=device, dtype=dtype)
    config, model = model_from_config(saved, source=files.name, dtype=dtype)
    model, weights = read_into(model, files, device)
    return LoadedModel(model, config, format_of(saved), weights.files, weights.dtype)


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
