"""Abstractors that read and write tokens (Altabaa et al. 2024, arXiv 2304.00195).

Shapes: B batch, S length of the source, T length of the target, d width of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._layers.cache import Cache, CacheGroup
from .._layers.continuation import cache_parts, transactional
from .._layers.inputs import check_positive
from .._models.retrievers import check_symbol_width
from .._models.seq2seq import EmbeddingInit, LossType, PositionEncoding, Seq2SeqModel
from ..functional import MaskPattern
from ..transformer_blocks import DecoderBlock, EncoderBlock
from .abstractor import Abstractor, AbstractorSymbols
from .encoder_abstractor_decoder import check_arrangement

__all__ = ["Seq2SeqAbstractor"]


class Seq2SeqAbstractor(Seq2SeqModel):
    """Sequence-to-sequence model by way of abstract symbols, in the four arrangements of
    :class:`~dual_attention.baselines.EncoderAbstractorDecoder`.

    Embeddings, positions, losses, masks and ways to generate are those of
    :class:`~dual_attention.seq2seq_models.Seq2SeqTransformer`.

    Args:
        symbol_retrieval, symbol_retrieval_kwargs: of the abstractor, see :class:`~dual_attention.baselines.Abstractor`.
        n_layers_enc, n_layers_abs, n_layers_dec: depths; no encoder, 0, in the arrangement without one.
        encoder_kwargs: arguments of :class:`~dual_attention.transformer_blocks.EncoderBlock` but for ``d_model``; not
            read without an encoder.
        abstractor_kwargs: arguments of :class:`~dual_attention.baselines.Abstractor` but for ``d_model``, ``n_layers``
            and symbols.
        decoder_kwargs: arguments of :class:`~dual_attention.transformer_blocks.DecoderBlock` but for ``d_model``. Here
            ``causal`` is True by default. A decoder that reads both has two such blocks in each layer.
        abstractor_reads: ``"source"``, embedded, or what the ``"encoder"`` makes of it.
        decoder_reads: only the ``"abstractor"``, or ``"both"``, encoder first.
        input_spec, output_spec, d_model, out_dim, in_block_size, out_block_size, tie_weights, loss_ignore_idx,
        loss_type, pos_enc, embedding_dropout, embedding_init: see
            :class:`~dual_attention.seq2seq_models.Seq2SeqTransformer`.

    Raises:
        TypeError, ValueError: as there; if there is an encoder that nobody reads, or none that somebody does.
    """

    encoder_is_optional = True

    def __init__(
        self,
        input_spec: Mapping[str, Any],
        output_spec: Mapping[str, Any],
        symbol_retrieval: AbstractorSymbols,
        symbol_retrieval_kwargs: Mapping[str, Any],
        d_model: int,
        out_dim: int,
        n_layers_enc: int,
        n_layers_abs: int,
        n_layers_dec: int,
        encoder_kwargs: Mapping[str, Any],
        abstractor_kwargs: Mapping[str, Any],
        decoder_kwargs: Mapping[str, Any],
        in_block_size: int,
        out_block_size: int,
        tie_weights: bool = True,
        loss_ignore_idx: int = -1,
        *,
        abstractor_reads: Literal["source", "encoder"] = "encoder",
        decoder_reads: Literal["abstractor", "both"] = "both",
        loss_type: LossType | None = None,
        pos_enc: PositionEncoding = "sinusoidal",
        embedding_dropout: float = 0.0,
        embedding_init: EmbeddingInit | None = None,
    ) -> None:
        check_positive(n_layers_abs=n_layers_abs)
        check_arrangement(abstractor_reads, decoder_reads, n_layers_enc)
        contexts = 2 if decoder_reads == "both" else 1
        super().__init__(
            input_spec,
            output_spec,
            d_model,
            out_dim,
            [EncoderBlock(d_model, **encoder_kwargs) for _ in range(n_layers_enc)],
            [_DecoderLayer(d_model, contexts, decoder_kwargs) for _ in range(n_layers_dec)],
            encoder_kwargs,
            decoder_kwargs,
            in_block_size,
            out_block_size,
            tie_weights,
            loss_ignore_idx,
            loss_type,
            pos_enc,
            embedding_dropout,
            embedding_init,
        )
        self.abstractor_reads = abstractor_reads
        self.decoder_reads = decoder_reads
        abstractor = Abstractor(
            d_model,
            n_layers_abs,
            symbol_retrieval=symbol_retrieval,
            symbol_retrieval_kwargs=symbol_retrieval_kwargs,
            **abstractor_kwargs,
        )
        check_symbol_width(abstractor.symbol_retriever, d_model)
        self.layers["abstractor"] = abstractor

    @property
    def memory_dim(self) -> int:
        """Width of what the decoder reads of the source: d for each of its contexts."""
        return 2 * self.d_model if self.decoder_reads == "both" else self.d_model

    def _remember(self, source: Tensor, positions: Tensor | None, pattern: MaskPattern) -> Tensor:
        encoded = super()._remember(source, positions, pattern)
        read = encoded if self.abstractor_reads == "encoder" else source
        abstract = self.layers["abstractor"](read, attn_mask=pattern, positions=positions)
        return torch.cat([encoded, abstract], dim=-1) if self.decoder_reads == "both" else abstract

    def _parts_of_encoder(self) -> list[nn.Module]:
        return [*super()._parts_of_encoder(), self.layers["abstractor"]]


class _DecoderLayer(nn.ModuleList):
    """A decoder block for each context; contexts come side by side in the memory ``(B, S, contexts * d)``."""

    def __init__(self, d_model: int, contexts: int, block_kwargs: Mapping[str, Any]) -> None:
        super().__init__(DecoderBlock(d_model, **{"causal": True, **block_kwargs}) for _ in range(contexts))

    @property
    def causal(self) -> bool:
        """Whether no position sees a later one."""
        return all(block.causal for block in self)

    def new_cache(self, max_length: int | None = None) -> CacheGroup:
        """An empty cache of all blocks."""
        return CacheGroup({str(n): block.new_cache(max_length) for n, block in enumerate(self)})  # type: ignore[operator]

    @transactional
    def forward(self, x: Tensor, memory: Tensor, *, cache: Cache | None = None, **masks: MaskPattern) -> Tensor:
        caches = cache_parts(cache, tuple(str(n) for n in range(len(self))))
        for number, (block, context) in enumerate(zip(self, memory.chunk(len(self), dim=-1), strict=True)):
            x = block(x, context, cache=caches[str(number)], **masks)
        return x
