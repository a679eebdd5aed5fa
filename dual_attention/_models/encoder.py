"""Base of the bidirectional encoders: embeddings, positions, and the pass through the blocks.

Shapes: B batch, L length, d width of the model, K layers.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor, nn

from ..dual_attn_blocks import DualAttnEncoderBlock
from ..positional_encoding import rows_at
from ..transformer_blocks import EncoderBlock, create_norm
from .config import EncoderConfig
from .flops import CountsParameters
from .inputs import check_token_ids, place_tokens
from .passing import BlockInputs, Trace, are_causal
from .token_model import TokenModel, rotary_encoding

if TYPE_CHECKING:
    from typing_extensions import Unpack


class EncoderInputs(TypedDict, total=False):
    """Further arguments of :meth:`EncoderModel.forward`."""

    padding_mask: Tensor | None
    segments: Tensor | None
    token_types: Tensor | None


class EncoderModel(CountsParameters, TokenModel):
    """A bidirectional encoder; its subclasses make the blocks."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        if config.n_token_types < 0:
            raise ValueError(f"n_token_types: expected zero or more, got {config.n_token_types}")
        self.n_token_types = config.n_token_types

        width = config.d_model
        blocks = [self._create_block(config) for _ in range(config.n_layers)]
        self.token_embedder = nn.Embedding(config.vocab_size, width)
        self.positional_embedder = self.token_type_embedder = None
        if config.pos_enc_type == "pos_emb":
            self.positional_embedder = nn.Embedding(config.max_block_size, width)
        self.rope = rotary_encoding(blocks[0].attention, config)
        if config.n_token_types:
            self.token_type_embedder = nn.Embedding(config.n_token_types, width)
        self.embedding_norm = create_norm(width, config.norm_type if config.embedding_norm else "none")
        self.dropout = nn.Dropout(config.dropout_rate)
        self.blocks = nn.ModuleList(blocks)
        final_norm = config.norm_first if config.final_norm is None else config.final_norm
        self.norm = create_norm(width, config.norm_type if final_norm else "none")

    @abstractmethod
    def _create_block(self, config: EncoderConfig) -> EncoderBlock | DualAttnEncoderBlock:
        """One of the blocks, not causal."""

    def _stack(self) -> nn.ModuleList:
        return self.blocks

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
        return self.norm(self._pass(*self._enter(x, padding_mask, segments, token_types)))

    def trace(self, x: Tensor, **given: Unpack[EncoderInputs]) -> Trace:
        """All hidden states, and the maps of all blocks, which are built for this; arguments as :meth:`forward`."""
        states, maps = self._record(*self._enter(x, **given))
        return Trace(self.norm(states[-1]), states, maps)

    def _enter(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        token_types: Tensor | None = None,
    ) -> tuple[Tensor, BlockInputs]:
        """Embedded tokens ``(B, L, d)``, and the inputs of every block."""
        sizes: dict[str, Any] = {"vocab_size": self.vocab_size, "context": self.block_size}
        _, positions, pattern = place_tokens(x, padding_mask, segments, is_causal=are_causal(self.blocks), **sizes)
        arguments: dict[str, Any] = {"attn_mask": pattern}
        if self.rope is not None:
            tables = self.rope.tables(x.shape[1]) if positions is None else self.rope.tables_at(positions)
            # One row for all examples is a table like any other.
            tables = [table[0] if table.dim() == 3 and len(table) == 1 else table for table in tables]
            arguments["freqs_cos"], arguments["freqs_sin"] = tables
        embedded = self.token_embedder(x)
        if self.positional_embedder is not None:
            embedded = embedded + rows_at(self.positional_embedder.weight, x, positions, limit="max_block_size")
        if self.token_type_embedder is not None:
            token_types = torch.zeros_like(x) if token_types is None else token_types
            check_token_ids("token_types", token_types, self.n_token_types)
            if token_types.shape != x.shape:
                raise ValueError(
                    f"token_types: expected the shape of x, {tuple(x.shape)}, got {tuple(token_types.shape)}"
                )
            embedded = embedded + self.token_type_embedder(token_types)
        elif token_types is not None:
            raise ValueError("token_types: this model has none, build it with n_token_types")
        return self.dropout(self.embedding_norm(embedded)), BlockInputs(arguments, positions)
