"""Models of which only sizes and heads are given: the rest has the values that are written out here."""

from typing import Any

import pytest
import torch
from torch import nn

from dual_attention import (
    DualAttnTransformerEncoder,
    DualAttnTransformerLM,
    Seq2SeqDualAttnTransformer,
    Seq2SeqTransformer,
    TransformerEncoder,
    TransformerLM,
    VisionDualAttnTransformer,
    VisionTransformer,
)
from dual_attention.language_presets import LanguageModelConfig

BLOCKS = {"dff": 64, "dropout_rate": 0.0, "activation": "gelu", "norm_first": True}
READS = {**BLOCKS, "max_block_size": 1024}
SYMBOLS = {
    "symbolic_attention": {"d_model": 16, "n_heads": 4, "n_symbols": 16},
    "rel_sym_attn": {"d_model": 16, "rel_n_heads": 4, "symbolic_attn_n_heads": 4, "n_symbols": 16, "nbhd_delta": 2},
    "positional_symbols": {"symbol_dim": 16, "max_length": 1024},
    "position_relative": {"symbol_dim": 16, "max_rel_pos": 64},
}
OF_IMAGES = {**SYMBOLS, "positional_symbols": {"symbol_dim": 16, "max_length": 5}}
OF_IMAGES["position_relative_2d"] = SYMBOLS["position_relative"]
IMAGES, SPEC = ((3, 8, 8), (4, 4), 5), {"type": "token", "vocab_size": 9}
DUAL = {"n_heads_sa": 2, "n_heads_ra": 2}


def weights(kind: type[nn.Module], *sizes: Any, **options: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return kind(*sizes, **options).state_dict()


def same(given: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return given.keys() == expected.keys() and all(torch.equal(given[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", [TransformerLM, TransformerEncoder, VisionTransformer])
def test_transformers(kind: type[nn.Module]):
    first, spelt = (IMAGES, BLOCKS) if kind is VisionTransformer else ((9,), READS)
    assert same(weights(kind, *first, 16, 1, 4), weights(kind, *first, 16, 1, 4, **spelt))


@pytest.mark.parametrize(
    ("kind", "symbols"),
    [
        *((kind, name) for kind in (DualAttnTransformerLM, DualAttnTransformerEncoder) for name in (None, *SYMBOLS)),
        *((VisionDualAttnTransformer, name) for name in (None, *OF_IMAGES)),
    ],
)
def test_dual_attention_transformers(kind: type[nn.Module], symbols: str | None):
    first, spelt, known = (IMAGES, BLOCKS, OF_IMAGES) if kind is VisionDualAttnTransformer else ((9,), READS, SYMBOLS)
    chosen: dict[str, Any] = {} if symbols is None else {"symbol_retrieval": symbols}
    if symbols == "rel_sym_attn":
        chosen["symbol_retrieval_kwargs"] = {"nbhd_delta": 2}
    elif symbols and symbols.startswith("position_relative"):
        chosen["ra_kwargs"] = {"use_relative_positional_symbols": True}
    of_symbols = known[symbols or "symbolic_attention"]
    expected = weights(kind, *first, 16, 1, 2, 2, **spelt, **{**chosen, "symbol_retrieval_kwargs": of_symbols})
    assert same(weights(kind, *first, 16, 1, 2, 2, **chosen), expected)


def test_sequence_to_sequence():
    sizes, heads = (SPEC, SPEC, 16, 9, 1, 1), {"n_heads": 4}
    blocks = {"encoder_kwargs": heads, "decoder_kwargs": {**heads, "n_heads_cross": 4}}
    spelt = {name: {**options, **BLOCKS} for name, options in blocks.items()}
    lengths = {"in_block_size": 1024, "out_block_size": 1024}
    assert same(weights(Seq2SeqTransformer, *sizes, **blocks), weights(Seq2SeqTransformer, *sizes, **spelt, **lengths))
    blocks = {"encoder_kwargs": DUAL, "decoder_kwargs": {**DUAL, "n_heads_cross": 4}}
    short = weights(Seq2SeqDualAttnTransformer, SPEC, SPEC, "symbolic_attention", None, 16, 9, 1, 1, **blocks)
    symbols = "symbolic_attention", SYMBOLS["symbolic_attention"]
    assert same(short, weights(Seq2SeqDualAttnTransformer, SPEC, SPEC, *symbols, 16, 9, 1, 1, **blocks, **lengths))


def test_configurations_spell_out_symbols():
    """So that a file holds them, whatever the defaults of the version that reads it."""
    config = LanguageModelConfig(model="dat", vocab_size=9, d_model=16, n_layers=1, **DUAL)
    assert config.to_dict()["symbol_retrieval_kwargs"] == SYMBOLS["symbolic_attention"]
