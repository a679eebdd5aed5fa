"""Bidirectional encoders in the manner of BERT (Devlin et al. 2019, arXiv 1810.04805), and their heads."""

from __future__ import annotations

from torch import Tensor, nn

from ._layers.cache import Cache
from ._layers.config import SequenceSymbolRetrieval
from ._layers.inputs import check_boolean
from ._layers.options import AttentionOptions, NormType, Options, RelationalHeadType, RelationalOptions, SymbolOptions
from ._layers.symbols import Symbols
from ._models.config import EncoderConfig, TokenPositions
from ._models.encoder import EncoderModel
from ._models.encoder_heads import EncoderForMaskedLM, EncoderForSequenceClassification, EncoderHeadOutput
from ._models.retrievers import (
    check_symbol_width,
    check_symbols_fit,
    create_symbol_retriever,
    retrieve_symbols,
    symbol_sizes,
)
from ._models.stack import BlockInputs, Trace
from .dual_attn_blocks import DualAttnEncoderBlock
from .transformer_blocks import EncoderBlock

__all__ = [
    "DualAttnTransformerEncoder",
    "EncoderForMaskedLM",
    "EncoderForSequenceClassification",
    "EncoderHeadOutput",
    "Trace",
    "TransformerEncoder",
]


class TransformerEncoder(EncoderModel):
    """Bidirectional Transformer encoder.

    Parameters are initialised as those of the language models. ``gradient_checkpointing = True`` trades time for memory
    in training.

    Args:
        vocab_size: tokens.
        d_model: width of the model.
        n_layers, n_heads, dff, dropout_rate, activation, norm_first, norm_type, bias: of the blocks, see
            :class:`~dual_attention.transformer_blocks.EncoderBlock`; ``dropout_rate`` also acts on the embeddings.
        max_block_size: largest length of a sequence.
        pos_enc_type: ``"pos_emb"``: learned positions; ``"RoPE"``: rotary positions in attention; ``"none"``.
        attn_kwargs: further arguments of :class:`~dual_attention.attention.Attention`.
        n_token_types: kinds of tokens, such as those of the first and the second sentence, with an embedding each.
        embedding_norm: normalise embeddings, as BERT does.
        final_norm: normalise the output; by default with pre-norm only.
        rope_theta: base of RoPE's frequencies.

    Raises:
        ValueError: if a size or name is wrong.
    """

    _block_kind = EncoderBlock

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        dff: int | None = None,
        dropout_rate: float = 0.0,
        activation: str = "gelu",
        norm_first: bool = True,
        max_block_size: int = 1024,
        norm_type: NormType = "layernorm",
        bias: bool = True,
        pos_enc_type: TokenPositions = "pos_emb",
        *,
        attn_kwargs: AttentionOptions | Options | None = None,
        n_token_types: int = 0,
        embedding_norm: bool = True,
        final_norm: bool | None = None,
        rope_theta: float = 10000.0,
    ) -> None:
        super().__init__(
            EncoderConfig(
                n_heads=n_heads,
                d_model=d_model,
                dff=dff,
                dropout_rate=dropout_rate,
                activation=activation,
                norm_first=norm_first,
                norm_type=norm_type,
                bias=bias,
                n_layers=n_layers,
                pos_enc_type=pos_enc_type,
                rope_theta=rope_theta,
                vocab_size=vocab_size,
                max_block_size=max_block_size,
                attn_kwargs=attn_kwargs,
                n_token_types=n_token_types,
                embedding_norm=embedding_norm,
                final_norm=final_norm,
            )
        )
        self.init_weights()


class DualAttnTransformerEncoder(EncoderModel):
    """Bidirectional encoder with dual attention.

    Symbols are retrieved for the tokens as they enter a block, before its normalisation.

    Args:
        n_heads_sa, n_heads_ra: sensory and relational heads.
        symbol_retrieval, symbol_retrieval_kwargs, sa_kwargs, ra_kwargs, ra_type, share_attn_params,
            update_symbols_each_layer: as :class:`~dual_attention.language_models.DualAttnTransformerLM`.
        bias: biases in the feed-forward blocks.
        shared_symbol_retriever: one retriever for all layers, or one for each.
        others: as :class:`TransformerEncoder`.

    Raises:
        ValueError: if a size or name is wrong, or heads and symbols do not fit.
    """

    _block_kind = DualAttnEncoderBlock

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        n_layers: int,
        n_heads_sa: int,
        n_heads_ra: int,
        symbol_retrieval_kwargs: SymbolOptions | Options | None = None,
        dff: int | None = None,
        dropout_rate: float = 0.0,
        activation: str = "gelu",
        norm_first: bool = True,
        max_block_size: int = 1024,
        norm_type: NormType = "layernorm",
        sa_kwargs: AttentionOptions | Options | None = None,
        ra_kwargs: RelationalOptions | Options | None = None,
        ra_type: RelationalHeadType = "relational_attention",
        share_attn_params: bool = False,
        symbol_retrieval: SequenceSymbolRetrieval = "symbolic_attention",
        pos_enc_type: TokenPositions = "pos_emb",
        bias: bool = True,
        *,
        shared_symbol_retriever: bool = True,
        update_symbols_each_layer: bool = True,
        n_token_types: int = 0,
        embedding_norm: bool = True,
        final_norm: bool | None = None,
        rope_theta: float = 10000.0,
    ) -> None:
        check_boolean(
            shared_symbol_retriever=shared_symbol_retriever, update_symbols_each_layer=update_symbols_each_layer
        )
        check_symbols_fit(symbol_retrieval, n_heads_ra, ra_kwargs)
        if not (shared_symbol_retriever or update_symbols_each_layer):
            raise ValueError("shared_symbol_retriever: False needs update_symbols_each_layer=True")
        super().__init__(
            EncoderConfig(
                symbol_retrieval=symbol_retrieval,
                symbol_retrieval_kwargs=symbol_retrieval_kwargs,
                update_symbols_each_layer=update_symbols_each_layer,
                sa_kwargs=sa_kwargs,
                ra_kwargs=ra_kwargs,
                share_attn_params=share_attn_params,
                n_heads_sa=n_heads_sa,
                n_heads_ra=n_heads_ra,
                ra_type=ra_type,
                d_model=d_model,
                dff=dff,
                dropout_rate=dropout_rate,
                activation=activation,
                norm_first=norm_first,
                norm_type=norm_type,
                bias=bias,
                n_layers=n_layers,
                pos_enc_type=pos_enc_type,
                rope_theta=rope_theta,
                vocab_size=vocab_size,
                max_block_size=max_block_size,
                shared_symbol_retriever=shared_symbol_retriever,
                n_token_types=n_token_types,
                embedding_norm=embedding_norm,
                final_norm=final_norm,
            )
        )
        self.n_heads_ra = n_heads_ra
        self.update_symbols_each_layer = update_symbols_each_layer
        self.symbol_retrievers = nn.ModuleList()
        if n_heads_ra:
            sizes = symbol_sizes(d_model, n_heads_sa, n_heads_ra, max_block_size)
            for _ in range(1 if shared_symbol_retriever else n_layers):
                self.symbol_retrievers.append(
                    create_symbol_retriever(symbol_retrieval, symbol_retrieval_kwargs, sizes=sizes)
                )
                check_symbol_width(self.symbol_retrievers[-1], d_model)
        self.init_weights()

    def _retrieve(self, number: int, x: Tensor, inputs: BlockInputs, cache: Cache | None) -> Symbols:
        if not self.n_heads_ra:
            return x  # not read
        retriever = self.symbol_retrievers[number if len(self.symbol_retrievers) > 1 else 0]
        return retrieve_symbols(retriever, x, inputs.positions)
