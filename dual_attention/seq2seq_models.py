"""Sequence-to-sequence models: the encoder-decoder Transformer, and the same with dual attention."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ._layers.cache import Cache
from ._layers.symbols import Symbols
from ._models.retrievers import (
    check_symbol_width,
    check_symbols_fit,
    create_symbol_retriever,
    retrieve_symbols,
    symbol_sizes,
)
from ._models.seq2seq import Seq2SeqModel, Side
from ._models.weights import ignore_weights
from .configs import EmbeddingInit, LossType, PairPositions, Seq2SeqConfig, SequenceSymbolRetrieval
from .dual_attn_blocks import DualAttnDecoderBlock, DualAttnEncoderBlock
from .language_models import configure_optimizers
from .symbol_retrieval import RelationalSymbolicAttention
from .transformer_blocks import DecoderBlock, EncoderBlock

__all__ = ["Seq2SeqDualAttnTransformer", "Seq2SeqModel", "Seq2SeqTransformer", "configure_optimizers"]


class Seq2SeqTransformer(Seq2SeqModel):
    """Encoder-decoder Transformer (Vaswani et al. 2017, arXiv 1706.03762).

    Tokens or vectors come in, tokens or vectors come out. The published package does not tie weights, whatever
    ``tie_weights`` says. A state dict that it saved with ``tie_weights=True`` says so by its names, and loading it
    unties this model; another state dict in which the two weights differ is refused by a tied model.

    Args:
        input_spec, output_spec: ``{"type": "token", "vocab_size": n}`` or ``{"type": "vector", "dim": n}``: what the
            encoder and the decoder read.
        d_model: width of the model.
        out_dim: V, number of classes, or width of the predicted vectors.
        n_layers_enc, n_layers_dec: depths.
        encoder_kwargs: arguments of :class:`~dual_attention.transformer_blocks.EncoderBlock` except ``d_model``.
        decoder_kwargs: arguments of :class:`~dual_attention.transformer_blocks.DecoderBlock` except ``d_model``.
            Here ``causal`` is True by default.
        in_block_size, out_block_size: largest lengths.
        tie_weights: one weight for the target embedding and the output layer. Vectors have no embedding to share.
        loss_ignore_idx: class that is not scored.
        loss_type: ``"cross_entropy"`` or ``"mse"``; by default the first for tokens and the second for vectors.
        pos_enc: ``"sinusoidal"`` or ``"learned"`` positions, added to ``sqrt(d)`` times the embeddings, or ``"none"``:
            plain embeddings.
        embedding_dropout: rate on embeddings.
        embedding_init: how large embeddings of tokens begin. ``"published"``: standard deviation 1, so that after the
            multiplication by ``sqrt(d)`` they all but drown the positions. ``"scaled"``: ``d_model ** -0.5``, as large
            as the positions, and small enough for an output layer. By default the latter with tied weights, which the
            published package has not, and the former without.
        rope_theta: base of rotary positions (RoPE) in the self-attention of both sides, such as 10000, beside those of
            ``pos_enc``; by default none. Cross-attention has no positions of its own.

    >>> spec, heads = {"type": "token", "vocab_size": 50}, {"n_heads": 2, "dff": 64}
    >>> blocks = {"encoder_kwargs": heads, "decoder_kwargs": {**heads, "n_heads_cross": 2}}
    >>> model = Seq2SeqTransformer(spec, spec, d_model=32, out_dim=50, n_layers_enc=1, n_layers_dec=1, **blocks)
    >>> source, target = torch.randint(50, (2, 9)), torch.randint(50, (2, 5))
    >>> logits, loss = model(source, target[:, :-1], targets=target[:, 1:])
    >>> logits.shape, loss.shape
    (torch.Size([2, 4, 50]), torch.Size([]))
    """

    _kinds = types.MappingProxyType({"encoder": EncoderBlock, "decoder": DecoderBlock})

    def __init__(
        self,
        input_spec: Mapping[str, Any],
        output_spec: Mapping[str, Any],
        d_model: int,
        out_dim: int,
        n_layers_enc: int,
        n_layers_dec: int,
        encoder_kwargs: Mapping[str, Any],
        decoder_kwargs: Mapping[str, Any],
        in_block_size: int = 1024,
        out_block_size: int = 1024,
        tie_weights: bool = True,
        loss_ignore_idx: int = -1,
        *,
        loss_type: LossType | None = None,
        pos_enc: PairPositions = "sinusoidal",
        embedding_dropout: float = 0.0,
        embedding_init: EmbeddingInit | None = None,
        rope_theta: float | None = None,
    ) -> None:
        super().__init__(Seq2SeqConfig.of(locals()))


class Seq2SeqDualAttnTransformer(Seq2SeqModel):
    """Encoder-decoder Dual Attention Transformer (arXiv 2405.16727, section 4.2).

    Each block is given symbols for what enters it, before its normalisation. Cross-attention is sensory. A side without
    relational heads retrieves no symbols, and a retriever that neither side reads is not built.

    Args:
        symbol_retrieval: ``"symbolic_attention"``, ``"rel_sym_attn"``, ``"positional_symbols"`` or
            ``"position_relative"``.
        symbol_retrieval_kwargs: arguments of that class of :mod:`dual_attention.symbol_retrieval`. None takes those of
            :class:`~dual_attention.language_models.DualAttnTransformerLM`, with as many heads as the encoder. For
            ``"positional_symbols"``, ``max_length`` is to cover source and target.
        encoder_kwargs: arguments of :class:`~dual_attention.dual_attn_blocks.DualAttnEncoderBlock` but for
            ``d_model``; with position-relative symbols, ``ra_kwargs={"use_relative_positional_symbols": True}``.
        decoder_kwargs: arguments of :class:`~dual_attention.dual_attn_blocks.DualAttnDecoderBlock` likewise.
        decoder_symbol_retrieval, decoder_symbol_retrieval_kwargs: a retriever of the decoder's own; by default one
            serves both sides. A causal decoder refuses symbols that depend on later tokens.
        update_symbols_each_layer: retrieve symbols anew for each block, as the published package does; otherwise once
            on each side, for the first.
        others: as :class:`Seq2SeqTransformer`.

    >>> spec, heads = {"type": "token", "vocab_size": 50}, {"n_heads_sa": 1, "n_heads_ra": 1, "dff": 64}
    >>> blocks = {"encoder_kwargs": heads, "decoder_kwargs": {**heads, "n_heads_cross": 2}}
    >>> sizes = {"d_model": 32, "out_dim": 50, "n_layers_enc": 1, "n_layers_dec": 1}
    >>> model = Seq2SeqDualAttnTransformer(spec, spec, "symbolic_attention", {"n_symbols": 8}, **sizes, **blocks)
    >>> model(torch.randint(50, (2, 9)), torch.randint(50, (2, 5)), targets=torch.randint(50, (2, 5)))[0].shape
    torch.Size([2, 5, 50])
    """

    _kinds = types.MappingProxyType({"encoder": DualAttnEncoderBlock, "decoder": DualAttnDecoderBlock})

    def __init__(
        self,
        input_spec: Mapping[str, Any],
        output_spec: Mapping[str, Any],
        symbol_retrieval: SequenceSymbolRetrieval,
        symbol_retrieval_kwargs: Mapping[str, Any] | None,
        d_model: int,
        out_dim: int,
        n_layers_enc: int,
        n_layers_dec: int,
        encoder_kwargs: Mapping[str, Any],
        decoder_kwargs: Mapping[str, Any],
        in_block_size: int = 1024,
        out_block_size: int = 1024,
        tie_weights: bool = True,
        loss_ignore_idx: int = -1,
        *,
        loss_type: LossType | None = None,
        pos_enc: PairPositions = "sinusoidal",
        embedding_dropout: float = 0.0,
        embedding_init: EmbeddingInit | None = None,
        rope_theta: float | None = None,
        decoder_symbol_retrieval: SequenceSymbolRetrieval | None = None,
        decoder_symbol_retrieval_kwargs: Mapping[str, Any] | None = None,
        update_symbols_each_layer: bool = True,
    ) -> None:
        super().__init__(Seq2SeqConfig.of(locals()))
        self.update_symbols_each_layer = update_symbols_each_layer
        encoder, longest = self.encoder_kwargs, max(in_block_size, out_block_size)
        sizes = symbol_sizes(d_model, encoder.get("n_heads_sa", 0), encoder.get("n_heads_ra", 0), longest)
        self._retrievers: dict[Side, str] = {"encoder": "symbol_retriever", "decoder": "symbol_retriever"}
        retrievers: dict[str, tuple[str, Mapping[str, Any] | None, str]]
        retrievers = {"symbol_retriever": (symbol_retrieval, symbol_retrieval_kwargs, "symbol_retrieval_kwargs")}
        if decoder_symbol_retrieval is not None:
            own = decoder_symbol_retrieval, decoder_symbol_retrieval_kwargs, "decoder_symbol_retrieval_kwargs"
            self._retrievers["decoder"] = "decoder_symbol_retriever"
            retrievers["decoder_symbol_retriever"] = own
        elif decoder_symbol_retrieval_kwargs is not None:
            raise ValueError("decoder_symbol_retrieval_kwargs: needs decoder_symbol_retrieval")
        of_decoder, *_ = retrievers[self._retrievers["decoder"]]
        self._relational: dict[Side, bool] = {
            "encoder": _has_relational_heads(symbol_retrieval, encoder_kwargs, "encoder_kwargs"),
            "decoder": _has_relational_heads(of_decoder, decoder_kwargs, "decoder_kwargs"),
        }
        read = {self._retrievers[side] for side, relational in self._relational.items() if relational}
        for name, (kind, options, argument) in retrievers.items():
            if name in read:
                self.layers[name] = create_symbol_retriever(kind, options, name=argument, sizes=sizes)
                check_symbol_width(self.layers[name], d_model, argument)
        ignore_weights(self, *(f"layers.{name}." for name in retrievers if name not in read))
        retriever = self.layers[self._retrievers["decoder"]] if self._relational["decoder"] else None
        sees_later = isinstance(retriever, RelationalSymbolicAttention) and not retriever.causal_nbhd
        if sees_later and self.is_causal:
            raise ValueError("symbol_retrieval_kwargs: a causal decoder needs causal_nbhd=True, or its own retriever")

    def _retrieves(self, side: Side, number: int) -> bool:
        """Whether symbols are retrieved for block ``number``, not taken from the one before."""
        return self._relational[side] and (self.update_symbols_each_layer or not number)

    def _retrievers_used(self, side: Side) -> list[nn.Module]:
        name = self._retrievers[side]
        return [self.layers[name] for number in range(len(self._blocks(side))) if self._retrieves(side, number)]

    def _cache_names(self, side: Side) -> dict[str, str]:
        names = super()._cache_names(side)
        wanted = [number for number in range(len(names)) if self._retrieves(side, number)]
        return {**names, **{f"symbols{number}": f"layers.{self._retrievers[side]}" for number in wanted}}

    def _retrieve(self, side: Side, x: Tensor, positions: Tensor | None, cache: Cache | None) -> Symbols:
        if not self._relational[side]:
            return x  # not read
        return retrieve_symbols(self.layers[self._retrievers[side]], x, positions, cache)


def _has_relational_heads(symbol_retrieval: str, block_kwargs: Mapping[str, Any], name: str) -> bool:
    check_symbols_fit(
        symbol_retrieval, block_kwargs["n_heads_ra"], block_kwargs.get("ra_kwargs"), f"{name}['ra_kwargs']"
    )
    return block_kwargs["n_heads_ra"] > 0
