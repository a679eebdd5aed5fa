"""Configuration of an encoder-decoder model, flat, and the paper's models in it."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from dual_attention.configs import AttentionConfig, SymbolConfig
from dual_attention.dual_attn_blocks import DualAttnDecoderBlock, DualAttnEncoderBlock
from dual_attention.seq2seq_models import Seq2SeqDualAttnTransformer, Seq2SeqTransformer
from dual_attention.transformer_blocks import DecoderBlock, EncoderBlock

from ...data.mathematics import ANSWER_LENGTH, PAD, QUESTION_LENGTH, VOCABULARY
from ...training.config_data import PartName
from ...training.configs import WIDEST, check, check_integers, check_positive_numbers
from ..model_keys import LONGEST, ActivationName, ModelKeys
from ..own_parts import with_named_parts

TOKENS = {"type": "token", "vocab_size": len(VOCABULARY)}


@dataclass(frozen=True, kw_only=True)
class MathematicsModelKeys(ModelKeys):
    """An encoder and a decoder of Dual Attention Transformers, or Transformers where they have no relational heads."""

    name: str = "DAT-832K"
    n_layers: int = 2
    """Blocks of the encoder, and of the decoder."""
    d_model: int = 128
    n_heads_sa: int = 4
    """Sensory (self-attention) heads in each layer of the encoder."""
    n_heads_ra: int = 4
    """Relational heads in each layer of the encoder; a model without any on both sides is a standard Transformer, and
    its keys about relations and symbols idle."""
    n_heads_sa_dec: int = 4
    """Sensory heads in each layer of the decoder."""
    n_heads_ra_dec: int = 4
    """Relational heads in each layer of the decoder."""
    n_heads_cross: int = 8
    """Heads of the decoder's attention to the encoder, which is sensory."""
    dff: int | None = 256
    activation: ActivationName = "relu"
    dropout_rate: float = 0.1
    norm_first: bool = False
    bias: bool = True
    """Biases in the feed-forward blocks, and in the output of a Transformer's attention."""
    tie_weights: bool = False
    """One matrix for the decoder's embedding and the output layer; the paper's models have two."""
    symbols: Literal["symbolic_attention", "positional_symbols", "position_relative"] | PartName = "position_relative"
    """Symbol mechanism: a library read by attention, one symbol a position, or one a relative position. One retriever
    serves encoder and decoder."""
    n_symbols: int = QUESTION_LENGTH
    relative_positions: int | None = None
    """Largest relative position in the keys and values of sensory self-attention, as of Shaw et al. 2018 (arXiv
    1803.02155); beyond it they share one vector. null gives sensory heads no relative positions."""
    rope_theta: float | None = None
    """Base of rotary positions (arXiv 2104.09864) in the self-attention of both sides, beside the sinusoids, such as
    10000; null gives none."""

    def check_heads(self) -> None:
        super().check_heads()
        plain = not self.parts.keys() & {"model.heads", "model.rel_score"}
        check(plain or self.rope_theta is None, "model.rope_theta", "null with parts of your own", self.rope_theta)
        plain, reach = "model.heads" not in self.parts, self.relative_positions
        check(plain or reach is None, "model.relative_positions", "null with heads of your own", reach)
        if self.relative_positions is not None:
            check_integers(self, "model", "relative_positions", most=LONGEST)
        check_positive_numbers(self, "model", "rope_theta")
        check_integers(self, "model", "n_heads_sa_dec", "n_heads_ra_dec", least=0, most=WIDEST)
        check_integers(self, "model", "n_heads_cross", most=WIDEST)
        self.check_groups(self.n_heads_sa, self.n_heads_ra, self.n_heads_sa_dec, self.n_heads_ra_dec)
        of_decoder = self.n_heads_sa_dec + self.n_heads_ra_dec
        check(of_decoder >= 1, "model.n_heads_sa_dec + model.n_heads_ra_dec", "at least 1", of_decoder)
        for heads in (of_decoder, self.n_heads_cross):
            check(self.d_model % heads == 0, "model.d_model", f"a multiple of the {heads} heads", self.d_model)
        for heads in () if self.rope_theta is None else (self.n_heads_sa + self.n_heads_ra, of_decoder):
            expected = f"a multiple of twice the {heads} heads, for rotary positions"
            check(self.d_model % (2 * heads) == 0, "model.d_model", expected, self.d_model)
        check(self.d_model % 2 == 0, "model.d_model", "an even number, for sinusoidal positions", self.d_model)

    @property
    def relational(self) -> bool:
        return self.n_heads_ra + self.n_heads_ra_dec > 0

    @property
    def sa_kwargs(self) -> AttentionConfig:
        reach = self.relative_positions
        return AttentionConfig.of(vars(self), shaw_max_rel_pos=reach, shaw_values=reach is not None)

    @property
    def attn_kwargs(self) -> AttentionConfig:
        """Options of the self-attention of a Transformer."""
        return self.sa_kwargs

    @property
    def symbol_retrieval_kwargs(self) -> SymbolConfig:
        """Options of the symbol mechanism."""
        return self.symbol_config(QUESTION_LENGTH, self.n_symbols)

    def build(self) -> Seq2SeqDualAttnTransformer | Seq2SeqTransformer:
        """The model."""
        kind, encoder, decoder = (
            (Seq2SeqDualAttnTransformer, DualAttnEncoderBlock, DualAttnDecoderBlock)
            if self.relational
            else (Seq2SeqTransformer, EncoderBlock, DecoderBlock)
        )
        sides: dict[str, Any] = {"input_spec": TOKENS, "output_spec": TOKENS, "out_dim": len(VOCABULARY)}
        sides |= {"n_layers_enc": self.n_layers, "n_layers_dec": self.n_layers, "loss_ignore_idx": PAD}
        sides |= {"in_block_size": QUESTION_LENGTH, "out_block_size": ANSWER_LENGTH}
        of_decoder = replace(self, n_heads_sa=self.n_heads_sa_dec, n_heads_ra=self.n_heads_ra_dec)
        for name, keys, block in (("encoder_kwargs", self, encoder), ("decoder_kwargs", of_decoder, decoder)):
            sides[name] = {key: value for key, value in keys.arguments_for(block).items() if key != "d_model"}
        return with_named_parts(kind(**sides, **self.arguments_for(kind)), self)


def _transformer(name: str, n_layers: int, d_model: int, heads: int = 8) -> MathematicsModelKeys:
    """A Transformer; dff is twice the width, as in all of these models."""
    return MathematicsModelKeys(
        name=name,
        n_layers=n_layers,
        d_model=d_model,
        dff=2 * d_model,
        n_heads_sa=heads,
        n_heads_ra=0,
        n_heads_sa_dec=heads,
        n_heads_ra_dec=0,
        n_heads_cross=heads,
    )


def _dat(
    name: str, n_layers: int, decoder: tuple[int, int], rel_proj_dim: int | None = None, d_model: int = 128
) -> MathematicsModelKeys:
    """A DAT with 4 + 4 heads in the encoder and these in the decoder; one asymmetric relation a relational head."""
    return MathematicsModelKeys(
        name=name,
        n_layers=n_layers,
        d_model=d_model,
        dff=2 * d_model,
        n_heads_sa_dec=decoder[0],
        n_heads_ra_dec=decoder[1],
        rel_proj_dim=rel_proj_dim,
    )


WIDE_RELATIONS = 32
"""Width of a relation in the published models of two layers: an older default of the package, twice today's."""

PRESETS = {
    model.name: model
    for model in (
        _transformer("T-692K", 2, 128),
        _dat("DAT-750K", 2, (8, 0)),
        _dat("DAT-767K", 2, (4, 4)),
        _dat("DAT-783K", 2, (8, 0), WIDE_RELATIONS),
        _dat("DAT-832K", 2, (4, 4), WIDE_RELATIONS),
        _transformer("T-871K", 2, 144),
        _transformer("T-1.02M", 3, 128),
        _dat("DAT-1.09M", 3, (8, 0)),
        _dat("DAT-1.11M", 3, (4, 4)),
        _transformer("T-1.3M", 3, 144),
        _transformer("T-1.35M", 4, 128),
        _dat("DAT-1.43M", 4, (8, 0)),
        _dat("DAT-1.46M", 4, (4, 4)),
        _transformer("T-1.7M", 4, 144),
        _transformer("T-tiny", 1, 64),
        _dat("DAT-tiny", 1, (4, 4), d_model=64),
    )
}
"""The paper's models by the labels of its Table 2 and Figure 3; those that it has not are of its sizes (T-1.02M,
T-1.35M) or have relations as wide as a head (DAT-750K, DAT-767K); and two for a first look."""
