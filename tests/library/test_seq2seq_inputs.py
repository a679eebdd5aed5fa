"""Sequence-to-sequence models refuse bad arguments, and say why."""

import copy

import pytest
import torch

from dual_attention.seq2seq_models import Seq2SeqTransformer
from tests.support.refusals import refused
from tests.support.seq2seq import BLOCK, SIZES, SYMBOLS, TOKENS, VECTORS, build, words
from tests.support.tensors import normal

test_bad_constructions_are_refused = refused(
    ("plain", {"input_spec": {"type": "image"}}, "input_spec: expected 'type' to be .* got 'image'"),
    ("plain", {"input_spec": "token"}, TypeError, r"input_spec: expected a mapping .* got 'token'"),
    ("plain", {"input_spec": {}}, "input_spec: expected 'type'"),
    ("plain", {"output_spec": {"type": "token"}}, "output_spec: expected 'vocab_size' .* got None"),
    ("plain", {"output_spec": {"type": "vector", "dim": 0}}, "output_spec: expected 'dim' .* got 0"),
    ("plain", {"output_spec": {"type": "vector", "dim": 2.0}}, "output_spec: expected 'dim' .* got 2.0"),
    ("plain", {"out_dim": 7}, "tie_weights: needs out_dim=6, got 7"),
    ("plain", {"out_dim": 0}, "out_dim: .*got 0"),
    ("plain", {"n_layers_enc": 0}, "n_layers_enc: .*got 0"),
    ("plain", {"n_layers_dec": -1}, "n_layers_dec: .*got -1"),
    ("plain", {"in_block_size": 0}, "in_block_size: .*got 0"),
    ("plain", {"pos_enc": "rope"}, "pos_enc: .*got 'rope'"),
    ("plain", {"loss_type": "l1"}, "loss_type: .*got 'l1'"),
    ("plain", {"embedding_init": "small"}, "embedding_init: .*got 'small'"),
    ("plain", {"rope_theta": 0.0}, "rope_theta: expected a positive number, got 0.0"),
    ("plain", {"decoder": {"attn_kwargs": {"key_dim": 3}}, "rope_theta": 10.0}, "decoder_kwargs: .* even width, got 3"),
    ("plain", {"embedding_dropout": 1.0}, "dropout: .*got 1.0"),
    ("plain", {"embedding_dropout": 1.0, "pos_enc": "none"}, "embedding_dropout: .*got 1.0"),
    ("symbolic_attention", {"decoder": {"ra_kwargs": {"use_relative_positional_symbols": True}}},
     r"decoder_kwargs\['ra_kwargs'\]: .*use_relative_positional_symbols=False"),
    ("rel_sym_attn", {"symbol_retrieval_kwargs": {**SYMBOLS["rel_sym_attn"], "causal_nbhd": False}},
     "symbol_retrieval_kwargs: a causal decoder needs causal_nbhd=True"),
    (
        "symbolic_attention",
        {
            "decoder_symbol_retrieval": "symbolic_attention",
            "decoder_symbol_retrieval_kwargs": {"d_model": 4, "n_heads": 2, "n_symbols": 5},
        },
        "decoder_symbol_retrieval_kwargs: expected d_model=8, the width of the model, got 4",
    ),
    ("symbolic_attention", {"decoder_symbol_retrieval_kwargs": {}}, "needs decoder_symbol_retrieval"),
    by=lambda kind, arguments: build(kind, **arguments),
)  # fmt: skip


X, V = torch.zeros(3, 4, dtype=torch.long), normal(3, 4, 3)


@torch.no_grad()
def decode_with(cached, **options):
    """Continue from the cache of another model."""
    model, (x, y) = build(**options), words()
    model.decode(y, model.encode(x), cache=build(cached, **options).new_cache())


test_models_that_cannot_generate_say_so = refused(
    (lambda: build(decoder={"causal": False}).generate(X, 3, start_token=0), "needs a causal decoder"),
    (lambda: build(**VECTORS).generate(V, 3, start_token=0), "generate_vectors is for vectors"),
    (lambda: build(out_dim=9, tie_weights=False).generate(X, 3, start_token=0), "reads 6 tokens, fewer than out_dim=9"),
    (lambda: build().generate_vectors(X, 3, start=V[:, :1, :2]), "generate_vectors: needs .* that reads vectors"),
    (lambda: build(**{**VECTORS, "out_dim": 4}).generate_vectors(V, 3, start=V[:, :1, :2]), "generate_.*: .*out_dim=4"),
    (lambda: build(**VECTORS).generate_vectors(V, 8, start=V[:, :1, :2]), "length: expected at most 7"),
    (lambda: build(**VECTORS).generate_vectors(V, 2, start=V[:, :1]), r"start: expected shape \(batch, length, 2\)"),
    (lambda: decode_with("plain", decoder={"causal": False}), "cache: needs is_causal=True"),
    (lambda: decode_with("positional_symbols"), "cache: expected the parts"),
)


def test_arguments_are_not_changed():
    arguments = {
        **copy.deepcopy({**TOKENS, **SIZES}),
        "encoder_kwargs": {**BLOCK, "n_heads": 2},
        "decoder_kwargs": {**BLOCK, "n_heads": 2, "n_heads_cross": 2},
    }
    before = copy.deepcopy(arguments)
    model = Seq2SeqTransformer(**arguments)
    assert arguments == before
    arguments["encoder_kwargs"]["n_heads"] = 4
    assert model.encoder_kwargs["n_heads"] == 2


@pytest.mark.parametrize("kind", ["plain", "symbolic_attention"])
def test_published_attributes_are_kept(kind):
    model = build(kind)
    for name, value in {**TOKENS, **SIZES, "loss_ignore_idx": -1}.items():
        assert getattr(model, name) == value
    heads = {"n_heads": 2} if kind == "plain" else {"n_heads_sa": 1, "n_heads_ra": 1}
    for name, more in (("encoder_kwargs", {}), ("decoder_kwargs", {"n_heads_cross": 2})):
        given = getattr(model, name)
        assert {**given, **BLOCK, **heads, **more} == given


test_bad_calls_are_refused = refused(
    ({"x": torch.full((3, 4), 11)}, "x: expected token ids from 0 to 10, got 11 to 11"),
    ({"y": torch.full((3, 4), 6)}, "y: expected token ids from 0 to 5"),
    ({"x": torch.zeros(3, 10, dtype=torch.long)}, "x: expected at most in_block_size=9 .*got 10"),
    ({"y": torch.zeros(3, 8, dtype=torch.long)}, "y: expected at most out_block_size=7 .*got 8"),
    ({"y": torch.zeros(2, 4, dtype=torch.long)}, r"memory: expected \(2, length, "),
    ({"y": torch.zeros(3, 0, dtype=torch.long), "targets": None}, "y: expected at least one position"),
    ({"targets": torch.zeros(3, 3, dtype=torch.long)}, "targets: expected shape"),
    ({"targets": torch.zeros(3, 4)}, TypeError, "targets: expected integers"),
    ({"targets": torch.full((3, 4), 6)}, "targets: expected 0 to 5"),
    ({"source_padding_mask": torch.ones(3, 4)}, TypeError, "source_padding_mask: expected a boolean"),
    ({"source_padding_mask": torch.ones(3, 5).bool()}, "source_padding_mask: expected shape"),
    ({"target_padding_mask": torch.ones(1, 4).bool()}, "target_padding_mask: expected shape"),
    ({"loss_mask": torch.ones(3, 4)}, TypeError, "loss_mask: expected a boolean"),
    ({"loss_mask": torch.ones(3, 5).bool()}, "loss_mask: expected shape"),
    by=lambda arguments: build()(**{"x": X, "y": X, "targets": X, **arguments}),
)


test_bad_vectors_are_refused = refused(
    ({"x": torch.zeros(3, 4, 2)}, r"x: expected shape \(batch, length, 3\)"),
    ({"x": torch.zeros(3, 4, 3).long()}, TypeError, "x: expected floating-point vectors"),
    ({"targets": torch.zeros(3, 4, 2).long()}, TypeError, "targets: expected .* vectors for loss_type='mse'"),
    ({"targets": torch.zeros(3, 4)}, "targets: expected shape"),
    by=lambda arguments: build(**VECTORS)(**{"x": V, "y": V[..., :2], "targets": V[..., :2], **arguments}),
)


test_bad_generations_are_refused = refused(
    ({"max_new_tokens": 8}, "max_new_tokens: expected at most 7 .*out_block_size=7; got 8"),
    ({"max_new_tokens": -1}, "max_new_tokens: .*got -1"),
    ({"start_token": 6}, "start_token: .*from 0 to 5, got 6"),
    ({"start_token": torch.zeros(2, 1).long()}, "prefix .*3 sources"),
    ({"start_token": torch.zeros(3, 0).long()}, "start_token: expected at least one"),
    ({"start_token": 0.5}, TypeError, "start_token: expected an integer"),
    ({"stop_token": 6}, "stop_token.*from 0 to 5, got 6"),
    ({"num_beams": 0}, "num_beams: .*got 0"),
    ({"num_beams": 2, "temperature": 1.0}, "beam search samples nothing"),
    ({"num_beams": 2, "logits_processors": [lambda _, logits: logits]}, "beam search samples nothing"),
    ({"num_beams": 2, "top_k": 3}, "beam search samples nothing"),
    ({"temperature": -1.0}, "temperature"),
    ({"seed": 0, "generator": torch.Generator()}, "seed"),
    by=lambda arguments: build().generate(X, **{"max_new_tokens": 3, "start_token": 0, **arguments}),
)
