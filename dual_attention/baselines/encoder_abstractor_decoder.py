"""Abstractors between an encoder and a decoder (Altabaa et al. 2024, arXiv 2304.00195).

Shapes: B batch, N length of the source, L length of the target, d width of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from .._layers.cache import Cache, CacheGroup
from .._layers.call import cache_parts, shared_pattern, transaction
from .._layers.calls import TypedModule
from .._layers.inputs import check_choice, check_depth, check_padding, check_positive, check_sequence
from .._layers.options import arguments_of, checked_options
from ..configs import NormType
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


class SourceContext(NamedTuple):
    """Contexts of a decoder.

    Attributes:
        contexts: one or two sequences ``(B, N, d)``, in the order in which they are read.
        padding_mask: boolean, ``(B, N)``, for all of them, or None.
    """

    contexts: tuple[Tensor, ...]
    padding_mask: Tensor | None


class DecoderLayer(nn.ModuleList):
    """A causal decoder block for each context; these are given one by one, or side by side ``(B, N, contexts * d)``."""

    def __init__(self, contexts: int, block: Mapping[str, Any]) -> None:
        super().__init__(DecoderBlock(**{"causal": True, **block}) for _ in range(contexts))

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


class EncoderAbstractorDecoder(TypedModule):
    """Sequence to sequence by way of abstract symbols, in the four arrangements of the paper.

    ======================  ======================  ===============================================================
    ``abstractor_reads``    ``decoder_reads``       arrangement
    ======================  ======================  ===============================================================
    ``"source"``            ``"abstractor"``        (a) abstractor, decoder; no encoder
    ``"encoder"``           ``"abstractor"``        (b) encoder, abstractor, decoder
    ``"source"``            ``"both"``              (c) encoder and abstractor side by side, the decoder reads both
    ``"encoder"``           ``"both"``              (d) encoder, abstractor; the decoder reads both
    ======================  ======================  ===============================================================

    Source and target are vectors that include positions; the output is for a classifier. For tokens, with embeddings,
    loss and generation, there is :class:`~dual_attention.baselines.Seq2SeqAbstractor`. A decoder that reads two
    contexts has one block for each in every layer, the encoder's first: causal self-attention, cross-attention to that
    context, feed-forward.

    Args:
        d_model: d.
        n_layers_enc, n_layers_abs, n_layers_dec: depths; ``n_layers_enc`` is 0 only in arrangement (a).
        n_heads, dff, dropout_rate, activation, norm_first, norm_type, bias: of all layers, see
            :class:`~dual_attention.transformer_blocks.EncoderBlock`.
        symbol_retrieval, symbol_retrieval_kwargs: as :class:`~dual_attention.baselines.Abstractor`.
        abstractor_kwargs: further arguments of the abstractor, and those in which it differs from the other layers.

    >>> symbols = {"d_model": 32, "n_heads": 2, "n_symbols": 8}
    >>> model = EncoderAbstractorDecoder(32, 1, 1, 1, 2, 64, 0.0, "relu", True, "symbolic_attention", symbols)
    >>> model(torch.randn(2, 9, 32), torch.randn(2, 5, 32)).shape
    torch.Size([2, 5, 32])
    """

    def __init__(
        self,
        d_model: int,
        n_layers_enc: int,
        n_layers_abs: int,
        n_layers_dec: int,
        n_heads: int,
        dff: int | None,
        dropout_rate: float,
        activation: str,
        norm_first: bool,
        symbol_retrieval: AbstractorSymbols,
        symbol_retrieval_kwargs: Mapping[str, Any],
        norm_type: NormType = "layernorm",
        bias: bool = True,
        *,
        abstractor_reads: Literal["source", "encoder"] = "encoder",
        decoder_reads: Literal["abstractor", "both"] = "both",
        abstractor_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model)
        check_depth(n_layers_abs=n_layers_abs, n_layers_dec=n_layers_dec)
        check_arrangement(abstractor_reads, decoder_reads, n_layers_enc)
        self.d_model = d_model
        self.abstractor_reads = abstractor_reads
        self.decoder_reads = decoder_reads
        layer = arguments_of(EncoderBlock, locals())
        self.encoder_blocks = nn.ModuleList(EncoderBlock(**layer) for _ in range(n_layers_enc))
        own = checked_options("abstractor_kwargs", abstractor_kwargs, Abstractor, taken=("d_model",))
        self.abstractor = Abstractor(**{"n_layers": n_layers_abs, **arguments_of(Abstractor, locals()), **own})
        n_contexts = 2 if decoder_reads == "both" else 1
        block = {**layer, "n_heads_cross": n_heads}
        self.decoder_layers = nn.ModuleList(DecoderLayer(n_contexts, block) for _ in range(n_layers_dec))

    def encode(self, source: Tensor, *, source_padding_mask: Tensor | None = None) -> SourceContext:
        """Encode a source ``(B, N, d)`` as contexts of the decoder; its mask is boolean, ``(B, N)``, True = real."""
        check_sequence("source", source, self.d_model)
        batch, n, _ = source.shape
        check_padding("source_padding_mask", source_padding_mask, batch, n)
        pattern = shared_pattern(source, n, padding=source_padding_mask)
        encoded = source
        for block in self.encoder_blocks:
            encoded = block(encoded, attn_mask=pattern)
        read = encoded if self.abstractor_reads == "encoder" else source
        abstract = self.abstractor(read, attn_mask=pattern)
        contexts = (encoded, abstract) if self.decoder_reads == "both" else (abstract,)
        return SourceContext(contexts, source_padding_mask)

    def new_cache(self, max_length: int | None = None) -> CacheGroup:
        """An empty cache for :meth:`decode`; ``max_length``: most tokens to come, reserved at once."""
        layers: Any = self.decoder_layers
        return CacheGroup({str(number): layer.new_cache(max_length) for number, layer in enumerate(layers)})

    def decode(
        self,
        target: Tensor,
        context: SourceContext,
        *,
        target_padding_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Decode a target, ``(B, L, d) -> (B, L, d)``, from contexts of :meth:`encode`; no position sees a later one.

        Args:
            target_padding_mask: boolean, ``(B, L)``, with a cache ``(B, earlier + L)``; True = a real position.
            cache: from ``new_cache``; ``target`` then holds only new tokens.
        """
        with transaction(cache):
            check_sequence("target", target, self.d_model, batch=(context.contexts[0].shape[0],))
            caches = cache_parts(cache, tuple(map(str, range(len(self.decoder_layers)))))
            (batch, length, _), earlier = target.shape, 0 if cache is None else cache.length
            check_padding("target_padding_mask", target_padding_mask, batch, length, earlier)
            padding = target_padding_mask
            own = shared_pattern(target, earlier + length, padding=padding, causal=True, earlier=earlier)
            cross = MaskPattern(length, context.contexts[0].shape[1], padding=context.padding_mask)
            y = target
            for number, layer in enumerate(self.decoder_layers):
                y = layer(y, *context.contexts, attn_mask=own, context_mask=cross, cache=caches[str(number)])
            return y

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_padding_mask: Tensor | None = None,
        target_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """``(B, N, d), (B, L, d) -> (B, L, d)``; arguments as :meth:`encode` and :meth:`decode`."""
        context = self.encode(source, source_padding_mask=source_padding_mask)
        return self.decode(target, context, target_padding_mask=target_padding_mask)
