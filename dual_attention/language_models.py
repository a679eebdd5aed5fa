"""Language models, decoder-only, which predict each next token: the Dual Attention Transformer, and the Transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ._layers.cache import Cache
from ._layers.symbols import Symbols
from ._models.language import LanguageModel, LanguageModelOutput
from ._models.retrievers import (
    check_symbols_fit,
    retrieve_symbols,
    retriever_of,
    retriever_options,
    tie_symbol_libraries,
)
from ._models.stack import BlockInputs, Trace
from ._models.weights import ignore_weights
from .configs import DecoderLanguageConfig, NormType, RelationalHeadType, SequenceSymbolRetrieval, TokenPositions
from .dual_attn_blocks import DualAttnEncoderBlock
from .symbol_retrieval import RelationalSymbolicAttention
from .transformer_blocks import EncoderBlock

__all__ = [
    "DualAttnTransformerLM",
    "LanguageModel",
    "LanguageModelOutput",
    "Trace",
    "TransformerLM",
    "configure_optimizers",
]


class TransformerLM(LanguageModel):
    """Transformer language model.

    Args:
        vocab_size: V.
        d_model: width of the model.
        n_layers, n_heads, dff, dropout_rate, activation, norm_first, norm_type, bias: of the blocks, see
            :class:`~dual_attention.transformer_blocks.EncoderBlock`; ``dropout_rate`` also acts on the embeddings.
        max_block_size: context length, most tokens of a sequence.
        pos_enc_type: ``"pos_emb"``, learned positions added to the input; ``"RoPE"``, rotary positions in the attention
            of every head; or ``"none"``.
        use_flash_attention: otherwise attention weights are built.
        block_kwargs: further arguments of the blocks, for instance ``{"attn_kwargs": {"n_kv_heads": 2}}``.
        tie_weights: one matrix for the token embedding and the output layer.
        final_norm: normalise before the output layer.
        output_bias: a bias in the output layer.
        rope_theta: base of RoPE's frequencies.
        device, dtype: of the parameters; RoPE's tables are float32 always. On ``"meta"``, nothing is stored: fill the
            model with ``model.to_empty(device=...)`` and a state dict or ``model.init_weights()``.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> logits, loss = lm(torch.randint(50, (2, 9)), targets=torch.randint(50, (2, 9)))
    >>> logits.shape, loss.shape
    (torch.Size([2, 9, 50]), torch.Size([]))
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
        use_flash_attention: bool = True,
        block_kwargs: Mapping[str, Any] | None = None,
        *,
        tie_weights: bool = True,
        final_norm: bool = True,
        output_bias: bool = False,
        rope_theta: float = 10000.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        with nullcontext() if device is None else torch.device(device):
            super().__init__(DecoderLanguageConfig.of(locals()))
        self.n_heads = n_heads
        self.use_flash_attention = use_flash_attention
        self._finish(dtype)

    def _block(
        self, number: int, x: Tensor, symbols: Symbols | None, inputs: BlockInputs, need_weights: bool = False
    ) -> tuple[Any, Symbols | None]:
        unfused = need_weights or not self.use_flash_attention
        out, symbols = super()._block(number, x, symbols, inputs, unfused)
        return (out[0] if unfused and not need_weights else out), symbols


class DualAttnTransformerLM(LanguageModel):
    """Dual Attention Transformer language model (arXiv 2405.16727, section 4.4).

    Args:
        n_heads_sa, n_heads_ra: sensory and relational heads; without relational ones no symbol retriever is built.
        sa_kwargs, ra_kwargs, ra_type, share_attn_params: as :class:`~dual_attention.dual_attention.DualAttention`;
            ``"position_relative"`` symbols need ``ra_kwargs={"use_relative_positional_symbols": True, ...}``.
        symbol_retrieval: ``"symbolic_attention"``, ``"rel_sym_attn"`` (with ``causal_nbhd``, its default),
            ``"positional_symbols"`` or ``"position_relative"``.
        symbol_retrieval_kwargs: arguments of that class of :mod:`dual_attention.symbol_retrieval`. By default it has
            as many heads as a layer, ``d_model`` symbols, a symbol for each position, or for relative ones up to 64.
        symbol_retriever_config: ``{"shared_symbol_retriever": True, "weight_tie_symbol_library": False}`` by default:
            one retriever for all layers, or one for each, with symbols of its own or those of the first. With
            ``"normalized_input": True``, they are retrieved from what the attention of a block sees, with pre-norm the
            normalised tokens.
        bias: biases in the feed-forward blocks, if ``ff_bias`` is None. Dual attention has none unless ``sa_kwargs``
            and ``ra_kwargs`` ask for them.
        ff_bias: biases in the feed-forward blocks; True by default whatever ``bias`` is, as in the published package,
            whose checkpoints have them with ``bias=False``.
        block_kwargs: further arguments of the blocks, for instance ``{"post_norm_dropout": False}``.
        update_symbols_each_layer: retrieve symbols anew for each block, by default from what enters it before its
            normalisation, as the published package does; otherwise once, for the first, which needs a shared retriever.
        others: as :class:`TransformerLM`.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> logits, loss = lm(torch.randint(50, (2, 9)), targets=torch.randint(50, (2, 9)))
    >>> logits.shape, loss.shape
    (torch.Size([2, 9, 50]), torch.Size([]))
    >>> lm.generate(torch.tensor([[1, 2, 3]]), 4).shape
    torch.Size([1, 7])
    """

    _block_kind = DualAttnEncoderBlock

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        n_layers: int,
        n_heads_sa: int,
        n_heads_ra: int,
        symbol_retrieval_kwargs: Mapping[str, Any] | None = None,
        dff: int | None = None,
        dropout_rate: float = 0.0,
        activation: str = "gelu",
        norm_first: bool = True,
        max_block_size: int = 1024,
        norm_type: NormType = "layernorm",
        sa_kwargs: Mapping[str, Any] | None = None,
        ra_kwargs: Mapping[str, Any] | None = None,
        ra_type: RelationalHeadType = "relational_attention",
        share_attn_params: bool = False,
        symbol_retrieval: SequenceSymbolRetrieval = "symbolic_attention",
        symbol_retriever_config: Mapping[str, Any] | None = None,
        pos_enc_type: TokenPositions = "pos_emb",
        bias: bool = True,
        *,
        ff_bias: bool | None = True,
        block_kwargs: Mapping[str, Any] | None = None,
        update_symbols_each_layer: bool = True,
        tie_weights: bool = True,
        final_norm: bool = True,
        output_bias: bool = False,
        rope_theta: float = 10000.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_symbols_fit(symbol_retrieval, n_heads_ra, ra_kwargs)
        with nullcontext() if device is None else torch.device(device):
            super().__init__(DecoderLanguageConfig.of(locals()))
        self.symbol_retriever_config = retriever_options(symbol_retriever_config)
        self.n_heads_sa = n_heads_sa
        self.n_heads_ra = n_heads_ra
        self.n_heads = n_heads_sa + n_heads_ra
        self.ra_type = ra_type
        self.share_attn_params = share_attn_params
        self.symbol_retriever = symbol_retrieval  # its name, as in the published class
        self.update_symbols_each_layer = update_symbols_each_layer
        if not n_heads_ra:
            ignore_weights(self, "layers.symbol_retrievers.")
        self._finish(dtype)

    def _create_block(self, config: DecoderLanguageConfig, layer: int) -> nn.Module:
        return super()._create_block(config if config.ff_bias is None else replace(config, bias=config.ff_bias), layer)

    def _create_retrievers(self, config: DecoderLanguageConfig) -> list[nn.Module]:
        if not config.n_heads_ra:
            return []
        shared = retriever_options(config.symbol_retriever_config)["shared_symbol_retriever"]
        if not (shared or config.update_symbols_each_layer):
            raise ValueError("update_symbols_each_layer: False needs symbol_retriever_config's shared_symbol_retriever")
        retrievers = [retriever_of(config, config.max_block_size) for _ in range(1 if shared else config.n_layers)]
        first = retrievers[0]
        if isinstance(first, RelationalSymbolicAttention) and not first.causal_nbhd:
            raise ValueError("symbol_retrieval_kwargs: a causal model needs causal_nbhd=True")
        return retrievers * config.n_layers if shared else retrievers

    def _tie(self) -> None:
        super()._tie()
        if self.n_heads_ra and self.symbol_retriever_config["weight_tie_symbol_library"]:
            tie_symbol_libraries(list(self.layers.symbol_retrievers))

    def _retrieve(self, number: int, x: Tensor, inputs: BlockInputs, cache: Cache | None) -> Symbols:
        if not self.n_heads_ra:
            return x  # not read
        if self.symbol_retriever_config["normalized_input"]:
            block = self.layers.blocks[number]
            x = block.pre_norm(x, block.norm1)
        return retrieve_symbols(self.layers.symbol_retrievers[number], x, inputs.positions, cache)

    def _retrievers_used(self) -> Sequence[nn.Module]:
        if not self.n_heads_ra:
            return ()
        return list(self.layers.symbol_retrievers)[: self.n_layers if self.update_symbols_each_layer else 1]


def configure_optimizers(
    model: nn.Module, weight_decay: float, learning_rate: float, betas: tuple[float, float], device_type: str
) -> torch.optim.AdamW:
    """AdamW as the paper's language models were trained with: weight decay only of tensors with two or more axes.

    Args:
        model: its frozen parameters are left out.
        device_type: fused for ``"cuda"``.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> optimizer = configure_optimizers(lm, 0.1, learning_rate=1e-3, betas=(0.9, 0.95), device_type="cpu")
    >>> [group["weight_decay"] for group in optimizer.param_groups]
    [0.1, 0.0]
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if parameter.dim() >= 2], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=device_type == "cuda")
