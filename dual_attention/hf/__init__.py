"""Hugging Face: models loaded from and saved for the hub, and models for transformers.

The first need huggingface_hub and safetensors, the others transformers as well; safetensors is enough to read a folder.
All come with the extra ``hf``; what is missing is told when a name that needs it is first used.

- language models in the published package's format: :class:`DualAttnTransformerLM_HFHub`, :class:`TransformerLM_HFHub`
- language models for transformers: :class:`DualAttnForCausalLM`, :class:`DualAttnLMForSequenceClassification`,
  :class:`DualAttnModel`
- encoders: :class:`DualAttnForMaskedLM`, :class:`DualAttnForSequenceClassification`, :class:`DualAttnEncoderModel`
- vision models: :class:`DualAttnForImageClassification`, :class:`DualAttnVisionModel`, :class:`DualAttnVisionBackbone`
- their configurations: :class:`DualAttnConfig`, :class:`DualAttnEncoderConfig`, :class:`DualAttnVisionConfig`
- from one format into another: :func:`to_hub`, :func:`to_transformers`, :func:`convert_checkpoint`
- GPT-2 and Llama of transformers as models of this library: :func:`from_transformers`
- models of this library from either format: :func:`load_language_model`, :func:`load_model`; into a folder:
  :func:`save_language_model`

This import registers the models with the Auto classes of transformers (``AutoModelForCausalLM``, ...), if that is
installed. Without it they do not know them.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .._base.extras import require

if TYPE_CHECKING:
    from ..checkpoints.language import LoadedLanguageModel, LoadedModel, load_language_model, save_language_model
    from ..checkpoints.weights import read_weights, to_language_state_dict
    from .auto import register_auto_classes
    from .cache import DualAttnCache
    from .causal_lm import DualAttnCausalLMOutput, DualAttnForCausalLM
    from .configuration import DualAttnConfig, DualAttnEncoderConfig, DualAttnVisionConfig
    from .convert import convert_checkpoint, to_hub, to_transformers, to_transformers_state_dict
    from .encoders import DualAttnEncoderModel, DualAttnForMaskedLM, DualAttnForSequenceClassification
    from .foreign import from_transformers
    from .hub import DualAttnTransformerLM_HFHub, HubLanguageModel, TransformerLM_HFHub
    from .language import DualAttnLMForSequenceClassification, DualAttnModel, DualAttnModelOutput
    from .loading import load_model
    from .vision import DualAttnForImageClassification, DualAttnVisionBackbone, DualAttnVisionModel

# What modules need, beside what those before them do: a folder is read with only safetensors.
_NEEDS = {
    "safetensors": ("..checkpoints.weights", "..checkpoints.language", ".loading"),
    "huggingface_hub": (".hub", ".convert"),
    "transformers": (
        ".auto",
        ".cache",
        ".causal_lm",
        ".configuration",
        ".encoders",
        ".language",
        ".vision",
        ".foreign",
    ),
}

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
    "DualAttnVisionModel",
    "DualAttnVisionBackbone",
    "DualAttnConfig",
    "DualAttnEncoderConfig",
    "DualAttnVisionConfig",
    "LoadedLanguageModel",
    "LoadedModel",
    "to_hub",
    "to_transformers",
    "from_transformers",
    "to_language_state_dict",
    "to_transformers_state_dict",
    "load_language_model",
    "save_language_model",
    "load_model",
    "convert_checkpoint",
    "read_weights",
    "register_auto_classes",
]


if not TYPE_CHECKING:  # a checker would take every name for one of ours

    def __getattr__(name: str) -> Any:
        for package, modules in _NEEDS.items() if name in __all__ else ():
            require(package, extra="hf")
            for module in modules:
                home = importlib.import_module(module, __name__)
                if hasattr(home, name):
                    value = globals()[name] = getattr(home, name)
                    return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if find_spec("transformers") is not None:
    with suppress(ImportError):  # of another version; the names that need it say so
        importlib.import_module(".auto", __name__).register_auto_classes()
