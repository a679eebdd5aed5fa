"""Abstractors from tokens to tokens (Altabaa et al. 2024, arXiv 2304.00195).

Shapes: B batch, S length of the source, T length of the target, d width of the model.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._layers.cache import Cache, CacheGroup
from .._layers.call import cache_parts, transaction
from .._layers.inputs import check_choice, check_depth
from .._layers.options import check_complete, checked_options
from .._models.retrievers import check_symbol_width
from .._models.seq2seq import Seq2SeqModel, Side
from ..configs import EmbeddingInit, LossType, PairPositions, Seq2SeqConfig
from ..functional import MaskPattern
from ..transformer_blocks import DecoderBlock, EncoderBlock
from .abstractor import Abstractor, AbstractorSymbols


def check_arrangement(abstractor_reads: str, decoder_reads: str, n_layers_enc: int) -> None:
    """Raise ``ValueError`` unless it is one of the four arrangements, with an encoder where it has one."""
    check_choice("abstractor_reads", abstractor_reads, ("source", "encoder"))
    check_choice("decoder_reads", decoder_reads, ("abstractor", "both"))
    encoded = abstractor_reads == "encoder" or decoder_reads == "both"
    check_depth(0, n_layers_enc=n_layers_enc)
    if (n_layers_enc > 0) != encoded:
        raise ValueError(
            f"n_layers_enc: expected {'at least 1' if encoded else '0, since nothing reads an encoder'} with "
            f"abstractor_reads={abstractor_reads!r} and decoder_reads={decoder_reads!r}, got {n_layers_enc}"
        )


class DecoderLayer(nn.ModuleList):
    """A causal decoder block for each context; these are given one by one, or side by side ``(B, N, contexts * d)``."""

    @property
    def causal(self) -> bool:
        """Whether no position sees a later one."""
        return all(block.causal for block in self)

    def new_cache(self, max_length: int | None = None) -> CacheGroup:
        """An empty cache of all blocks."""
        return CacheGroup({str(n): block.new_cache(max_length) for n, block in enumerate(self)})  # type: ignore[operator]

    def forward(self, x: Tensor, *contexts: Tensor, cache: Cache | None = None, **masks: MaskPattern) -> Tensor:
        with transaction(cache):
            caches = cache_parts(cache, tuple(str(n) for n in range(len(self))))
            if len(contexts) < len(self):
                contexts = contexts[0].chunk(len(self), dim=-1)
            for number, (block, context) in enumerate(zip(self, contexts, strict=True)):
                x = block(x, context, cache=caches[str(number)], **masks)
            return x


@dataclass(frozen=True, kw_only=True)
class Seq2SeqAbstractorConfig(Seq2SeqConfig):
    """A sequence-to-sequence model with an abstractor."""

    decoder_reads: Literal["abstractor", "both"] = "both"
    """Contexts of the decoder: the abstractor, or both, encoder first."""


class Seq2SeqAbstractor(Seq2SeqModel):
    """Sequence-to-sequence model by way of abstract symbols, in the four arrangements of the paper.

    ======================  ======================  ===============================================================
    ``abstractor_reads``    ``decoder_reads``       arrangement
    ======================  ======================  ===============================================================
    ``"source"``            ``"abstractor"``        (a) abstractor, decoder; no encoder
    ``"encoder"``           ``"abstractor"``        (b) encoder, abstractor, decoder
    ``"source"``            ``"both"``              (c) encoder and abstractor side by side, the decoder reads both
    ``"encoder"``           ``"both"``              (d) encoder, abstractor; the decoder reads both
    ======================  ======================  ===============================================================

    Embeddings, positions, losses, masks and ways to generate are those of
    :class:`~dual_attention.seq2seq_models.Seq2SeqTransformer`.

    Args:
        symbol_retrieval, symbol_retrieval_kwargs: as :class:`~dual_attention.baselines.Abstractor`.
        n_layers_enc, n_layers_abs, n_layers_dec: depths; ``n_layers_enc`` is 0 in the arrangement without an encoder.
        encoder_kwargs: arguments of :class:`.EncoderBlock` except ``d_model``; unused without an encoder.
        abstractor_kwargs: arguments of :class:`.Abstractor` except ``d_model``, ``n_layers`` and symbols.
        decoder_kwargs: arguments of :class:`.DecoderBlock` except ``d_model``, with ``causal`` True by default. A
            decoder that reads both has two such blocks in each layer.
        abstractor_reads: the embedded ``"source"``, or the output of the ``"encoder"``.
        decoder_reads: only the ``"abstractor"``, or ``"both"``, encoder first.
        others: see :class:`~dual_attention.seq2seq_models.Seq2SeqTransformer`.

    >>> spec, symbols = {"type": "token", "vocab_size": 50}, {"d_model": 32, "n_heads": 2, "n_symbols": 8}
    >>> heads = {"n_heads": 2, "dff": 64, "dropout_rate": 0.0, "activation": "relu", "norm_first": True}
    >>> blocks = heads, heads, {**heads, "n_heads_cross": 2}
    >>> model = Seq2SeqAbstractor(spec, spec, "symbolic_attention", symbols, 32, 50, 1, 1, 1, *blocks, 16, 16)
    >>> model(torch.randint(50, (2, 9)), torch.randint(50, (2, 5)), torch.randint(50, (2, 5)))[0].shape
    torch.Size([2, 5, 50])
    """

    encoder_is_optional = True
    _kinds = types.MappingProxyType({"encoder": EncoderBlock, "decoder": DecoderBlock})

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
        pos_enc: PairPositions = "sinusoidal",
        embedding_dropout: float = 0.0,
        embedding_init: EmbeddingInit | None = None,
    ) -> None:
        check_depth(n_layers_abs=n_layers_abs)
        check_arrangement(abstractor_reads, decoder_reads, n_layers_enc)
        super().__init__(Seq2SeqAbstractorConfig.of(locals()))
        self.abstractor_reads = abstractor_reads
        self.decoder_reads = decoder_reads
        symbols = {"symbol_retrieval": symbol_retrieval, "symbol_retrieval_kwargs": symbol_retrieval_kwargs}
        taken = ("d_model", "n_layers", *symbols)
        options = checked_options("abstractor_kwargs", abstractor_kwargs, Abstractor, taken=taken)
        options = {"d_model": d_model, "n_layers": n_layers_abs, **symbols, **options}
        check_complete("abstractor_kwargs", options, Abstractor)
        abstractor = Abstractor(**options)
        check_symbol_width(abstractor.symbol_retriever, d_model)
        self.layers["abstractor"] = abstractor

    def _create_block(self, side: Side, config: Seq2SeqAbstractorConfig) -> nn.Module:
        create = super()._create_block
        if side == "encoder":
            return create(side, config)
        return DecoderLayer(create(side, config) for _ in range(2 if config.decoder_reads == "both" else 1))

    @property
    def memory_dim(self) -> int:
        """Width of the decoder's contexts side by side, d for each."""
        return 2 * self.d_model if self.decoder_reads == "both" else self.d_model

    def _remember(self, source: Tensor, positions: Tensor | None, pattern: MaskPattern) -> Tensor:
        encoded = super()._remember(source, positions, pattern)
        read = encoded if self.abstractor_reads == "encoder" else source
        abstract = self.layers["abstractor"](read, attn_mask=pattern, positions=positions)
        return torch.cat([encoded, abstract], dim=-1) if self.decoder_reads == "both" else abstract

    def _parts_of_encoder(self) -> list[nn.Module]:
        return [*super()._parts_of_encoder(), self.layers["abstractor"]]
