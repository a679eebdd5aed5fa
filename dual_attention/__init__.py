"""Relational attention and the Dual Attention Transformer (Altabaa & Lafferty 2024, arXiv 2405.16727)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._layers.cache import CacheGroup, ContextCache, TokenCache
    from ._layers.options import AttentionOptions, RelationalOptions, SymbolOptions
    from .attention import Attention
    from .dual_attention import DualAttention
    from .dual_attn_blocks import DualAttnDecoderBlock, DualAttnEncoderBlock
    from .encoder_models import (
        DualAttnTransformerEncoder,
        EncoderForMaskedLM,
        EncoderForSequenceClassification,
        TransformerEncoder,
    )
    from .functional import OffsetSymbols, RelativeSymbols
    from .language_models import DualAttnTransformerLM, TransformerLM
    from .language_presets import LANGUAGE_PRESETS, LanguageModelConfig, language_preset
    from .positional_encoding import (
        LearnedPositionalEmbeddings,
        RelativePositionalEncoding,
        RotaryPositionalEncoding,
        SinusoidalPositionalEncoding,
    )
    from .relational_attention import (
        DisentangledRelationalCrossAttention,
        RelationalAttention,
        RelationalCrossAttention,
    )
    from .seq2seq_models import Seq2SeqDualAttnTransformer, Seq2SeqTransformer
    from .symbol_retrieval import (
        PositionalSymbolRetriever,
        PositionRelativeSymbolRetriever,
        PositionRelativeSymbolRetriever2D,
        RelationalSymbolicAttention,
        SymbolicAttention,
    )
    from .transformer_blocks import DecoderBlock, EncoderBlock
    from .vision_models import VisionDualAttnTransformer, VisionTransformer

__version__ = "0.1.0"

__all__ = [
    "LANGUAGE_PRESETS",
    "Attention",
    "AttentionOptions",
    "CacheGroup",
    "ContextCache",
    "DecoderBlock",
    "DisentangledRelationalCrossAttention",
    "DualAttention",
    "DualAttnDecoderBlock",
    "DualAttnEncoderBlock",
    "DualAttnTransformerEncoder",
    "DualAttnTransformerLM",
    "EncoderBlock",
    "EncoderForMaskedLM",
    "EncoderForSequenceClassification",
    "LanguageModelConfig",
    "LearnedPositionalEmbeddings",
    "OffsetSymbols",
    "PositionRelativeSymbolRetriever",
    "PositionRelativeSymbolRetriever2D",
    "PositionalSymbolRetriever",
    "RelationalAttention",
    "RelationalCrossAttention",
    "RelationalOptions",
    "RelationalSymbolicAttention",
    "RelativePositionalEncoding",
    "RelativeSymbols",
    "RotaryPositionalEncoding",
    "Seq2SeqDualAttnTransformer",
    "Seq2SeqTransformer",
    "SinusoidalPositionalEncoding",
    "SymbolOptions",
    "SymbolicAttention",
    "TokenCache",
    "TransformerEncoder",
    "TransformerLM",
    "VisionDualAttnTransformer",
    "VisionTransformer",
    "__version__",
    "language_preset",
]

_HOMES = {
    "._layers.cache": ("CacheGroup", "ContextCache", "TokenCache"),
    "._layers.options": ("AttentionOptions", "RelationalOptions", "SymbolOptions"),
    ".attention": ("Attention",),
    ".dual_attention": ("DualAttention",),
    ".dual_attn_blocks": ("DualAttnDecoderBlock", "DualAttnEncoderBlock"),
    ".encoder_models": (
        "DualAttnTransformerEncoder",
        "EncoderForMaskedLM",
        "EncoderForSequenceClassification",
        "TransformerEncoder",
    ),
    ".functional": ("OffsetSymbols", "RelativeSymbols"),
    ".language_models": ("DualAttnTransformerLM", "TransformerLM"),
    ".language_presets": ("LANGUAGE_PRESETS", "LanguageModelConfig", "language_preset"),
    ".positional_encoding": (
        "LearnedPositionalEmbeddings",
        "RelativePositionalEncoding",
        "RotaryPositionalEncoding",
        "SinusoidalPositionalEncoding",
    ),
    ".relational_attention": (
        "DisentangledRelationalCrossAttention",
        "RelationalAttention",
        "RelationalCrossAttention",
    ),
    ".seq2seq_models": ("Seq2SeqDualAttnTransformer", "Seq2SeqTransformer"),
    ".symbol_retrieval": (
        "PositionalSymbolRetriever",
        "PositionRelativeSymbolRetriever",
        "PositionRelativeSymbolRetriever2D",
        "RelationalSymbolicAttention",
        "SymbolicAttention",
    ),
    ".transformer_blocks": ("DecoderBlock", "EncoderBlock"),
    ".vision_models": ("VisionDualAttnTransformer", "VisionTransformer"),
}
"""The exported names by the module that they are from. They are imported when they are first used, so that what needs
none of them, as ``dat --help``, does not wait for torch."""

_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name], __name__), name)
    elif name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    else:
        value = _submodule(name)
    globals()[name] = value
    return value


def _submodule(name: str) -> Any:
    """A module or folder of this package, which an attribute may name before it is imported."""
    try:
        return importlib.import_module(f".{name}", __name__)
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
