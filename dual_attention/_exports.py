"""The exports of the package; importing this imports all layers and models, and so torch."""

from ._layers.cache import CacheGroup, ContextCache, TokenCache
from ._models.warm_start import start_from_transformer
from .attention import Attention
from .configs import AttentionConfig, RelationalConfig, SymbolConfig
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
from .part_trials import check_part
from .parts import with_parts
from .positional_encoding import (
    LearnedPositionalEmbeddings,
    RelativePositionalEncoding,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
)
from .relational_attention import DisentangledRelationalCrossAttention, RelationalAttention, RelationalCrossAttention
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

__all__ = [
    "LANGUAGE_PRESETS",
    "Attention",
    "AttentionConfig",
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
    "RelationalConfig",
    "RelationalCrossAttention",
    "RelationalSymbolicAttention",
    "RelativePositionalEncoding",
    "RelativeSymbols",
    "RotaryPositionalEncoding",
    "Seq2SeqDualAttnTransformer",
    "Seq2SeqTransformer",
    "SinusoidalPositionalEncoding",
    "SymbolConfig",
    "SymbolicAttention",
    "TokenCache",
    "TransformerEncoder",
    "TransformerLM",
    "VisionDualAttnTransformer",
    "VisionTransformer",
    "check_part",
    "language_preset",
    "start_from_transformer",
    "with_parts",
]
