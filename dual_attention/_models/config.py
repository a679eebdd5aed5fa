"""The fields of models, one configuration for each family; those of layers and blocks are inherited.

Each holds the fields of the Transformer and of the Dual Attention Transformer of its family; the constructors say which
are whose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .._layers.config import BlockConfig, FieldsConfig, HeadOptionsConfig, SequenceSymbolRetrieval, SymbolsConfig
from .._layers.options import AttentionOptions, BlockOptions, Options, RetrieverOptions, SymbolOptions

TokenPositions = Literal["pos_emb", "RoPE", "none"]
PairPositions = Literal["sinusoidal", "learned", "none"]
PatchPositions = Literal["learned", "interpolated", "none"]
LossType = Literal["cross_entropy", "mse"]
EmbeddingInit = Literal["published", "scaled"]
Pool = Literal["cls", "mean"]
ImagePool = Literal[Pool, "patches"]


@dataclass(frozen=True, kw_only=True)
class DepthConfig(BlockConfig):
    """A stack of equal blocks."""

    n_layers: int
    """Blocks."""


@dataclass(frozen=True, kw_only=True)
class PositionsConfig(FieldsConfig):
    """Positions of tokens."""

    pos_enc_type: TokenPositions = "pos_emb"
    """Positions: rotary in the attention of every head, learned and added to the input, or none."""
    rope_theta: float = 10000.0
    """Base of the frequencies of rotary positions."""


@dataclass(frozen=True, kw_only=True)
class TokensConfig(PositionsConfig, DepthConfig):
    """A stack of blocks on tokens."""

    vocab_size: int
    """Size of the vocabulary."""
    max_block_size: int = 1024
    """Context length, most tokens of a sequence."""


@dataclass(frozen=True, kw_only=True)
class OutputLayerConfig(FieldsConfig):
    """The output layer of a language model."""

    tie_weights: bool = True
    """One matrix for the token embedding and the output layer."""
    final_norm: bool = True
    """Normalise before the output layer."""
    output_bias: bool = False
    """A bias in the output layer."""


@dataclass(frozen=True, kw_only=True)
class DecoderLanguageConfig(TokensConfig, OutputLayerConfig, HeadOptionsConfig, SymbolsConfig):
    """A decoder-only language model, see :mod:`dual_attention.language_models`."""

    symbol_retrieval: SequenceSymbolRetrieval = "symbolic_attention"
    symbol_retriever_config: RetrieverOptions | Options | None = None
    """Whether layers share one symbol retriever, or else one symbol library; and what symbols are retrieved from."""
    use_flash_attention: bool = True
    """Fused attention in a Transformer; otherwise attention weights are built."""
    block_kwargs: BlockOptions | Options | None = None
    """Further arguments of the blocks."""
    ff_bias: bool | None = True
    """Biases in the feed-forward blocks of a Dual Attention Transformer; null takes bias."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TokensConfig, HeadOptionsConfig, SymbolsConfig):
    """A bidirectional encoder, see :mod:`dual_attention.encoder_models`."""

    symbol_retrieval: SequenceSymbolRetrieval = "symbolic_attention"
    attn_kwargs: AttentionOptions | Options | None = None
    """Further arguments of the attention of a Transformer."""
    shared_symbol_retriever: bool = True
    """One symbol retriever for all layers, or one for each."""
    n_token_types: int = 0
    """Kinds of tokens with an embedding each."""
    embedding_norm: bool = True
    """Normalise embeddings."""
    final_norm: bool | None = None
    """Normalise the output; null does with pre-norm only."""


@dataclass(frozen=True, kw_only=True)
class PatchesConfig(FieldsConfig):
    """Patches of images as tokens, and their pooling."""

    patch_size: tuple[int, int]
    """Width and height of a patch in pixels."""
    pool: ImagePool = "cls"
    """Pooling of the tokens to one vector: their mean, class token included, the mean of the patches, or the class
    token."""
    final_norm: bool = False
    """Normalise once more before pooling."""


@dataclass(frozen=True, kw_only=True)
class VisionConfig(PatchesConfig, DepthConfig, HeadOptionsConfig, SymbolsConfig):
    """An image classifier, see :mod:`dual_attention.vision_models`."""

    image_shape: tuple[int, int, int]
    """Channels, width and height of the images."""
    num_classes: int
    """Classes."""
    pos_enc: PatchPositions = "learned"
    """Positions: learned, learned and resized for images of other sizes, or none."""
    n_registers: int = 0
    """Learned tokens behind the class token that no score is read from."""


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(SymbolsConfig):
    """An encoder and a decoder, see :mod:`dual_attention.seq2seq_models`."""

    input_spec: Mapping[str, Any]
    """Input of the encoder: ``{"type": "token", "vocab_size": n}`` or ``{"type": "vector", "dim": n}``."""
    output_spec: Mapping[str, Any]
    """Input of the decoder, likewise."""
    d_model: int
    """Width of the residual stream."""
    out_dim: int
    """Classes, or width of the predicted vectors."""
    n_layers_enc: int
    """Blocks of the encoder."""
    n_layers_dec: int
    """Blocks of the decoder."""
    encoder_kwargs: Mapping[str, Any]
    """Arguments of the encoder's blocks."""
    decoder_kwargs: Mapping[str, Any]
    """Arguments of the decoder's blocks."""
    in_block_size: int = 1024
    """Largest length of a source."""
    out_block_size: int = 1024
    """Largest length of a target."""
    tie_weights: bool = True
    """One weight for the target embedding and the output layer."""
    loss_ignore_idx: int = -1
    """Class that is not scored."""
    loss_type: LossType | None = None
    """Loss; null takes cross-entropy for tokens and the squared error for vectors."""
    pos_enc: PairPositions = "sinusoidal"
    """Positions that are added to the embeddings: sinusoids, learned, or none."""
    rope_theta: float | None = None
    """Base of the frequencies of rotary positions in self-attention; null gives none."""
    embedding_dropout: float = 0.0
    """Dropout rate of the embeddings."""
    embedding_init: EmbeddingInit | None = None
    """Initial size of embeddings of tokens; null takes scaled with tied weights and published without."""
    symbol_retrieval: SequenceSymbolRetrieval = "symbolic_attention"
    decoder_symbol_retrieval: SequenceSymbolRetrieval | None = None
    """Symbol mechanism of the decoder; null takes that of the encoder for both."""
    decoder_symbol_retrieval_kwargs: SymbolOptions | Options | None = None
    """Arguments of the symbol mechanism of the decoder."""
