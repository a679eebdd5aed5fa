"""Trained models of this library from any folder or name on the hub, in either format.

A folder of the hub's format needs only safetensors, a name on the hub huggingface_hub as well, and encoders and image
classifiers, which are in transformers' format, transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from .._extras import require
from ..language_models import LanguageModel
from ..language_presets import LanguageModelConfig
from .files import CheckpointFiles, warn_of_misspelt
from .weights import Weights, checkpoint_weights, filled

__all__ = ["LoadedLanguageModel", "LoadedModel", "language_config", "load_language_model", "load_model"]

LANGUAGE_MODEL = "dual_attn"
"""The model type of language models, that of DualAttnConfig, which only transformers can import."""


class LoadedLanguageModel(NamedTuple):
    """A language model and the configuration that builds it."""

    model: LanguageModel
    config: LanguageModelConfig


class LoadedModel(NamedTuple):
    """A model of this library, and where it comes from.

    Attributes:
        model: in evaluation mode.
        config: a :class:`~dual_attention.language_presets.LanguageModelConfig`, or that of transformers for encoders
            and image classifiers.
        format: of the folder.
        files: its weights were read from.
        dtype: of most of the tensors in them.
    """

    model: nn.Module
    config: Any
    format: Literal["hub", "transformers"]
    files: tuple[Path, ...]
    dtype: torch.dtype


def load_language_model(
    name_or_path: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None, **download: Any
) -> LoadedLanguageModel:
    """Load a language model of either format, from a folder or the hub, as one of this library, in evaluation mode.

    transformers is not needed for either.

    Args:
        device: of the model; on ``"meta"`` weights are compared with the model by name and shape, but not read.
        dtype: of the parameters; by default torch's default.
        download: further arguments of :func:`huggingface_hub.hf_hub_download`, for instance ``revision``.

    Raises:
        OSError: if there is no such checkpoint, or the hub cannot be reached.
        TypeError, ValueError: if the configuration is not that of a language model of this library.
        ValueError: if weights are missing, unexpected or of another shape, or are in a pickle that runs code.
    """
    files = CheckpointFiles(name_or_path, **download)
    config = language_config(files.config(), source=files.name)
    model = empty_language_model(config, source=files.name, dtype=dtype)
    return LoadedLanguageModel(_fill(model, files, device)[0], config)


def load_model(
    name_or_path: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None, **download: Any
) -> LoadedModel:
    """As :func:`load_language_model`, and for encoders with their heads and image classifiers as well.

    An ``ImportError`` says which package is needed for that and not installed.
    """
    files = CheckpointFiles(name_or_path, **download)
    saved = files.config()
    config, model = model_from_config(saved, source=files.name, dtype=dtype)
    model, weights = _fill(model, files, device)
    return LoadedModel(model, config, "transformers" if "model_type" in saved else "hub", weights.files, weights.dtype)


def _fill(model: Any, files: CheckpointFiles, device: torch.device | str) -> tuple[Any, Weights]:
    weights = checkpoint_weights(files, meta=torch.device(device).type == "meta").named_as_ours()
    return filled(model, weights, source=files.name, device=device).eval(), weights


def model_from_config(
    saved: Mapping[str, Any], *, source: str, dtype: torch.dtype | None = None
) -> tuple[Any, nn.Module]:
    """The configuration that a ``config.json`` holds, and its model on the meta device; errors name the ``source``."""
    if saved.get("model_type") in (None, LANGUAGE_MODEL):
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


def language_config(saved: Mapping[str, Any], *, source: str) -> LanguageModelConfig:
    """The configuration of a language model that a ``config.json`` of either format holds."""
    model_type = saved.get("model_type")
    if model_type not in (None, LANGUAGE_MODEL):
        raise ValueError(f"{source}: expected a language model of this library, got model_type={model_type!r}")
    if model_type is None:
        kind = "dat" if "n_heads_sa" in saved or "n_heads_ra" in saved else "transformer"
        values = {"model": kind, **saved}
    else:  # transformers adds entries of its own, which change over time
        names = LanguageModelConfig.__dataclass_fields__
        warn_of_misspelt(saved, names)
        values = {name: value for name, value in saved.items() if name in names}
    try:
        return LanguageModelConfig.from_dict(values)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{source}: config.json is not that of a language model ({error})") from error


def empty_language_model(
    config: LanguageModelConfig, *, source: str, dtype: torch.dtype | None = None
) -> LanguageModel:
    """The language model of a configuration, on the meta device; errors name the ``source``."""
    try:
        return config.build("meta", dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{source}: config.json is not that of a language model ({error})") from error
