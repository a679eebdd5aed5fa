"""Configuration of a language model, flat, and the paper's models in it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from dual_attention._layers.config import arguments_for
from dual_attention._layers.options import AttentionOptions, BlockOptions, RetrieverOptions
from dual_attention._models.config import OutputLayerConfig, PositionsConfig, TokenPositions
from dual_attention.language_models import DualAttnTransformerLM, TransformerLM
from dual_attention.language_presets import LanguageModelConfig, language_preset

from ...training.configs import check, check_integers
from ..heads import RivalName, check_rival
from ..model_keys import LONGEST, ActivationName, ModelKeys
from .heads_model import HeadsModelConfig


@dataclass(frozen=True, kw_only=True)
class LanguageModelKeys(PositionsConfig, OutputLayerConfig, ModelKeys):
    """A Dual Attention Transformer that predicts the next token, or a Transformer when it has no relational heads."""

    name: str = "DAT-tiny"
    vocab_size: int | None = None
    """Size of the vocabulary; null takes the tokenizer's. A larger one, padded to a multiple of 128, may be faster."""
    context: int = 256
    """Context length, most tokens that the model sees; also the length of the sequences that it trains on."""
    d_model: int = 64
    n_heads_sa: int = 2
    n_kv_heads: int | None = 1
    dff: int | None = None
    """Hidden width of the feed-forward blocks; null takes four times d_model."""
    activation: ActivationName = "gelu"
    dropout_rate: float = 0.0
    bias: bool = False
    """Biases in the linear maps of a Transformer's blocks."""
    ff_bias: bool = True
    """Biases in the feed-forward blocks of a DAT; the paper's models have them."""
    heads: RivalName | None = None
    """Heads of a rival of relational attention in place of the sensory heads of a Transformer, without rotary
    positions; null for self-attention."""
    output_gate: Literal["none", "identity", "sigmoid"] = "none"
    """Gate on what each sensory head brings, computed from the receiver: none, linear, or a sigmoid."""
    pos_enc_type: TokenPositions = "RoPE"
    n_relations: int | None = 8
    wr_init: Literal["published", "large"] = "published"
    """Initialisation of W_r: N(0, 0.02) as in the paper's language models (published), or uniform in
    +-1/sqrt(n_relations)."""
    symbols: Literal["symbolic_attention", "positional_symbols", "position_relative"] = "symbolic_attention"
    """Symbol mechanism: a library read by attention, one symbol a position, or one a relative position."""
    n_symbols: int = 32
    """Symbols in the library of symbolic attention; relative positions beyond this share one symbol."""
    trainable_symbols: bool = False
    """Train the symbol library; the paper's is frozen as it is drawn."""
    shared_symbol_retriever: bool = True
    """One symbol retriever for all layers, or one for each."""
    weight_tie_symbol_library: bool = False
    """One symbol library for the retrievers of all layers, if each layer has its own."""
    update_symbols_each_layer: bool = True
    """Retrieve symbols anew for each layer instead of once for the first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "model", "vocab_size", "context", most=LONGEST)
        check(0 < self.rope_theta < inf, "model.rope_theta", "a positive number", self.rope_theta)
        if self.heads is not None:
            check_rival("model.n_heads_sa", self.heads, self.n_heads_sa)
            expected = {"n_heads_ra": 0, "n_kv_heads": None, "output_gate": "none"}
            for name, value in expected.items():
                got, wanted = getattr(self, name), "null" if value is None else value
                check(got == value, f"model.{name}", f"{wanted} with model.heads={self.heads}", got)
            fits, expected = self.pos_enc_type != "RoPE", f"pos_emb or none with model.heads={self.heads}"
            check(fits, "model.pos_enc_type", expected, self.pos_enc_type)

    def check_heads(self) -> None:
        super().check_heads()
        self.check_groups(self.n_heads_sa, self.n_heads_ra)

    def language_config(self, vocab_size: int) -> LanguageModelConfig:
        """The arguments of the model's class, with a vocabulary of that size unless the configuration says another."""
        size = vocab_size if self.vocab_size is None else self.vocab_size
        check(size >= vocab_size, "model.vocab_size", f"null or at least {vocab_size}, the tokenizer's", size)
        common: dict[str, Any] = {
            **arguments_for(DualAttnTransformerLM if self.relational else TransformerLM, self),
            "vocab_size": size,
            "dff": 4 * self.d_model if self.dff is None else self.dff,
            "max_block_size": self.context,
        }
        if self.heads is not None:
            return HeadsModelConfig(model="transformer", heads=self.heads, n_heads=self.n_heads_sa, **common)
        gate: AttentionOptions = {} if self.output_gate == "none" else {"output_gate": self.output_gate}
        if not self.relational:
            heads: AttentionOptions = {} if self.n_kv_heads is None else {"n_kv_heads": self.n_kv_heads}
            heads |= gate
            blocks: BlockOptions | None = {"attn_kwargs": heads} if heads else None
            return LanguageModelConfig(model="transformer", n_heads=self.n_heads_sa, block_kwargs=blocks, **common)
        shared: RetrieverOptions = {"shared_symbol_retriever": self.shared_symbol_retriever}
        if self.weight_tie_symbol_library:
            shared["weight_tie_symbol_library"] = True
        symbols = self.symbol_options(self.context, self.n_symbols)
        if self.symbols == "symbolic_attention":
            symbols["trainable_symbols"] = self.trainable_symbols
        return LanguageModelConfig(
            model="dat",
            symbol_retrieval=self.symbols,
            symbol_retrieval_kwargs=symbols,
            symbol_retriever_config=None if shared == {"shared_symbol_retriever": True} else shared,
            sa_kwargs={"n_kv_heads": self.n_kv_heads, **gate},
            ra_kwargs=self.relational_options(),
            **common,
        )


def model_preset(name: str) -> LanguageModelKeys:
    """The keys of one of :data:`~dual_attention.LANGUAGE_PRESETS`."""
    source = language_preset(name)
    keys: dict[str, Any] = {"name": name, "context": source.max_block_size}
    keys |= {key: getattr(source, key) for key in ("vocab_size", "d_model", "n_layers")}
    if source.model == "transformer":
        return LanguageModelKeys(n_heads_sa=source.n_heads or 0, n_heads_ra=0, n_kv_heads=None, **keys)
    given = source.to_dict()
    keys |= {key: given["ra_kwargs"][key] for key in ("n_kv_heads", "n_relations", "rel_proj_dim")}
    keys |= {key: given[key] for key in ("n_heads_sa", "n_heads_ra")}
    symbols = given["symbol_retrieval_kwargs"]
    return LanguageModelKeys(n_symbols=symbols["n_symbols"], symbol_heads=symbols["n_heads"], **keys)
