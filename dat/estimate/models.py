"""Models named by a preset, a class with its arguments, or a configuration."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from dual_attention.encoder_models import DualAttnTransformerEncoder, TransformerEncoder
from dual_attention.language_models import DualAttnTransformerLM, TransformerLM
from dual_attention.language_presets import LANGUAGE_PRESETS, LanguageModelConfig
from dual_attention.seq2seq_models import Seq2SeqDualAttnTransformer, Seq2SeqTransformer
from dual_attention.vision_models import VisionDualAttnTransformer, VisionTransformer

PLAIN = VisionTransformer, TransformerLM, TransformerEncoder, Seq2SeqTransformer
DUAL = VisionDualAttnTransformer, DualAttnTransformerLM, DualAttnTransformerEncoder, Seq2SeqDualAttnTransformer
CLASSES: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in (*PLAIN, *DUAL)}
"""Model classes that a mapping may name."""


def resolve_model(model: Any) -> tuple[str, nn.Module]:
    """A name and a module, on the meta device unless it was given as a module."""
    if isinstance(model, nn.Module):
        return type(getattr(model, "_orig_mod", model)).__name__, model
    if isinstance(model, str):
        if model not in LANGUAGE_PRESETS:
            raise ValueError(f"model: expected one of {', '.join(LANGUAGE_PRESETS)}, got {model!r}")
        return model, LANGUAGE_PRESETS[model].build(device="meta")
    if isinstance(model, Mapping):
        return from_mapping(model)
    if hasattr(model, "build"):
        return getattr(model, "name", None) or type(model).__name__, model.build(device="meta")
    raise TypeError(f"model: expected a module, a name, a configuration or a mapping, got {type(model).__name__}")


def from_mapping(values: Mapping[str, Any]) -> tuple[str, nn.Module]:
    """Model of a mapping of ``model``, a class or a kind of language model, and its arguments.

    Without ``model`` these are the arguments of a language model, as they are saved with its weights.
    """
    arguments = {str(name): value for name, value in values.items()}
    kind = arguments.pop("model", None)
    if kind is None and "vocab_size" in arguments:
        kind = "dat" if "n_heads_sa" in arguments or "n_heads_ra" in arguments else "transformer"
    if kind in ("dat", "transformer"):
        module = LanguageModelConfig.from_dict({"model": kind, **arguments}).build(device="meta")
        return type(module).__name__, module
    if not isinstance(kind, str) or kind not in CLASSES:
        raise ValueError(f"model: expected the name of a class, one of {', '.join(CLASSES)}, got {kind!r}")
    try:
        with torch.device("meta"):
            return kind, CLASSES[kind](**arguments)
    except TypeError as error:
        raise ValueError(f"{kind}: {error}") from error
