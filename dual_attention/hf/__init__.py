"""Hugging Face: models loaded from and saved for the hub, and models for transformers.

The first need huggingface_hub and safetensors, the others transformers as well; safetensors is enough to read a folder.
All come with the extra ``hf``, and each is imported when a name that needs it is first used.

============================================  ==============================================================
:class:`DualAttnTransformerLM_HFHub`,         language models in the published package's format
:class:`TransformerLM_HFHub`
:class:`DualAttnForCausalLM`,                 language models for transformers
:class:`DualAttnLMForSequenceClassification`,
:class:`DualAttnModel`
:class:`DualAttnForMaskedLM`,                 encoders for transformers
:class:`DualAttnForSequenceClassification`,
:class:`DualAttnEncoderModel`
:class:`DualAttnForImageClassification`       a vision model for transformers
:class:`DualAttnConfig`,                      their configurations
:class:`DualAttnEncoderConfig`,
:class:`DualAttnVisionConfig`
:func:`to_hub`, :func:`to_transformers`,      from one format into another
:func:`convert_checkpoint`
:func:`load_language_model`,                  models of this library from either format
:func:`load_model`
============================================  ==============================================================

From this import on, the Auto classes of transformers (``AutoModelForCausalLM``, ...) know these models, whichever of
the two is imported first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .._extras import require
from .registration import register_when_imported

if TYPE_CHECKING:
    from .auto import register_auto_classes
    from .cache import DualAttnCache
    from .causal_lm import DualAttnCausalLMOutput, DualAttnForCausalLM
    from .configuration import DualAttnConfig, DualAttnEncoderConfig, DualAttnVisionConfig
    from .convert import convert_checkpoint, to_hub, to_transformers, to_transformers_state_dict
    from .encoders import DualAttnEncoderModel, DualAttnForMaskedLM, DualAttnForSequenceClassification
    from .hub import DualAttnTransformerLM_HFHub, HubLanguageModel, TransformerLM_HFHub
    from .language import DualAttnLMForSequenceClassification, DualAttnModel, DualAttnModelOutput
    from .loading import LoadedLanguageModel, LoadedModel, load_language_model, load_model
    from .vision import DualAttnForImageClassification
    from .weights import read_weights, to_language_state_dict

# Where each name is.
_HOMES = {
    "hub": ("DualAttnTransformerLM_HFHub", "HubLanguageModel", "TransformerLM_HFHub"),
    "weights": ("read_weights", "to_language_state_dict"),
    "loading": ("LoadedLanguageModel", "LoadedModel", "load_language_model", "load_model"),
    "convert": ("convert_checkpoint", "to_hub", "to_transformers", "to_transformers_state_dict"),
    "auto": ("register_auto_classes",),
    "cache": ("DualAttnCache",),
    "causal_lm": ("DualAttnCausalLMOutput", "DualAttnForCausalLM"),
    "configuration": ("DualAttnConfig", "DualAttnEncoderConfig", "DualAttnVisionConfig"),
    "encoders": ("DualAttnEncoderModel", "DualAttnForMaskedLM", "DualAttnForSequenceClassification"),
    "language": ("DualAttnLMForSequenceClassification", "DualAttnModel", "DualAttnModelOutput"),
    "vision": ("DualAttnForImageClassification",),
}
_FOLDERS = ("loading", "weights")  # these read folders with only safetensors
_LIGHT = (*_FOLDERS, "convert", "hub")  # these do without transformers

__all__ = [  # noqa: RUF022 (in the order of the table above)
    "DualAttnTransformerLM_HFHub",
    "TransformerLM_HFHub",
    "HubLanguageModel",
    "DualAttnForCausalLM",
    "DualAttnCausalLMOutput",
    "DualAttnLMForSequenceClassification",
    "DualAttnModel",
    "DualAttnModelOutput",
    "DualAttnCache",
    "DualAttnForMaskedLM",
    "DualAttnForSequenceClassification",
    "DualAttnEncoderModel",
    "DualAttnForImageClassification",
    "DualAttnConfig",
    "DualAttnEncoderConfig",
    "DualAttnVisionConfig",
    "LoadedLanguageModel",
    "LoadedModel",
    "to_hub",
    "to_transformers",
    "to_language_state_dict",
    "to_transformers_state_dict",
    "load_language_model",
    "load_model",
    "convert_checkpoint",
    "read_weights",
    "register_auto_classes",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            require("safetensors", extra="hf")
            if home not in _FOLDERS:
                require("huggingface_hub", extra="hf")
            if home not in _LIGHT:
                require("transformers", extra="hf")
            value = getattr(importlib.import_module(f".{home}", __name__), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_when_imported()
