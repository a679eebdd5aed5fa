"""Bidirectional encoders in the manner of BERT (Devlin et al. 2019, arXiv 1810.04805), and their heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ._layers.cache import Cache
from ._layers.symbols import Symbols
from ._models.encoder import EncoderModel
from ._models.encoder_heads import EncoderForMaskedLM, EncoderForSequenceClassification, EncoderHeadOutput
from ._models.retrievers import check_symbols_fit, retrieve_symbols, retriever_of
from ._models.stack import BlockInputs, Trace
from ._models.warm_start import beside, start_from_transformer
from .configs import EncoderConfig, NormType, RelationalHeadType, SequenceSymbolRetrieval, TokenPositions
from .dual_attn_blocks import DualAttnEncoderBlock
from .transformer_blocks import EncoderBlock

__all__ = [
    "DualAttnTransformerEncoder",
    "EncoderForMaskedLM",
    "EncoderForSequenceClassification",
    "EncoderHeadOutput",
    "EncoderModel",
    "Trace",
    "TransformerEncoder",
]


_ACTIVATIONS: dict[str, tuple[Any, type[nn.Module]]] = {"relu": (F.relu, nn.ReLU), "gelu_erf": (F.gelu, nn.GELU)}
"""Activations of PyTorch's layers by our names."""


def _is_activation(given: Any, known: tuple[Any, type[nn.Module]]) -> bool:
    function, kind = known
    return given is function or (isinstance(given, kind) and getattr(given, "approximate", "none") == "none")


def _torch_weights(layer: Any) -> dict[str, Tensor]:
    """The weights of one of PyTorch's layers by the names of :class:`~.transformer_blocks.EncoderBlock`."""
    attention, found = layer.self_attn, {}
    for kind in ("weight", "bias"):
        packed = getattr(attention, f"in_proj_{kind}")
        if packed is not None:
            found |= {f"self_attn.w{part}.{kind}": w for part, w in zip("qkv", packed.chunk(3), strict=True)}
    parts = {"self_attn.wo": attention.out_proj, "ff_block.linear1": layer.linear1, "ff_block.linear2": layer.linear2}
    parts |= {"norm1": layer.norm1, "norm2": layer.norm2}
    return found | {f"{name}.{kind}": w for name, part in parts.items() for kind, w in part.state_dict().items()}


def _torch_arguments(encoder: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of an encoder like PyTorch's, whichever its heads are, and of the attention within."""
    if not isinstance(encoder, nn.TransformerEncoder):
        raise TypeError(f"encoder: expected a torch.nn.TransformerEncoder, got {type(encoder).__name__}")
    layers: list[Any] = list(encoder.layers)
    if any(type(layer) is not nn.TransformerEncoderLayer for layer in layers):
        raise TypeError(f"encoder: expected layers of torch.nn.TransformerEncoderLayer, got {type(layers[0]).__name__}")
    layer = layers[0]
    found = next((ours for ours, theirs in _ACTIVATIONS.items() if _is_activation(layer.activation, theirs)), None)
    norms = [layer.norm1, layer.norm2, *([] if encoder.norm is None else [encoder.norm])]
    if found is None or any(type(norm) is not nn.LayerNorm or norm.eps != 1e-5 for norm in norms):
        raise ValueError(
            f"encoder: expected ReLU or GELU and layer norms of eps=1e-5, got {layer.activation} and {norms}"
        )
    biased = layer.linear1.bias is not None
    arguments = {
        "d_model": layer.self_attn.embed_dim,
        "n_layers": len(layers),
        "dff": layer.linear1.out_features,
        "dropout_rate": layer.dropout1.p,
        "activation": found,
        "norm_first": layer.norm_first,
        "bias": biased,
        "pos_enc_type": "none",
        "embedding_norm": False,
        "final_norm": encoder.norm is not None,
    }
    # The block drops out what attention returns, as PyTorch's does.
    return arguments, {"add_bias_q": biased, "add_bias_kv": biased, "add_bias_out": biased, "out_dropout": 0.0}


class TransformerEncoder(EncoderModel):
    """Bidirectional Transformer encoder.

    Parameters are initialised as those of the language models. ``gradient_checkpointing = True`` trades time for memory
    in training.

    Args:
        attn_kwargs: further arguments of :class:`~dual_attention.attention.Attention`.
        n_token_types: kinds of tokens, such as those of the first and the second sentence, with an embedding each.
        embedding_norm: normalise embeddings, as BERT does.
        final_norm: normalise the output; by default with pre-norm only.
        others: as :class:`~dual_attention.language_models.TransformerLM`.

    >>> model = TransformerEncoder(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> model(torch.randint(50, (2, 9))).shape
    torch.Size([2, 9, 32])
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
        attn_kwargs: Mapping[str, Any] | None = None,
        n_token_types: int = 0,
        embedding_norm: bool = True,
        final_norm: bool | None = None,
        rope_theta: float = 10000.0,
    ) -> None:
        super().__init__(EncoderConfig.of(locals()))
        self.init_weights()

    @classmethod
    def from_torch(cls, encoder: nn.TransformerEncoder, *, vocab_size: int, max_block_size: int) -> TransformerEncoder:
        """An encoder with copies of the weights of PyTorch's, which has no embeddings: ``model(None, embeddings=x)``.

        Inputs are ``(B, L, d)``, whatever ``batch_first`` says there. The token embedding is drawn; there are no
        positions. In training there is no dropout within feed-forward blocks.

        Args:
            vocab_size, max_block_size: as of the class.

        Raises:
            TypeError: if it is no :class:`torch.nn.TransformerEncoder` of its own kind of layers.
            ValueError: if its layers have another activation than ReLU or GELU, or another ``eps`` than 1e-5.
        """
        arguments, attention = _torch_arguments(encoder)
        layers: list[Any] = list(encoder.layers)
        sizes: Any = {"vocab_size": vocab_size, "max_block_size": max_block_size}
        model = cls(n_heads=layers[0].self_attn.num_heads, attn_kwargs=attention, **arguments, **sizes)
        blocks: Any = model.to(layers[0].linear1.weight).blocks
        for block, theirs in zip(blocks, layers, strict=True):
            block.post_norm_dropout = False
            block.load_state_dict({**block.state_dict(), **_torch_weights(theirs)})
        if encoder.norm is not None:
            model.norm.load_state_dict({**model.norm.state_dict(), **encoder.norm.state_dict()})
        return model.train(encoder.training)


class DualAttnTransformerEncoder(EncoderModel):
    """Bidirectional encoder with dual attention.

    Symbols are retrieved for the tokens as they enter a block, before its normalisation.

    Args:
        n_heads_sa, n_heads_ra: sensory and relational heads.
        sa_kwargs, ra_kwargs, ra_type, share_attn_params: as
            :class:`~dual_attention.language_models.DualAttnTransformerLM`.
        symbol_retrieval, symbol_retrieval_kwargs, update_symbols_each_layer: likewise.
        bias: biases in the feed-forward blocks.
        shared_symbol_retriever: one retriever for all layers, or one for each.
        others: as :class:`TransformerEncoder`.

    >>> model = DualAttnTransformerEncoder(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> model(torch.randint(50, (2, 9))).shape
    torch.Size([2, 9, 32])
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
        check_symbols_fit(symbol_retrieval, n_heads_ra, ra_kwargs)
        config = EncoderConfig.of(locals())
        super().__init__(config)
        if not (shared_symbol_retriever or update_symbols_each_layer):
            raise ValueError("shared_symbol_retriever: False needs update_symbols_each_layer=True")
        self.n_heads_ra = n_heads_ra
        self.update_symbols_each_layer = update_symbols_each_layer
        self.symbol_retrievers = nn.ModuleList()
        if n_heads_ra:
            retrievers = range(1 if shared_symbol_retriever else n_layers)
            self.symbol_retrievers.extend(retriever_of(config, max_block_size) for _ in retrievers)
        self.init_weights()

    @classmethod
    def from_torch(
        cls,
        encoder: nn.TransformerEncoder,
        n_heads_ra: int,
        *,
        vocab_size: int,
        max_block_size: int,
        silent: bool = True,
        ra_kwargs: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> DualAttnTransformerEncoder:
        """As :meth:`TransformerEncoder.from_torch`, with new relational heads beside PyTorch's.

        Args:
            n_heads_ra, ra_kwargs: the new heads, at most as many as PyTorch's and as wide as those.
            silent: they add nothing at first, see :func:`~dual_attention.start_from_transformer`.
            arguments: of the symbols, as of the class.
        """
        shared, attention = _torch_arguments(encoder)
        sizes = {"vocab_size": vocab_size, "max_block_size": max_block_size}
        theirs = TransformerEncoder.from_torch(encoder, **sizes)
        blocks: Any = theirs.blocks
        heads = beside(blocks[0].self_attn.n_heads, shared["d_model"], attention, ra_kwargs)
        model = cls(n_heads_ra=n_heads_ra, **heads, **shared, **sizes, **arguments).to(theirs.token_embedder.weight)
        blocks = model.blocks
        for block in blocks:
            block.post_norm_dropout = False
        start_from_transformer(model, theirs, silent=silent)
        return model.train(encoder.training)

    def _retrieve(self, number: int, x: Tensor, inputs: BlockInputs, cache: Cache | None) -> Symbols:
        if not self.n_heads_ra:
            return x  # not read
        retriever = self.symbol_retrievers[number if len(self.symbol_retrievers) > 1 else 0]
        return retrieve_symbols(retriever, x, inputs.positions)
