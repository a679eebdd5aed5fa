"""Base of the models of tokens with one stack of blocks: their sizes and their initialisation."""

from __future__ import annotations

from typing import Literal

from torch import nn

from .._layers.inputs import check_dropout, check_positive
from ..attention import Attention
from ..dual_attention import DualAttention
from ..positional_encoding import RotaryPositionalEncoding
from ..transformer_blocks import NormType
from .weights import init_weights

PositionEncoding = Literal["pos_emb", "RoPE", "none"]


class TokenModel(nn.Module):
    """A model of tokens. Subclasses register its parts, under the names of their state dicts.

    Arguments as :class:`~dual_attention.language_models.TransformerLM`.
    """

    gradient_checkpointing: bool = False
    """Whether blocks keep only their inputs for the backward pass, and are computed again there."""

    def __init__(
        self,
        n_layers: int,
        vocab_size: int,
        d_model: int,
        dropout_rate: float,
        norm_type: NormType,
        max_block_size: int,
        pos_enc_type: PositionEncoding,
    ) -> None:
        super().__init__()
        check_positive(vocab_size=vocab_size, n_layers=n_layers, max_block_size=max_block_size)
        if pos_enc_type not in ("pos_emb", "RoPE", "none"):
            raise ValueError(f"pos_enc_type: expected 'pos_emb', 'RoPE' or 'none', got {pos_enc_type!r}")
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.n_layers = n_layers
        self.dropout_rate = check_dropout("dropout_rate", dropout_rate)
        self.norm_type: NormType = norm_type
        self.block_size = max_block_size
        self.pos_enc_type: PositionEncoding = pos_enc_type

    def _rotary_encoding(self, width: int, theta: float) -> RotaryPositionalEncoding | None:
        """RoPE of that width, if the model has it."""
        return RotaryPositionalEncoding(width, self.block_size, theta) if self.pos_enc_type == "RoPE" else None

    def init_weights(self) -> None:
        """Draw all parameters anew, as the paper's language models are initialised.

        Linear layers, embeddings and W_r come from N(0, 0.02), biases are zero; what ends in the residual stream
        (``wo`` of attention, ``linear2`` of feed-forward blocks) comes from N(0, 0.02 / sqrt(2 L)); templates and
        symbols of symbolic attention from N(0, 1). With ``wr_init="large"``, relational attention draws its own W_r.
        """
        init_weights(self, n_layers=self.n_layers)


def rotary_width(attention: Attention | DualAttention, pos_enc_type: str) -> int:
    """The width of queries and keys that RoPE turns; it needs to be the same in all heads.

    Raises:
        ValueError: if it is not, and there is RoPE.
    """
    kinds = (
        [attention] if isinstance(attention, Attention) else [attention.self_attention, attention.relational_attention]
    )
    widths = [getattr(heads, "key_dim", heads.head_dim) for heads in kinds if heads is not None]
    if pos_enc_type == "RoPE" and len(set(widths)) > 1:
        raise ValueError(
            f"sa_kwargs, ra_kwargs: pos_enc_type='RoPE' needs one key_dim in both kinds of head, got {widths}"
        )
    return widths[0]
