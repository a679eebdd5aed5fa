"""Base of the bidirectional encoders: embeddings, positions, and the pass through the blocks.

Shapes: B batch, L length, d width of the model, K layers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .._layers.calls import typed_call
from ..dual_attn_blocks import DualAttnEncoderBlock
from ..positional_encoding import rows_at
from ..transformer_blocks import EncoderBlock, create_norm
from .config import EncoderConfig
from .inputs import check_token_ids, place_tokens
from .passing import Step, Trace, apply_blocks, are_causal, trace_blocks
from .token_model import TokenModel, rotary_encoding


class EncoderModel(TokenModel):
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
        x, step = self._begin(x, padding_mask, segments, token_types)
        return self.norm(apply_blocks(step, self.n_layers, x, recompute=self.gradient_checkpointing))

    def trace(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        token_types: Tensor | None = None,
    ) -> Trace:
        """All hidden states, and the maps of all blocks, which are built for this; arguments as :meth:`forward`."""
        x, step = self._begin(x, padding_mask, segments, token_types)
        states, maps = trace_blocks(step, self.n_layers, x)
        return Trace(self.norm(states[-1]), states, maps)

    def _begin(
        self, x: Tensor, padding_mask: Tensor | None, segments: Tensor | None, token_types: Tensor | None
    ) -> tuple[Tensor, Step]:
        """Input of the first block, and how each block is applied; arguments as :meth:`forward`."""
        x, positions, arguments = self._enter(x, padding_mask, segments, token_types)

        def step(number: int, x: Tensor, symbols: Any, need_weights: bool = False) -> tuple[Any, Any]:
            return self._block(number, x, symbols, positions, {**arguments, "need_weights": need_weights})

        return x, step

    def _block(
        self, number: int, x: Tensor, symbols: Any, positions: Tensor | None, arguments: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        """Output of a block, and symbols for the next, see :class:`~dual_attention._models.passing.Step`."""
        return self.blocks[number](x, **arguments), symbols

    def _enter(
        self, x: Tensor, padding_mask: Tensor | None, segments: Tensor | None, token_types: Tensor | None
    ) -> tuple[Tensor, Tensor | None, dict[str, Any]]:
        """Embedded tokens ``(B, L, d)``, their positions, and the keyword arguments of all blocks."""
        _, positions, pattern = place_tokens(
            x,
            padding_mask,
            segments,
            vocab_size=self.vocab_size,
            context=self.block_size,
            is_causal=are_causal(self.blocks),
        )
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
        return self.dropout(self.embedding_norm(embedded)), positions, arguments

    __call__ = typed_call(forward)
