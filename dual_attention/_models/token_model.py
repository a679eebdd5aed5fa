"""Base of the models of tokens with one stack of blocks: sizes and initialisation."""

from __future__ import annotations

from .._layers.inputs import check_dropout, check_positive
from .._layers.options import NormType
from ..attention import Attention
from ..dual_attention import DualAttention
from ..positional_encoding import RotaryPositionalEncoding
from .config import TokenPositions, TokensConfig
from .passing import StackModel
from .weights import init_weights


class TokenModel(StackModel):
    """A model of tokens. Subclasses register its parts, under the names of their state dicts."""

    def __init__(self, config: TokensConfig) -> None:
        super().__init__()
        kind = config.pos_enc_type
        check_positive(vocab_size=config.vocab_size, n_layers=config.n_layers, max_block_size=config.max_block_size)
        if kind not in ("pos_emb", "RoPE", "none"):
            raise ValueError(f"pos_enc_type: expected 'pos_emb', 'RoPE' or 'none', got {kind!r}")
        self.vocab_size = config.vocab_size
        self.d_model = config.d_model
        self.n_layers = config.n_layers
        self.dropout_rate = check_dropout("dropout_rate", config.dropout_rate)
        self.norm_type: NormType = config.norm_type
        self.block_size = config.max_block_size
        self.pos_enc_type: TokenPositions = kind

    def init_weights(self) -> None:
        """Draw all parameters anew, as the paper's language models are initialised.

        Linear layers, embeddings and W_r come from N(0, 0.02), biases are zero; what ends in the residual stream
        (``wo`` of attention, ``linear2`` of feed-forward blocks) comes from N(0, 0.02 / sqrt(2 L)); templates and
        symbols of symbolic attention from N(0, 1). With ``wr_init="large"``, relational attention draws its own W_r.
        """
        init_weights(self, n_layers=self.n_layers)


def rotary_encoding(attention: Attention | DualAttention, config: TokensConfig) -> RotaryPositionalEncoding | None:
    """RoPE of the width of the queries and keys, which must be the same in all heads; None without rotary positions."""
    if config.pos_enc_type != "RoPE":
        return None
    kinds = (
        [attention] if isinstance(attention, Attention) else [attention.self_attention, attention.relational_attention]
    )
    widths = [getattr(heads, "key_dim", heads.head_dim) for heads in kinds if heads is not None]
    if len(set(widths)) > 1:
        raise ValueError(
            f"sa_kwargs, ra_kwargs: pos_enc_type='RoPE' needs one key_dim in both kinds of head, got {widths}"
        )
    return RotaryPositionalEncoding(widths[0], config.max_block_size, config.rope_theta)
