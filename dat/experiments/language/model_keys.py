"""Configuration of a language model, flat, and the paper's models in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from dual_attention.configs import (
    AttentionConfig,
    OutputLayerConfig,
    PositionsConfig,
    RelationalConfig,
    RetrieverConfig,
    SharingConfig,
    SymbolConfig,
    TokenPositions,
)
from dual_attention.language_models import DualAttnTransformerLM, TransformerLM
from dual_attention.language_presets import LanguageModelConfig, language_preset

from ...training.config_data import PartName
from ...training.configs import check, check_integers, check_positive_numbers
from ..model_keys import LONGEST, ModelKeys
from ..own_parts import with_named_parts


@dataclass(frozen=True, kw_only=True)
class LanguageModelKeys(PositionsConfig, OutputLayerConfig, SharingConfig, ModelKeys):
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
    bias: bool = False
    """Biases in the linear maps of a Transformer's blocks."""
    ff_bias: bool = True
    """Biases in the feed-forward blocks of a DAT; the paper's models have them."""
    output_gate: Literal["none", "identity", "sigmoid"] = "none"
    """Gate on what each sensory head brings, computed from the receiver: none, linear, or a sigmoid."""
    pos_enc_type: TokenPositions = "RoPE"
    n_relations: int | None = 8
    symbols: Literal["symbolic_attention", "positional_symbols", "position_relative"] | PartName = "symbolic_attention"
    """Symbol mechanism: a library read by attention, one symbol a position, or one a relative position."""
    trainable_symbols: bool = False
    update_symbols_each_layer: bool = True
    """Retrieve symbols anew for each layer instead of once for the first."""

    gone: ClassVar[Mapping[str, Any]] = {"heads": None}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "model", "vocab_size", "context", most=LONGEST)
        check_positive_numbers(self, "model", "rope_theta")

    def check_heads(self) -> None:
        super().check_heads()
        self.check_groups(self.n_heads_sa, self.n_heads_ra)

    @property
    def max_block_size(self) -> int:
        """The context, by its name in the library."""
        return self.context

    @property
    def sa_kwargs(self) -> AttentionConfig:
        gate = None if self.output_gate == "none" else self.output_gate
        return AttentionConfig.of(vars(self), output_gate=gate)

    @property
    def symbol_retrieval_kwargs(self) -> SymbolConfig:
        """Options of the symbol mechanism."""
        return self.symbol_config(self.context, self.n_symbols)

    @property
    def symbol_retriever_config(self) -> RetrieverConfig | None:
        """Sharing of symbols between layers; None for that by default."""
        return RetrieverConfig.of(vars(self)) or None

    @property
    def block_kwargs(self) -> dict[str, Any] | None:
        """Options of a Transformer's blocks."""
        return {"attn_kwargs": self.sa_kwargs} if self.sa_kwargs and not self.relational else None

    def language_config(self, vocab_size: int) -> LanguageModelConfig:
        """The arguments of the model's class, with a vocabulary of that size unless the configuration says another."""
        size = vocab_size if self.vocab_size is None else self.vocab_size
        check(size >= vocab_size, "model.vocab_size", f"null or at least {vocab_size}, the tokenizer's", size)
        given = self.arguments_for(DualAttnTransformerLM if self.relational else TransformerLM)
        given |= {"vocab_size": size, "dff": 4 * self.d_model if self.dff is None else self.dff}
        kind: Any = partial(OwnPartsConfig, keys=self) if self.parts else LanguageModelConfig
        return kind(model="dat" if self.relational else "transformer", **given)


@dataclass(frozen=True, kw_only=True)
class OwnPartsConfig(LanguageModelConfig):
    """The arguments of a language model, and the keys that name parts of the user's own in it."""

    keys: object

    def build(self, device: Any = None, dtype: Any = None) -> Any:
        """The model with freshly drawn weights, and with these parts."""
        return with_named_parts(super().build(device, dtype), self.keys)


def model_preset(name: str) -> LanguageModelKeys:
    """The keys of one of :data:`~dual_attention.LANGUAGE_PRESETS`."""
    source = language_preset(name)
    given = {**vars(source), "name": name, "context": source.max_block_size, "dff": None}
    if source.model == "transformer":
        return LanguageModelKeys.of(given, n_heads_sa=source.n_heads, n_heads_ra=0, n_kv_heads=None)
    options = RelationalConfig(**(source.ra_kwargs or {}))
    symbols = SymbolConfig(**(source.symbol_retrieval_kwargs or {}))
    return LanguageModelKeys.of({**given, **vars(options)}, n_symbols=symbols.n_symbols, symbol_heads=symbols.n_heads)
