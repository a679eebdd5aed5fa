"""Base of the models of tokens with one stack of blocks: sizes and initialisation."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .._layers.heads import Heads
from .._layers.inputs import check_depth, check_dropout, check_positive, check_vectors
from .._layers.options import NormType
from ..functional.symbols import lookup
from ..positional_encoding import RotaryPositionalEncoding
from .config import TokenPositions, TokensConfig
from .inputs import check_token_ids, place_tokens
from .stack import StackModel, are_causal
from .weights import init_weights


class TokenModel(StackModel):
    """A model of tokens. Subclasses register its parts, under the names of their state dicts."""

    rope: RotaryPositionalEncoding | None

    def __init__(self, config: TokensConfig) -> None:
        super().__init__()
        kind = config.pos_enc_type
        check_positive(vocab_size=config.vocab_size, max_block_size=config.max_block_size)
        check_depth(n_layers=config.n_layers)
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

    def _embed(self, embedder: nn.Module, x: Tensor | None, embeddings: Tensor | None) -> Tensor:
        """Vectors ``(B, N, d)`` of the token ids, or those that are given in their place; checked."""
        if x is None and embeddings is not None:
            check_vectors("embeddings", embeddings, self.d_model)
            return embeddings
        if x is None or embeddings is not None:
            raise ValueError(f"x, embeddings: expected one of them, got {'neither' if x is None else 'both'}")
        check_token_ids("x", x, self.vocab_size, embedder)
        return embedder(x)

    def _place(
        self,
        x: Tensor,
        padding_mask: Tensor | None,
        segments: Tensor | None,
        positions: Tensor | None = None,
        cached: int | None = None,
        gathered: bool = False,
    ) -> tuple[Tensor | None, dict[str, Any]]:
        """Positions of tokens ``(B, N, ...)``, and the arguments of every block, see :func:`.inputs.place_tokens`."""
        positions, pattern = place_tokens(
            x,
            padding_mask,
            segments,
            positions,
            context=self.block_size,
            is_causal=are_causal(self._stack()),
            cached=cached,
            gathered=gathered,
        )
        rope, earlier = self.rope, cached or 0
        if rope is None:
            return positions, {"attn_mask": pattern}
        if positions is None:
            cos, sin = rope.tables(earlier + x.shape[1])
        else:  # rows from `earlier` on belong to the new tokens, the only ones to be read
            where = positions[0] if positions.shape[0] == 1 else positions
            tables = (lookup(table, where.long()) for table in (rope.freqs_cos, rope.freqs_sin))
            cos, sin = (nn.functional.pad(table, (0, 0, earlier, 0)) for table in tables)
        return positions, {"attn_mask": pattern, "freqs_cos": cos, "freqs_sin": sin}


def rotary_encoding(attention: nn.Module, config: TokensConfig) -> RotaryPositionalEncoding | None:
    """RoPE of the width of the queries and keys, which must be the same in all heads; None without rotary positions."""
    if config.pos_enc_type != "RoPE":
        return None
    widths = [heads.key_dim for heads in attention.modules() if isinstance(heads, Heads)]
    if len(set(widths)) > 1:
        raise ValueError(
            f"sa_kwargs, ra_kwargs: pos_enc_type='RoPE' needs one key_dim in both kinds of head, got {widths}"
        )
    return RotaryPositionalEncoding(widths[0], config.max_block_size, config.rope_theta)
