"""Models refuse bad arguments, and say why."""

import pytest
import torch

from tests.support import families
from tests.support.language import CONTEXT, KINDS, POSITIONS, SYMBOLS, VOCAB, build, tokens
from tests.support.refusals import refused

test_bad_arguments = refused(
    ("transformer", {"pos_enc_type": "rope"}, "pos_enc_type: expected 'pos_emb', 'RoPE' or 'none', got 'rope'"),
    ("transformer", {"max_block_size": 0}, "max_block_size: expected a positive number, got 0"),
    ("transformer", {"n_heads": 3}, "d_model: 16 is not divisible by the total number of heads, 3"),
    ("transformer", {"norm_type": "batch"}, "norm_type: expected"),
    ("transformer", {"activation": "step"}, "activation: expected one of"),
    ("symbolic_attention", {"symbol_retrieval": "position_relative_2d"}, "needs use_relative_positional_symbols"),
    ("symbolic_attention", {"n_layers": 0}, "n_layers: expected a positive number, got 0"),
    ("symbolic_attention", {"ra_type": "ra"}, "ra_type: expected 'relational_attention', 'rca' or 'disrca'"),
    ("symbolic_attention", {"symbol_retriever_config": {"shared": True}},
     "symbol_retriever_config: expected shared_symbol_retriever, .*, got 'shared'"),
    ("symbolic_attention",
     {"symbol_retriever_config": {"shared_symbol_retriever": False}, "update_symbols_each_layer": False},
     "update_symbols_each_layer: False needs symbol_retriever_config"),
    ("rel_sym_attn", {"symbol_retrieval_kwargs": {**SYMBOLS["rel_sym_attn"], "causal_nbhd": False}},
     "symbol_retrieval_kwargs: a causal model needs causal_nbhd=True"),
    ("symbolic_attention", {"pos_enc_type": "RoPE", "ra_kwargs": {"key_dim": 8}},
     r"sa_kwargs, ra_kwargs: rotary positions need one key_dim in all heads, got \[4, 8\]"),
    ("transformer", {"pos_enc_type": "RoPE", "n_heads": 16}, "rotary positions need heads of an even width, got 1"),
    by=lambda kind, options: build(kind, **options),
)  # fmt: skip


ABSOLUTE, RELATIVE = ({"ra_kwargs": {"use_relative_positional_symbols": value}} for value in (False, True))


test_bad_symbols_and_blocks_of_every_family = pytest.mark.parametrize("family", families.FAMILIES)(refused(
    ("symbolic_attention", {"symbol_retrieval": "magic"}, "symbol_retrieval: expected .*, got 'magic'"),
    ("symbolic_attention", {"n_heads_sa": 0, "n_heads_ra": 0}, "n_heads_sa, n_heads_ra: expected"),
    ("symbolic_attention", {"dropout_rate": 1.5}, r"dropout.*: expected a rate in \[0, 1\), got 1.5"),
    ("symbolic_attention", {"symbol_retrieval_kwargs": {"d_model": 6, "n_heads": 2, "n_symbols": 5}},
     "symbol_retrieval_kwargs: expected d_model=(8|16), the width of the model, got 6"),
    ("positional_symbols", {"symbol_retrieval_kwargs": {"symbol_dim": 6, "max_length": 5}},
     "symbol_retrieval_kwargs: expected symbol_dim=(8|16), the width of the model, got 6"),
    ("symbolic_attention", RELATIVE, "ra_kwargs.*: .*'symbolic_attention' needs .*_symbols=False"),
    ("position_relative", ABSOLUTE, "ra_kwargs.*: .*'position_relative' needs .*_symbols=True"),
    by=lambda kind, options, *, family: families.build(family, kind, **options),
))  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_further_arguments_of_blocks(kind):
    block = build(kind, block_kwargs={"post_norm_dropout": False}).layers.blocks[0]
    assert not block.post_norm_dropout
    with pytest.raises(ValueError, match=r"block_kwargs: .*'causal'"):  # which they must be
        build(kind, block_kwargs={"causal": False})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pos_enc_type", POSITIONS)
def test_a_sequence_longer_than_the_context(kind, pos_enc_type):
    model = build(kind, pos_enc_type=pos_enc_type)
    message = "x: a sequence of 25 tokens is longer than the context, max_block_size=24"
    with pytest.raises(ValueError, match=message):
        model(tokens(2, CONTEXT + 1))
    with pytest.raises(ValueError, match=message):
        model(tokens(2, CONTEXT + 1), padding_mask=torch.ones(2, CONTEXT + 1, dtype=torch.bool))


test_bad_input = pytest.mark.parametrize("kind", ["symbolic_attention", "transformer"])(refused(
    ({"x": torch.zeros(2, 4)}, TypeError, "x: expected integer token ids, got dtype torch.float32"),
    ({"x": torch.zeros(4).long()}, r"x: expected token ids of shape \(batch, length\), got shape \(4,\)"),
    ({"x": torch.full((2, 4), VOCAB)}, r"x: expected token ids from 0 to 10, got 11 to 11"),
    ({"x": torch.full((2, 4), -1)}, r"x: expected token ids from 0 to 10, got -1 to -1"),
    ({"targets": torch.zeros(2, 4)}, TypeError, "targets: expected integers, got dtype torch.float32"),
    ({"targets": torch.zeros(2, 3).long()}, r"targets: expected the shape of x, \(2, 4\), got \(2, 3\)"),
    ({"targets": torch.full((2, 4), VOCAB)}, "targets: expected 0 to 10, or -1 to be ignored, got 11"),
    ({"loss_only": True, "targets": None}, "loss_only: needs targets"),
    ({"padding_mask": torch.ones(2, 4)}, TypeError, "padding_mask: expected a boolean tensor"),
    ({"padding_mask": torch.ones(2, 3).bool()}, r"padding_mask: expected shape \(batch, length\) = "),
    ({"segments": torch.zeros(4).long()}, r"segments: expected integers .* got torch.int64 \(4,\)"),
    ({"segments": torch.zeros(2, 4)}, "segments: expected integers"),
    ({"positions": torch.arange(4)}, "positions: expected integers"),
    ({"positions": torch.arange(4)[None] + 21}, r"positions: expected 0 to 23 .*, got 21 to 24"),
    ({"cache": "none"}, TypeError, "cache: expected a cache, as new_cache"),
    by=lambda changes, *, kind: build(kind)(**{"x": tokens(2, 4), "targets": tokens(2, 4)} | changes),
))  # fmt: skip
