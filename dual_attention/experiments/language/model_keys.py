"""Configuration of a language model, flat, and the paper's models in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..._layers.options import BlockOptions, RelationalOptions, RetrieverOptions, SymbolOptions
from ...language_presets import LanguageModelConfig, language_preset
from ...training.configs import check


@dataclass(frozen=True)
class LanguageModelKeys:
    """A Dual Attention Transformer that predicts the next token, or a Transformer when it has no relational heads."""

    name: str = "DAT-tiny"
    """Name of the model in results and plots; a preset's name if it is one."""
    vocab_size: int | None = None
    """Size of the vocabulary; null takes the tokenizer's. A larger one, padded to a multiple of 128, may be faster."""
    context: int = 256
    """Context length, most tokens that the model sees; also the length of the sequences that it trains on."""
    d_model: int = 64
    """Width of the residual stream."""
    n_layers: int = 2
    """Blocks."""
    n_heads_sa: int = 2
    """Sensory (self-attention) heads in each layer."""
    n_heads_ra: int = 2
    """Relational heads in each layer; 0 makes a standard Transformer, and the keys about relations and symbols idle."""
    n_kv_heads: int | None = 1
    """Key-value heads of each kind of attention; null takes as many as there are query heads."""
    dff: int | None = None
    """Hidden width of the feed-forward blocks; null takes four times d_model."""
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "gelu"
    """Activation of the feed-forward blocks."""
    dropout_rate: float = 0.0
    """Dropout rate, of embeddings too."""
    norm_first: bool = True
    """Normalise before each sub-layer (pre-norm) instead of after it."""
    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"
    """Kind of normalisation."""
    bias: bool = False
    """Biases in the linear maps of a Transformer's blocks."""
    ff_bias: bool = True
    """Biases in the feed-forward blocks of a DAT; the paper's models have them."""
    pos_enc_type: Literal["RoPE", "pos_emb", "none"] = "RoPE"
    """Positions: rotary in the attention of every head, learned and added to the input, or none."""
    rope_theta: float = 10000.0
    """Base of the frequencies of rotary positions."""
    tie_weights: bool = True
    """One matrix for the token embedding and the output layer."""
    ra_type: Literal["relational_attention", "rca", "disrca"] = "relational_attention"
    """Kind of relational heads: relational attention, relational cross-attention, or its disentangled form."""
    n_relations: int | None = 8
    """Relations, the dimension of the relation vector, in relational attention; null takes one for each such head."""
    rel_proj_dim: int | None = None
    """Width of the query and key of one relation; null takes the width of all relational heads / n_relations."""
    symmetric_rels: bool = False
    """One projection for the queries and keys of relations, which makes every relation symmetric."""
    rel_activation: str = "identity"
    """Activation applied to relations."""
    wr_init: Literal["published", "large"] = "published"
    """Initialisation of W_r: N(0, 0.02) as in the paper's language models (published), or uniform in
    +-1/sqrt(n_relations)."""
    symbols: Literal["symbolic_attention", "positional_symbols", "position_relative"] = "symbolic_attention"
    """Symbol mechanism: a library read by attention, one symbol a position, or one a relative position."""
    n_symbols: int = 32
    """Symbols in the library of symbolic attention; relative positions beyond this share one symbol."""
    symbol_heads: int = 4
    """Heads of symbolic attention."""
    trainable_symbols: bool = False
    """Train the symbol library; the paper's is frozen as it is drawn."""
    shared_symbol_retriever: bool = True
    """One symbol retriever for all layers, or one for each."""
    weight_tie_symbol_library: bool = False
    """One symbol library for the retrievers of all layers, if each layer has its own."""
    update_symbols_each_layer: bool = True
    """Retrieve symbols anew for each layer instead of once for the first."""

    def __post_init__(self) -> None:
        positive = ("vocab_size", "context", "d_model", "n_layers", "n_kv_heads", "dff", "n_relations", "rel_proj_dim")
        for name in (*positive, "n_symbols", "symbol_heads"):
            value = getattr(self, name)
            check(value is None or value >= 1, f"model.{name}", "an integer of at least 1", value)
        for name in ("n_heads_sa", "n_heads_ra"):
            check(getattr(self, name) >= 0, f"model.{name}", "an integer of at least 0", getattr(self, name))
        heads = self.n_heads_sa + self.n_heads_ra
        check(heads >= 1, "model.n_heads_sa + model.n_heads_ra", "at least 1", heads)
        check(self.d_model % heads == 0, "model.d_model", f"a multiple of the {heads} heads", self.d_model)
        check(0 <= self.dropout_rate < 1, "model.dropout_rate", "a number in [0, 1)", self.dropout_rate)
        check(self.rope_theta > 0, "model.rope_theta", "a positive number", self.rope_theta)

    @property
    def relational(self) -> bool:
        """Whether this is a DAT with relational heads."""
        return self.n_heads_ra > 0

    def language_config(self, vocab_size: int) -> LanguageModelConfig:
        """The arguments of the model's class, with a vocabulary of that size unless the configuration says another.

        Raises:
            ValueError: if the vocabulary of the configuration is smaller.
        """
        size = vocab_size if self.vocab_size is None else self.vocab_size
        check(size >= vocab_size, "model.vocab_size", f"null or at least {vocab_size}, the tokenizer's", size)
        common: dict[str, Any] = {
            "vocab_size": size,
            "d_model": self.d_model,
            "n_layers": self.n_layers,
            "dff": 4 * self.d_model if self.dff is None else self.dff,
            "dropout_rate": self.dropout_rate,
            "activation": self.activation,
            "norm_first": self.norm_first,
            "norm_type": self.norm_type,
            "max_block_size": self.context,
            "pos_enc_type": self.pos_enc_type,
            "bias": self.bias,
            "tie_weights": self.tie_weights,
            "rope_theta": self.rope_theta,
        }
        if not self.relational:
            grouped: BlockOptions = {}
            if self.n_kv_heads is not None:
                grouped["attn_kwargs"] = {"n_kv_heads": self.n_kv_heads}
            return LanguageModelConfig(
                model="transformer", n_heads=self.n_heads_sa, block_kwargs=grouped or None, **common
            )
        own: RetrieverOptions = {"shared_symbol_retriever": self.shared_symbol_retriever}
        if self.weight_tie_symbol_library:
            own["weight_tie_symbol_library"] = True
        return LanguageModelConfig(
            model="dat",
            n_heads_sa=self.n_heads_sa,
            n_heads_ra=self.n_heads_ra,
            symbol_retrieval=self.symbols,
            symbol_retrieval_kwargs=self._symbol_arguments(),
            symbol_retriever_config=None if own == {"shared_symbol_retriever": True} else own,
            update_symbols_each_layer=self.update_symbols_each_layer,
            sa_kwargs={"n_kv_heads": self.n_kv_heads},
            ra_kwargs=self._relational_arguments(),
            ra_type=self.ra_type,
            ff_bias=self.ff_bias,
            **common,
        )

    def _symbol_arguments(self) -> SymbolOptions:
        if self.symbols == "positional_symbols":
            return {"symbol_dim": self.d_model, "max_length": self.context}
        if self.symbols == "position_relative":
            return {"symbol_dim": self.d_model, "max_rel_pos": self.n_symbols}
        return {
            "d_model": self.d_model,
            "n_heads": self.symbol_heads,
            "n_symbols": self.n_symbols,
            "trainable_symbols": self.trainable_symbols,
        }

    def _relational_arguments(self) -> RelationalOptions:
        arguments: RelationalOptions = {"n_kv_heads": self.n_kv_heads}
        if self.ra_type != "relational_attention":
            fits = self.symbols != "position_relative"
            check(fits, "model.symbols", f"another with model.ra_type={self.ra_type}", self.symbols)
            return arguments
        relations = self.n_heads_ra if self.n_relations is None else self.n_relations
        heads_width = self.d_model // (self.n_heads_sa + self.n_heads_ra) * self.n_heads_ra
        arguments["n_relations"] = relations
        arguments["rel_proj_dim"] = heads_width // relations if self.rel_proj_dim is None else self.rel_proj_dim
        if self.symmetric_rels:
            arguments["symmetric_rels"] = True
        if self.rel_activation != "identity":
            arguments["rel_activation"] = self.rel_activation
        if self.wr_init != "published":
            arguments["wr_init"] = self.wr_init
        if self.symbols == "position_relative":
            arguments["use_relative_positional_symbols"] = True
        return arguments


def model_preset(name: str) -> LanguageModelKeys:
    """The keys of one of :data:`~dual_attention.LANGUAGE_PRESETS`."""
    source = language_preset(name)
    common: dict[str, Any] = {
        "name": name,
        "vocab_size": source.vocab_size,
        "context": source.max_block_size,
        "d_model": source.d_model,
        "n_layers": source.n_layers,
    }
    if source.model == "transformer":
        return LanguageModelKeys(n_heads_sa=source.n_heads or 0, n_heads_ra=0, n_kv_heads=None, **common)
    given = source.to_dict()
    relational, symbols = given["ra_kwargs"], given["symbol_retrieval_kwargs"]
    return LanguageModelKeys(
        n_heads_sa=source.n_heads_sa or 0,
        n_heads_ra=source.n_heads_ra or 0,
        n_kv_heads=relational["n_kv_heads"],
        n_relations=relational["n_relations"],
        rel_proj_dim=relational["rel_proj_dim"],
        n_symbols=symbols["n_symbols"],
        symbol_heads=symbols["n_heads"],
        **common,
    )
