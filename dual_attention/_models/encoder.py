"""Base of the bidirectional encoders: embeddings, positions, and the pass through the blocks.

Shapes: B batch, L length, d width of the model, K layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._layers.calls import takes
from .._layers.inputs import check_not_negative
from ..configs import EncoderConfig
from ..positional_encoding import rows_at, table_of
from ..transformer_blocks import create_norm
from .flops import CountsParameters
from .inputs import check_token_ids
from .stack import BlockInputs, Trace
from .token_model import TokenModel


class EncoderModel(CountsParameters, TokenModel):
    """A bidirectional encoder; its subclasses make the blocks.

    >>> encoder = TransformerEncoder(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> isinstance(encoder, EncoderModel), encoder(torch.tensor([[1, 2, 3]])).shape
    (True, torch.Size([1, 3, 32]))
    """

    _block_kind: Any
    """Class of the blocks."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        check_not_negative(n_token_types=config.n_token_types)
        self.n_token_types = config.n_token_types

        width = config.d_model
        kind = self._block_kind
        blocks = [kind(**config.arguments_for(kind)) for _ in range(config.n_layers)]
        self.token_embedder = nn.Embedding(config.vocab_size, width)
        self.positional_embedder = self.token_type_embedder = None
        if config.pos_enc_type == "pos_emb":
            self.positional_embedder = nn.Embedding(config.max_block_size, width)
        self.rope = self._rotary_encoding(blocks[0].attention, config)
        if config.n_token_types:
            self.token_type_embedder = nn.Embedding(config.n_token_types, width)
        self.embedding_norm = create_norm(width, config.norm_type if config.embedding_norm else "none")
        self.dropout = nn.Dropout(config.dropout_rate)
        self.blocks: Any = nn.ModuleList(blocks)
        final_norm = config.norm_first if config.final_norm is None else config.final_norm
        self.norm = create_norm(width, config.norm_type if final_norm else "none")

    def _stack(self) -> nn.ModuleList:
        return self.blocks

    def forward(
        self,
        x: Tensor | None,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        token_types: Tensor | None = None,
        embeddings: Tensor | None = None,
    ) -> Tensor:
        """Represent each token in the light of all tokens of its sequence: ``(B, L, d)``.

        Args:
            x: token ids, integers ``(B, L)``; None if ``embeddings`` are given.
            padding_mask, segments: boolean ``(B, L)`` and integers ``(B or 1, L)``, as :meth:`LanguageModel.forward
                <dual_attention.language_models.LanguageModel.forward>`. What is padding, and how much, does not matter.
            token_types: integers ``(B, L)`` below ``n_token_types``, by default 0: to which part of its example a
                token belongs.
            embeddings: vectors ``(B, L, d)`` in the place of those that the token ids are embedded as.

        Raises:
            TypeError, ValueError: if an argument has a wrong dtype or shape, a sequence is too long, or an id is out of
                range.
        """
        embedded, inputs = self._enter(
            x, padding_mask=padding_mask, segments=segments, token_types=token_types, embeddings=embeddings
        )
        return self.norm(self._pass(embedded, inputs))

    def _enter(
        self,
        x: Tensor | None,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        token_types: Tensor | None = None,
        embeddings: Tensor | None = None,
    ) -> tuple[Tensor, BlockInputs]:
        """Embedded tokens ``(B, L, d)``, and the inputs of every block."""
        embedded = self._embed(self.token_embedder, x, embeddings)
        positions, arguments = self._place(embedded, padding_mask, segments)
        places = embedded.shape[:2]
        if self.positional_embedder is not None:
            table = table_of(self.positional_embedder, embedded)
            embedded = embedded + rows_at(table, embedded, positions, limit="max_block_size")
        if self.token_type_embedder is not None:
            if token_types is None:
                token_types = torch.zeros(places, dtype=torch.long, device=embedded.device)
            check_token_ids("token_types", token_types, self.n_token_types, self.token_type_embedder)
            if token_types.shape != places:
                raise ValueError(f"token_types: expected shape {tuple(places)}, got {tuple(token_types.shape)}")
            embedded = embedded + self.token_type_embedder(token_types.long())
        elif token_types is not None:
            raise ValueError("token_types: this model has none, build it with n_token_types")
        return self.dropout(self.embedding_norm(embedded)), BlockInputs(arguments, positions)

    @takes(_enter)
    def trace(self, *args: Any, **kwargs: Any) -> Trace:
        """All hidden states, and the maps of all blocks, which are built for this; arguments as :meth:`forward`."""
        states, maps = self._record(*self._enter(*args, **kwargs))
        return Trace(self.norm(states[-1]), states, maps)
