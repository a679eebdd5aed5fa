"""The options of heads, symbols, blocks and models: name, type, default and help of each, told once.

Whoever needs an option takes it from here: configurations of models inherit those of their parts, those of training,
of transformers and the help of the command line inherit these. A published constructor is an explicit door in front of
them: it has the same names, and a field that is not among its parameters is not its own. Where a constructor takes
further arguments of a part (``ra_kwargs``), a dict of them and their configuration say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ._layers.options import FieldsConfig, OptionsConfig
from .functional.activations import Activation

__all__ = ["AttentionConfig", "RelationalConfig", "RetrieverConfig", "SymbolConfig"]

NormType = Literal["layernorm", "rmsnorm", "none"]
RelationScore = Literal["dot", "squared_distance"]
RelationInit = Literal["published", "large"]
RelationalHeadType = Literal["relational_attention", "rca", "disrca"]
SequenceSymbolRetrieval = Literal["symbolic_attention", "rel_sym_attn", "positional_symbols", "position_relative"]
SymbolRetrieval = Literal[SequenceSymbolRetrieval, "position_relative_2d"]
TokenPositions = Literal["pos_emb", "RoPE", "none"]
PairPositions = Literal["sinusoidal", "learned", "none"]
PatchPositions = Literal["learned", "interpolated", "RoPE", "none"]
LossType = Literal["cross_entropy", "mse"]
EmbeddingInit = Literal["published", "scaled"]
Pool = Literal["cls", "mean"]
ImagePool = Literal[Pool, "patches"]


@dataclass(frozen=True, kw_only=True)
class GroupsConfig(FieldsConfig):
    """Groups of query heads that share keys."""

    n_kv_heads: int | None = None
    """Key-value heads of each kind of attention, each of which serves as many query heads; null takes as many as there
    are query heads. Relations are not grouped."""


@dataclass(frozen=True, kw_only=True)
class HeadsConfig(GroupsConfig):
    """Heads of either kind."""

    key_dim: int | None = None
    """Width of one query and key; null takes the width of a head, d_model / total_n_heads."""
    add_bias_q: bool = False
    """A bias in the query projection, as GPT-2 and PyTorch's own layers have."""
    add_bias_kv: bool = False
    """Biases in the projections of keys and of what heads carry, values or symbols."""
    add_bias_out: bool = False
    """A bias in the output projection."""
    total_n_heads: int | None = None
    """Heads of the whole layer if these are only some of them (dual attention); the output width is n_heads * d_model /
    total_n_heads."""
    attn_scale: float | None = None
    """Factor of the scores; null takes 1 / sqrt(key_dim)."""
    out_dropout: float | None = None
    """Dropout rate on the output; null takes that on the attention weights."""
    out_dim: int | None = None
    """Features of the output; null takes as many as the heads have together."""
    shaw_max_rel_pos: int | None = None
    """Add relative positions of Shaw et al. 2018 (arXiv 1803.02155) to the keys, clipped at this offset."""
    window: int | None = None
    """Sliding window: receiver i sees senders with |i - j| < window."""


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(HeadsConfig, OptionsConfig):
    """Options of :class:`~dual_attention.attention.Attention`: ``sa_kwargs``, ``attn_kwargs``, ``cross_kwargs``.

    A dict of them does as well, and may also hold ``dropout``, which is else that of the layer around them.

    >>> options = AttentionConfig(n_kv_heads=1, window=4)
    >>> DualAttention(d_model=64, n_heads_sa=2, n_heads_ra=2, sa_kwargs=options).self_attention.window
    4
    """

    shaw_values: bool = False
    """Add relative positions to the values as well; weights are then built."""
    output_gate: str | Activation | None = None
    """Activation of a gate, computed from the query, on each feature that the heads bring (sigmoid: Qiu et al. 2025,
    arXiv 2505.06708; identity: linear, a control for relations); null gives none."""


@dataclass(frozen=True, kw_only=True)
class RelationsConfig(GroupsConfig):
    """Relations."""

    n_relations: int | None = None
    """Relations, the dimension R of the relation vector, in relational attention; null takes one for each such head.
    All heads see the same relations, each through its own W_r."""
    rel_proj_dim: int | None = None
    """Width of the query and key of one relation; null takes the width of all relational heads / n_relations."""
    symmetric_rels: bool = False
    """One projection for the queries and keys of relations, which makes every relation symmetric."""
    rel_score: RelationScore = "dot"
    """Relation before its activation: the inner product of its query and key over sqrt(rel_proj_dim), as in
    the paper (dot), or their negated squared distance times a learned strength, which begins at 1, over the same
    (squared_distance); 0 then means equal."""
    rel_activation: str | Activation = "identity"
    """Activation of the relations: identity, relu, sigmoid, tanh, gelu, silu, or softmax over the senders that are
    seen; in Python also an elementwise function."""
    wr_init: RelationInit = "published"
    """Initialisation of W_r: uniform in +-1/sqrt(head width * n_relations), as in the published package, or in language
    models and encoders N(0, 0.02), as in the paper's (published); or uniform in +-1/sqrt(n_relations), as in the
    authors' runs of Relational Games, which learns from clearly fewer examples there (large)."""
    rel_init_size: float | None = None
    """Size of relations in messages at the start, in place of wr_init: root mean square of W_r r less its
    mean over senders, for ten independent objects with entries of variance 1 (as after a normalisation), each compared
    with all ten; null leaves it to wr_init."""


@dataclass(frozen=True, kw_only=True)
class RelationalConfig(RelationsConfig, HeadsConfig, OptionsConfig):
    """Options of relational heads, ``ra_kwargs``: those of
    :class:`~dual_attention.relational_attention.RelationalAttention`.

    A dict of them does as well, and may also hold ``dropout``, which is else that of the layer around them. The two
    forms of relational cross-attention have fewer, and refuse the others; ``activation`` of the first is given in a
    dict.

    >>> options = RelationalConfig(n_relations=8, symmetric_rels=True)
    >>> DualAttention(d_model=64, n_heads_sa=2, n_heads_ra=2, ra_kwargs=options).relational_attention.n_relations
    8
    >>> dict(options)
    {'n_relations': 8, 'symmetric_rels': True}
    """

    use_relative_positional_symbols: bool = False
    """Symbols belong to pairs of positions, as position-relative ones do."""


@dataclass(frozen=True, kw_only=True)
class LibraryConfig(FieldsConfig):
    """A library of symbols."""

    n_symbols: int | None = None
    """Symbols in the library."""
    trainable_symbols: bool = True
    """Train the library; otherwise it stays as it is drawn."""


@dataclass(frozen=True, kw_only=True)
class SymbolConfig(LibraryConfig, OptionsConfig):
    """Options of the symbol mechanisms of :mod:`dual_attention.symbol_retrieval`, ``symbol_retrieval_kwargs``.

    Each mechanism takes some of them; a model gives those sizes that are left out. A dict of them does as well.

    >>> options = SymbolConfig(n_symbols=8, n_heads=2, d_model=32)
    >>> SymbolicAttention(**options).n_symbols
    8
    """

    d_model: int | None = None
    """Width of objects and symbols, of mechanisms that compare objects."""
    symbol_dim: int | None = None
    """Width of symbols by position."""
    n_heads: int | None = None
    """Heads of symbolic attention."""
    dropout: float = 0.0
    """Dropout rate on the weights of symbols."""
    scale: float | None = None
    """Factor of the scores of symbolic attention; null takes 1 / sqrt(d_model / n_heads)."""
    max_length: int | None = None
    """Most positions that have a symbol."""
    max_rel_pos: int | tuple[int, int] | None = None
    """Largest relative position, beyond which all share a symbol; in a grid one number, or two for rows and columns;
    null is none with sinusoids, and else left to the model."""
    sinusoidal: bool = False
    """Fixed sinusoids in place of learned symbols by position or relative position."""
    theta: float = 10000.0
    """Base of the frequencies of sinusoids of relative positions."""
    n_prefix_tokens: int = 1
    """Tokens in front of the grid."""
    rel_n_heads: int | None = None
    """Relations with each neighbour."""
    symbolic_attn_n_heads: int | None = None
    """Heads of the symbolic attention that retrieves a symbol with relations."""
    nbhd_delta: int | None = None
    """Neighbours on one side."""
    causal_nbhd: bool = True
    """Compare with earlier neighbours only."""
    include_self: bool = False
    """Count an object among its neighbours."""
    normalize_rels: bool = True
    """Softmax over the neighbours."""
    rel_scale: float | None = None
    """Factor of relations with neighbours; null takes 1 / sqrt(d_model / rel_n_heads)."""
    symbolic_attn_scale: float | None = None
    """Factor of the scores that retrieve a symbol with relations; null takes that of symbolic attention."""


@dataclass(frozen=True, kw_only=True)
class SharingConfig(FieldsConfig):
    """Sharing of symbols between layers."""

    shared_symbol_retriever: bool = True
    """One symbol retriever for all layers, or one for each."""
    weight_tie_symbol_library: bool = False
    """One symbol library for the retrievers of all layers, if each layer has its own."""


@dataclass(frozen=True, kw_only=True)
class RetrieverConfig(SharingConfig, OptionsConfig):
    """Symbols that layers share, and what they are retrieved from, ``symbol_retriever_config``.

    >>> dict(RetrieverConfig(shared_symbol_retriever=False))
    {'shared_symbol_retriever': False}
    """

    normalized_input: bool = False
    """Retrieve from what the attention of a block sees, with pre-norm the normalised tokens."""


@dataclass(frozen=True, kw_only=True)
class BlockConfig(FieldsConfig):
    """Blocks."""

    n_heads_sa: int | None = None
    """Sensory (self-attention) heads in each layer of a Dual Attention Transformer."""
    n_heads_ra: int | None = None
    """Relational heads in each layer of a Dual Attention Transformer."""
    ra_type: RelationalHeadType = "relational_attention"
    """Kind of relational heads: relational attention, relational cross-attention, or its disentangled form."""
    d_model: int
    """Width of the residual stream."""
    dff: int | None = None
    """Hidden width of the feed-forward blocks; null takes four times d_model, for SwiGLU two thirds of that."""
    dropout_rate: float = 0.0
    """Dropout rate, of embeddings too."""
    activation: str = "gelu"
    """Activation of the feed-forward blocks."""
    norm_first: bool = True
    """Normalise before each sub-layer (pre-norm) instead of after it."""
    norm_type: NormType = "layernorm"
    """Kind of normalisation."""
    bias: bool = True
    """Biases in the linear maps of the blocks."""


@dataclass(frozen=True, kw_only=True)
class HeadOptionsConfig(FieldsConfig):
    """Arguments of heads that configurations of a training run spell out instead."""

    n_heads: int | None = None
    """Attention heads in each layer of a Transformer."""
    sa_kwargs: Mapping[str, Any] | None = None
    """Further arguments of the sensory heads."""
    ra_kwargs: Mapping[str, Any] | None = None
    """Further arguments of the relational heads."""
    share_attn_params: bool = False
    """One set of attention queries and keys for both kinds of head."""


@dataclass(frozen=True, kw_only=True)
class SymbolsConfig(FieldsConfig):
    """Symbols of a Dual Attention Transformer."""

    symbol_retrieval: SymbolRetrieval = "symbolic_attention"
    """Symbol mechanism: a library read by attention, or by how a token compares with its neighbours, one symbol a
    position, or one a relative position."""
    symbol_retrieval_kwargs: Mapping[str, Any] | None = None
    """Arguments of the symbol mechanism."""
    update_symbols_each_layer: bool = True
    """Retrieve symbols anew for each layer instead of once for the first."""


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
    symbol_retriever_config: Mapping[str, Any] | None = None
    """Whether layers share one symbol retriever, or else one symbol library; and what symbols are retrieved from."""
    use_flash_attention: bool = True
    """Fused attention in a Transformer; otherwise attention weights are built."""
    block_kwargs: Mapping[str, Any] | None = None
    """Further arguments of the blocks."""
    ff_bias: bool | None = True
    """Biases in the feed-forward blocks of a Dual Attention Transformer; null takes bias."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TokensConfig, HeadOptionsConfig, SymbolsConfig):
    """A bidirectional encoder, see :mod:`dual_attention.encoder_models`."""

    symbol_retrieval: SequenceSymbolRetrieval = "symbolic_attention"
    attn_kwargs: Mapping[str, Any] | None = None
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
    pos_enc: PatchPositions = "learned"
    """Positions: learned and added, these resized for images of other sizes, rotary by row and column in the attention
    of every head, or none."""


@dataclass(frozen=True, kw_only=True)
class VisionConfig(PatchesConfig, DepthConfig, HeadOptionsConfig, SymbolsConfig):
    """An image classifier, see :mod:`dual_attention.vision_models`."""

    image_shape: tuple[int, int, int]
    """Channels, width and height of the images."""
    num_classes: int
    """Classes."""
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
    decoder_symbol_retrieval_kwargs: Mapping[str, Any] | None = None
    """Arguments of the symbol mechanism of the decoder."""
