"""Types of calls, and wrong calls, which the checker must find: an ignored error that is none is one itself."""

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor
from typing_extensions import assert_type

import dual_attention
from dual_attention import (
    Attention,
    DualAtention,  # pyright: ignore[reportAttributeAccessIssue]
    DualAttention,
    DualAttnDecoderBlock,
    EncoderBlock,
    RelationalAttention,
    RelationalConfig,
    SymbolicAttention,
    TransformerLM,
    VisionTransformer,
)
from dual_attention.dual_attention import DualAttentionOutput
from dual_attention.hf import (
    DualAttnConfig,
    DualAttnForCausalLM,
    DualAttnForCausalML,  # pyright: ignore[reportAttributeAccessIssue]
)
from dual_attention.mechanisms import Dot, GeneralAttention
from dual_attention.model_analysis.views import draw_matrices


def layers(x: Tensor, symbols: Tensor) -> None:
    assert_type(Attention(8, 2)(x, x, x).output, Tensor)
    assert_type(RelationalAttention(8, 2)(x, symbols, need_weights=True).relations, Tensor | Any)
    assert_type(DualAttention(8, 1, 1)(x, symbols).output, Tensor)
    assert_type(SymbolicAttention(8, 2, 4)(x), Tensor)
    assert_type(GeneralAttention(Dot())(x).context, Tensor)
    DualAttention(8, 1, 1, ra_kwargs={"n_relations": 2, "symmetric_rels": True})
    DualAttention(8, 1, 1, ra_kwargs=RelationalConfig(n_relations=2, symmetric_rels=True))
    RelationalAttention(8, 2)(x, symbols, need_weight=True)  # pyright: ignore[reportCallIssue]
    DualAttention(8, 1, 1)(x, symbols, is_casual=True)  # pyright: ignore[reportCallIssue]
    RelationalConfig(n_relation=2)  # pyright: ignore[reportCallIssue]
    DualAttention(8, 1, 1, ra_kwargs=2)  # pyright: ignore[reportArgumentType]


def blocks(x: Tensor, symbols: Tensor, mask: Tensor, encoder: EncoderBlock, decoder: DualAttnDecoderBlock) -> None:
    assert_type(encoder(x), Tensor)
    assert_type(encoder(x, need_weights=True), tuple[Tensor, Tensor])
    assert_type(encoder(x, need_weights=bool(mask.any())), Tensor | tuple[Tensor, Tensor])
    assert_type(decoder(x, x, symbols, context_padding_mask=mask), Tensor)
    assert_type(decoder(x, x, symbols, need_weights=True), tuple[Tensor, DualAttentionOutput, Tensor])
    decoder(x, x, symbols, context_mask=mask)
    encoder(x, padding_maks=mask)  # pyright: ignore[reportCallIssue]
    encoder(x, need_weights=True, padding_maks=mask)  # pyright: ignore[reportCallIssue]
    decoder(x)  # pyright: ignore[reportCallIssue]
    decoder(x, x, symbols, contexts_mask=mask)  # pyright: ignore[reportCallIssue]


def models(x: Tensor, tokens: Tensor, mask: Tensor, language: TransformerLM, vision: VisionTransformer) -> None:
    assert_type(language.hidden(tokens, padding_mask=mask), Tensor)
    assert_type(language(tokens, tokens).loss, Tensor | Any)
    assert_type(language.generate(tokens, 5), Tensor)
    assert_type(language.beam_search(tokens, 5, 4).scores, Tensor)
    assert_type(language.layers.blocks[0].attention.wq, Any)
    assert_type(vision(x), Tensor)
    assert_type(DualAttnForCausalLM(DualAttnConfig())(tokens).logits, Tensor | Any)
    assert_type(draw_matrices(x, []), Figure)
    language(tokens, padding_maks=mask)  # pyright: ignore[reportCallIssue]
    language.trace(tokens, padding_maks=mask)  # pyright: ignore[reportCallIssue]
    language.generate(tokens, 5, top_q=0.9)  # pyright: ignore[reportCallIssue]
    vision(x, tokens)  # pyright: ignore[reportCallIssue]


def names() -> None:
    operation: Callable[..., dual_attention.functional.RelationalAttentionOutput]
    operation = dual_attention.functional.relational_attention
    operation()
    print(dual_attention.funtional)  # pyright: ignore[reportAttributeAccessIssue]
    print(DualAtention, DualAttnForCausalML)
