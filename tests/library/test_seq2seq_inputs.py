"""Sequence-to-sequence models refuse bad arguments, and say why."""

import copy

import pytest
import torch

from dual_attention.seq2seq_models import Seq2SeqTransformer
from tests.support.refusals import refused
from tests.support.seq2seq import BLOCK, SIZES, SYMBOLS, TOKENS, VECTORS, build, words
from tests.support.tensors import normal

X, V = torch.zeros(3, 4, dtype=torch.long), normal(3, 4, 3)


@torch.no_grad()
def decode_with(cached, **options):
    """Continue from the cache of another model."""
    model, (x, y) = build(**options), words()
    model.decode(y, model.encode(x), cache=build(cached, **options).new_cache())


def called(**more):
    return build()(**{"x": X, "y": X, "targets": X, **more})


def called_with_vectors(**more):
    return build(**VECTORS)(**{"x": V, "y": V[..., :2], "targets": V[..., :2], **more})


def generated(**more):
    return build().generate(X, **{"max_new_tokens": 3, "start_token": 0, **more})


test_what_is_refused = pytest.mark.sweep(3)(refused(
    (lambda: build(input_spec={"type": "image"}), "input_spec: expected 'type' to be .* got 'image'"),
    (lambda: build(input_spec="token"), TypeError, r"input_spec: expected a mapping .* got 'token'"),
    (lambda: build(input_spec={}), "input_spec: expected 'type'"),
    (lambda: build(output_spec={"type": "token"}), "output_spec: expected 'vocab_size' .* got None"),
    (lambda: build(output_spec={"type": "vector", "dim": 0}), "output_spec: expected 'dim' .* got 0"),
    (lambda: build(output_spec={"type": "vector", "dim": 2.0}), "output_spec: expected 'dim' .* got 2.0"),
    (lambda: build(out_dim=7), "tie_weights: needs out_dim=6, got 7"),
    (lambda: build(out_dim=0), "out_dim: .*got 0"),
    (lambda: build(n_layers_enc=0), "n_layers_enc: .*got 0"),
    (lambda: build(n_layers_dec=-1), "n_layers_dec: .*got -1"),
    (lambda: build(in_block_size=0), "in_block_size: .*got 0"),
    (lambda: build(pos_enc="rope"), "pos_enc: .*got 'rope'"),
    (lambda: build(loss_type="l1"), "loss_type: .*got 'l1'"),
    (lambda: build(embedding_init="small"), "embedding_init: .*got 'small'"),
    (lambda: build(rope_theta=0.0), "rope_theta: expected a positive number, got 0.0"),
    (lambda: build(decoder={"attn_kwargs": {"key_dim": 3}}, rope_theta=10.0), "decoder_kwargs: .* even width, got 3"),
    (lambda: build(embedding_dropout=1.0), "dropout: .*got 1.0"),
    (lambda: build(embedding_dropout=1.0, pos_enc="none"), "embedding_dropout: .*got 1.0"),
    (lambda: build("symbolic_attention", decoder={"ra_kwargs": {"use_relative_positional_symbols": True}}),
     r"decoder_kwargs\['ra_kwargs'\]: .*use_relative_positional_symbols=False"),
    (lambda: build("rel_sym_attn", symbol_retrieval_kwargs={**SYMBOLS["rel_sym_attn"], "causal_nbhd": False}),
     "symbol_retrieval_kwargs: a causal decoder needs causal_nbhd=True"),
    (lambda: build("symbolic_attention", decoder_symbol_retrieval="symbolic_attention",
                   decoder_symbol_retrieval_kwargs={"d_model": 4, "n_heads": 2, "n_symbols": 5}),
     "decoder_symbol_retrieval_kwargs: expected d_model=8, the width of the model, got 4"),
    (lambda: build("symbolic_attention", decoder_symbol_retrieval_kwargs={}), "needs decoder_symbol_retrieval"),
    (lambda: called(x=torch.full((3, 4), 11)), "x: expected token ids from 0 to 10, got 11 to 11"),
    (lambda: called(y=torch.full((3, 4), 6)), "y: expected token ids from 0 to 5"),
    (lambda: called(x=torch.zeros(3, 10, dtype=torch.long)), "x: expected at most in_block_size=9 .*got 10"),
    (lambda: called(y=torch.zeros(3, 8, dtype=torch.long)), "y: expected at most out_block_size=7 .*got 8"),
    (lambda: called(y=torch.zeros(2, 4, dtype=torch.long)), r"memory: expected \(2, length, "),
    (lambda: called(y=torch.zeros(3, 0, dtype=torch.long), targets=None), "y: expected at least one position"),
    (lambda: called(targets=torch.zeros(3, 3, dtype=torch.long)), "targets: expected shape"),
    (lambda: called(targets=torch.zeros(3, 4)), TypeError, "targets: expected integers"),
    (lambda: called(targets=torch.full((3, 4), 6)), "targets: expected 0 to 5"),
    (lambda: called(source_padding_mask=torch.ones(3, 4)), TypeError, "source_padding_mask: expected a boolean"),
    (lambda: called(source_padding_mask=torch.ones(3, 5).bool()), "source_padding_mask: expected shape"),
    (lambda: called(target_padding_mask=torch.ones(1, 4).bool()), "target_padding_mask: expected shape"),
    (lambda: called(loss_mask=torch.ones(3, 4)), TypeError, "loss_mask: expected a boolean"),
    (lambda: called(loss_mask=torch.ones(3, 5).bool()), "loss_mask: expected shape"),
    (lambda: called_with_vectors(x=torch.zeros(3, 4, 2)), r"x: expected shape \(batch, length, 3\)"),
    (lambda: called_with_vectors(x=torch.zeros(3, 4, 3).long()), TypeError, "x: expected floating-point vectors"),
    (lambda: called_with_vectors(targets=torch.zeros(3, 4, 2).long()), TypeError,
     "targets: expected .* vectors for loss_type='mse'"),
    (lambda: called_with_vectors(targets=torch.zeros(3, 4)), "targets: expected shape"),
    (lambda: build(decoder={"causal": False}).generate(X, 3, start_token=0), "needs a causal decoder"),
    (lambda: build(**VECTORS).generate(V, 3, start_token=0), "generate_vectors is for vectors"),
    (lambda: build(out_dim=9, tie_weights=False).generate(X, 3, start_token=0), "reads 6 tokens, fewer than out_dim=9"),
    (lambda: build().generate_vectors(X, 3, start=V[:, :1, :2]), "generate_vectors: needs .* that reads vectors"),
    (lambda: build(**{**VECTORS, "out_dim": 4}).generate_vectors(V, 3, start=V[:, :1, :2]), "generate_.*: .*out_dim=4"),
    (lambda: build(**VECTORS).generate_vectors(V, 8, start=V[:, :1, :2]), "length: expected at most 7"),
    (lambda: build(**VECTORS).generate_vectors(V, 2, start=V[:, :1]), r"start: expected shape \(batch, length, 2\)"),
    (lambda: decode_with("plain", decoder={"causal": False}), "cache: needs is_causal=True"),
    (lambda: decode_with("positional_symbols"), "cache: expected the parts"),
    (lambda: generated(max_new_tokens=8), "max_new_tokens: expected at most 7 .*out_block_size=7; got 8"),
    (lambda: generated(max_new_tokens=-1), "max_new_tokens: .*got -1"),
    (lambda: generated(start_token=6), "start_token: .*from 0 to 5, got 6"),
    (lambda: generated(start_token=torch.zeros(2, 1).long()), "prefix .*3 sources"),
    (lambda: generated(start_token=torch.zeros(3, 0).long()), "start_token: expected at least one"),
    (lambda: generated(start_token=0.5), TypeError, "start_token: expected an integer"),
    (lambda: generated(stop_token=6), "^stop_token: .*from 0 to 5, got 6"),
    (lambda: generated(num_beams=0), "num_beams: .*got 0"),
    (lambda: generated(num_beams=2, temperature=1.0), "beam search samples nothing"),
    (lambda: generated(num_beams=2, logits_processors=[lambda _, logits: logits]), "beam search samples nothing"),
    (lambda: generated(num_beams=2, top_k=3), "beam search samples nothing"),
    (lambda: generated(num_beams=2, seed=0), "beam search samples nothing"),
    (lambda: generated(length_penalty=2.0), "length_penalty: is of beam search"),
    (lambda: generated(use_cache="no"), TypeError, "use_cache: expected True or False"),
    (lambda: generated(temperature=-1.0), "temperature"),
    (lambda: generated(seed=0, generator=torch.Generator()), "seed"),
))  # fmt: skip


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
