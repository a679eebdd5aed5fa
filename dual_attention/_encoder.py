"""What the bidirectional encoders share: embeddings, positions, and passing tokens through the blocks.

Shapes: B batch, L length, d width of the model, K layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ._heads import check_dropout, check_positive
from ._initialisation import init_weights
from ._model_inputs import check_padding, check_segments, check_tokens, token_positions
from .dual_attention import DualAttentionOutput
from .positional_encoding import RotaryPositionalEncoding, check_positions, rows_at
from .transformer_blocks import NormType, create_norm

PositionEncoding = Literal["pos_emb", "RoPE", "none"]


class EncoderTrace(NamedTuple):
    """What passed through an encoder.

    Attributes:
        hidden: ``(B, L, d)``, its output.
        states: K + 1 tensors ``(B, L, d)``: what enters each block, and what leaves the last.
        maps: of each block its attention weights ``(B, H, L, L)``, or its
            :class:`~dual_attention.dual_attention.DualAttentionOutput`.
    """

    hidden: Tensor
    states: tuple[Tensor, ...]
    maps: tuple[Tensor | DualAttentionOutput, ...]


class EncoderModel(nn.Module):
    """A bidirectional encoder around given blocks.

    Args:
        blocks: K of them, not causal.
        rotary_dim: width of the queries and keys that RoPE turns.
        vocab_size, d_model, dropout_rate, norm_type, max_block_size, pos_enc_type, n_token_types, embedding_norm,
        final_norm, rope_theta: as :class:`~dual_attention.encoder_models.TransformerEncoder`.
    """

    gradient_checkpointing: bool = False
    """Whether blocks keep only their inputs for the backward pass, and are computed again there."""

    def __init__(
        self,
        blocks: Sequence[nn.Module],
        *,
        rotary_dim: int,
        vocab_size: int,
        d_model: int,
        dropout_rate: float,
        norm_type: NormType,
        max_block_size: int,
        pos_enc_type: PositionEncoding,
        n_token_types: int,
        embedding_norm: bool,
        final_norm: bool,
        rope_theta: float,
    ) -> None:
        super().__init__()
        check_positive(vocab_size=vocab_size, n_layers=len(blocks), max_block_size=max_block_size)
        if pos_enc_type not in ("pos_emb", "RoPE", "none"):
            raise ValueError(f"pos_enc_type: expected 'pos_emb', 'RoPE' or 'none', got {pos_enc_type!r}")
        if n_token_types < 0:
            raise ValueError(f"n_token_types: expected zero or more, got {n_token_types}")
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.n_layers = len(blocks)
        self.dropout_rate = check_dropout("dropout_rate", dropout_rate)
        self.norm_type: NormType = norm_type
        self.block_size = max_block_size
        self.pos_enc_type = pos_enc_type
        self.n_token_types = n_token_types

        self.token_embedder = nn.Embedding(vocab_size, d_model)
        self.positional_embedder = self.token_type_embedder = self.rope = None
        if pos_enc_type == "pos_emb":
            self.positional_embedder = nn.Embedding(max_block_size, d_model)
        elif pos_enc_type == "RoPE":
            self.rope = RotaryPositionalEncoding(rotary_dim, max_block_size, rope_theta)
        if n_token_types:
            self.token_type_embedder = nn.Embedding(n_token_types, d_model)
        self.embedding_norm = create_norm(d_model, norm_type if embedding_norm else "none")
        self.dropout = nn.Dropout(dropout_rate)
        self.blocks = nn.ModuleList(blocks)
        self.norm = create_norm(d_model, norm_type if final_norm else "none")

    def init_weights(self) -> None:
        """Draw all parameters anew, as those of the language models."""
        init_weights(self, n_layers=self.n_layers)

    def get_num_params(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        token_types: Tensor | None = None,
    ) -> Tensor:
        """Represent each token in the light of all tokens of its sequence.

        Args:
            x: token ids, integers ``(B, L)``.
            padding_mask: boolean ``(B, L)``; True = a real token. Padding may be on the left or on the right; what
                stands there does not matter, nor how much of it there is.
            segments: integers ``(B or 1, L)``: sequences packed into one, end to end, do not see each other, and
                positions begin again with each. A row may be longer than ``max_block_size`` then, its sequences may
                not.
            token_types: integers ``(B, L)`` below ``n_token_types``, by default 0: to which part of its example a
                token belongs.

        Returns:
            ``(B, L, d)``.

        Raises:
            TypeError, ValueError: if an argument has a wrong dtype or shape, a sequence is too long, or an id is out of
                range.
        """
        x, positions, arguments = self._enter(x, padding_mask, segments, token_types)
        again = self.gradient_checkpointing and torch.is_grad_enabled()
        symbols: Any = None
        for layer in range(self.n_layers):
            step = (layer, x, symbols, positions, arguments)
            x, symbols = checkpoint(self._block, *step, use_reentrant=False) if again else self._block(*step)
        return self.norm(x)

    def trace(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        token_types: Tensor | None = None,
    ) -> EncoderTrace:
        """All hidden states and the maps of all blocks, which are built for it; arguments as :meth:`forward`."""
        x, positions, arguments = self._enter(x, padding_mask, segments, token_types)
        symbols: Any = None
        states, maps = [x], []
        for layer in range(self.n_layers):
            (x, found), symbols = self._block(layer, x, symbols, positions, {**arguments, "need_weights": True})
            states.append(x)
            maps.append(found)
        return EncoderTrace(self.norm(x), tuple(states), tuple(maps))

    def _block(
        self, layer: int, x: Tensor, symbols: Any, positions: Tensor | None, arguments: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        """What a block returns, and the symbols that it was given, if it takes any."""
        return self.blocks[layer](x, **arguments), symbols

    def _enter(
        self, x: Tensor, padding_mask: Tensor | None, segments: Tensor | None, token_types: Tensor | None
    ) -> tuple[Tensor, Tensor | None, dict[str, Any]]:
        """Embedded tokens ``(B, L, d)``, their positions, and the keyword arguments of all blocks."""
        check_tokens("x", x, self.vocab_size)
        batch, length = x.shape
        check_padding("padding_mask", padding_mask, batch, length)
        if segments is None and length > self.block_size:
            raise ValueError(f"x: expected at most max_block_size={self.block_size} tokens, got {length}")
        check_segments(segments, batch, length)
        positions = token_positions(padding_mask, segments)
        if positions is not None:
            why = f"max_block_size={self.block_size}"
            check_positions(positions, batch, length, self.block_size - 1, why)
        arguments: dict[str, Any] = {"padding_mask": padding_mask, "segments": segments}
        if self.rope is not None:
            tables = self.rope.tables(length) if positions is None else self.rope.tables_at(positions)
            # One row for all examples is a table like any other.
            tables = [table[0] if table.dim() == 3 and len(table) == 1 else table for table in tables]
            arguments["freqs_cos"], arguments["freqs_sin"] = tables
        embedded = self.token_embedder(x)
        if self.positional_embedder is not None:
            embedded = embedded + rows_at(self.positional_embedder.weight, x, positions, limit="max_block_size")
        if self.token_type_embedder is not None:
            token_types = torch.zeros_like(x) if token_types is None else token_types
            check_tokens("token_types", token_types, self.n_token_types)
            if token_types.shape != x.shape:
                raise ValueError(
                    f"token_types: expected the shape of x, {tuple(x.shape)}, got {tuple(token_types.shape)}"
                )
            embedded = embedded + self.token_type_embedder(token_types)
        elif token_types is not None:
            raise ValueError("token_types: this model has none, build it with n_token_types")
        return self.dropout(self.embedding_norm(embedded)), positions, arguments
