"""Base of the models of tokens with one stack of blocks: sizes, initialisation, and what tokens see.

Shapes: B batch, N length (of the new tokens, with a cache), t earlier tokens, d width of the model, L layers.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .._layers.call import shared_pattern
from .._layers.heads import Heads
from .._layers.inputs import (
    check_choice,
    check_depth,
    check_dropout,
    check_padding,
    check_places,
    check_positive,
    check_vectors,
)
from ..configs import NormType, TokenPositions, TokensConfig
from ..functional.checks import require_rate
from ..functional.symbols import lookup
from ..positional_encoding import RotaryPositionalEncoding, check_positions
from .inputs import check_token_ids, count_positions
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
        check_choice("pos_enc_type", kind, TokenPositions)
        self.vocab_size = config.vocab_size
        self.d_model = config.d_model
        self.n_layers = config.n_layers
        self.dropout_rate = check_dropout("dropout_rate", config.dropout_rate)
        self.norm_type: NormType = config.norm_type
        self.block_size = config.max_block_size
        self.pos_enc_type: TokenPositions = kind

    def _rotary_encoding(self, attention: nn.Module, config: TokensConfig) -> RotaryPositionalEncoding | None:
        """RoPE for heads such as those of ``attention``, or None."""
        if config.pos_enc_type != "RoPE":
            return None
        return rotary_encoding(attention, config.max_block_size, config.rope_theta)

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
        return embedder(x.long())

    def _place(
        self,
        x: Tensor,
        padding_mask: Tensor | None,
        segments: Tensor | None,
        positions: Tensor | None = None,
        cached: int | None = None,
        gathered: bool = False,
    ) -> tuple[Tensor | None, dict[str, Any]]:
        """Check what comes with the tokens ``x`` ``(B, N, ...)``, and place them in their sequences.

        ``cached``: t, if there is a cache; ``gathered``: whether it gathers the tokens of other processes, and segments
        are then ``(B or 1, t + N)``; others as :meth:`LanguageModel.forward
        <dual_attention.language_models.LanguageModel.forward>`.

        Returns:
            Positions, integers ``(B or 1, N)``, or None if they are N in a row from t on; and the arguments of every
            block, with one pattern of the pairs that may be attended, ``(N, t + N)``, for all layers.
        """
        (batch, n), earlier, context = x.shape[:2], cached or 0, self.block_size
        if padding_mask is not None:
            check_padding("padding_mask", padding_mask, batch, n, earlier)
        if segments is not None and cached is not None and not gathered:
            raise ValueError("segments: packed sequences cannot be continued from a cache; give one or the other")
        if segments is not None:
            check_places("segments", segments, batch, earlier + n)
        order = {"causal": are_causal(self._stack()), "earlier": earlier}
        pattern = shared_pattern(x, earlier + n, padding=padding_mask, segments=segments, **order)
        limit = f"the context, max_block_size={context}"
        if positions is None and segments is None and earlier + n > context:
            raise ValueError(f"x: a sequence of {earlier + n} tokens is longer than {limit}")
        may_exceed = positions is not None or n > context
        if positions is None and not (padding_mask is None and segments is None):
            positions = count_positions(padding_mask, segments, earlier=earlier)
        if may_exceed and positions is not None:
            check_positions(positions, batch, n, context - 1, limit)
            positions = positions.long()
        rope = self.rope
        if rope is None:
            return positions, {"attn_mask": pattern}
        return positions, {"attn_mask": pattern, **rotary_arguments(rope, positions, n, earlier)}


def rotary_encoding(
    attention: nn.Module, longest: int, theta: float, *, name: str = "sa_kwargs, ra_kwargs"
) -> RotaryPositionalEncoding:
    """RoPE of the width of the queries and keys, which must be the same in all heads.

    Args:
        name: of the argument that sets the widths.
    """
    require_rate("rope_theta", theta)
    return RotaryPositionalEncoding(rotary_width(attention, name, 2), longest, theta)


def rotary_width(attention: nn.Module, name: str, multiple: int) -> int:
    """The one width of the queries and keys of all heads; ``ValueError`` unless it is a multiple of 2, or of 4."""
    widths = [heads.key_dim for heads in attention.modules() if isinstance(heads, Heads)]
    if len(set(widths)) > 1:
        raise ValueError(f"{name}: rotary positions need one key_dim in all heads, got {widths}")
    if widths[0] % multiple:
        expected = {2: "an even width", 4: "a width that is a multiple of 4"}[multiple]
        raise ValueError(f"{name}: rotary positions need heads of {expected}, got {widths[0]}")
    return widths[0]


def rotary_arguments(
    rope: RotaryPositionalEncoding, positions: Tensor | None, n: int, earlier: int
) -> dict[str, Tensor]:
    """RoPE's tables for blocks that are given ``n`` tokens after ``earlier`` ones of a cache.

    ``positions``: integers ``(B or 1, n)``, or None if they are ``n`` in a row from ``earlier`` on.
    """
    if positions is None:
        cos, sin = rope.tables(earlier + n)
    else:  # rows from `earlier` on belong to the new tokens, the only ones to be read
        where = positions[0] if positions.shape[0] == 1 else positions
        tables = (lookup(table, where.long()) for table in (rope.freqs_cos, rope.freqs_sin))
        cos, sin = (nn.functional.pad(table, (0, 0, earlier, 0)) for table in tables)
    return {"freqs_cos": cos, "freqs_sin": sin}
