"""Abstractors from tokens to tokens: arrangements, masks, caching, generation and what is scored."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from dat.estimate import counter_formulas
from dual_attention.baselines import EncoderAbstractorDecoder, Seq2SeqAbstractor
from dual_attention.functional import padding_mask
from tests.support.tensors import assert_later_tokens_do_not_matter, float64

WIDTH, SOURCE, TARGET = 8, 7, 6
ARRANGEMENTS = [("source", "abstractor"), ("encoder", "abstractor"), ("source", "both"), ("encoder", "both")]
BLOCK = {"n_heads": 2, "dff": 12, "dropout_rate": 0.0, "activation": "relu", "norm_first": True}
SYMBOLS = {
    "positional_symbols": {"symbol_dim": WIDTH, "max_length": SOURCE},
    "symbolic_attention": {"d_model": WIDTH, "n_heads": 2, "n_symbols": 3},
    "rel_sym_attn": {
        "d_model": WIDTH,
        "rel_n_heads": 2,
        "symbolic_attn_n_heads": 2,
        "n_symbols": 4,
        "nbhd_delta": 2,
    },
}


def build(abstractor_reads="encoder", decoder_reads="both", symbols="symbolic_attention", **arguments):
    encoder = 0 if (abstractor_reads, decoder_reads) == ("source", "abstractor") else 2
    arguments = {
        "input_spec": {"type": "token", "vocab_size": 11},
        "output_spec": {"type": "token", "vocab_size": 6},
        "symbol_retrieval": symbols,
        "symbol_retrieval_kwargs": SYMBOLS[symbols],
        "d_model": WIDTH,
        "out_dim": 6,
        "n_layers_enc": encoder,
        "n_layers_abs": 1,
        "n_layers_dec": 2,
        "encoder_kwargs": BLOCK,
        "abstractor_kwargs": BLOCK,
        "decoder_kwargs": {**BLOCK, "n_heads_cross": 2},
        "in_block_size": SOURCE,
        "out_block_size": TARGET,
        "abstractor_reads": abstractor_reads,
        "decoder_reads": decoder_reads,
        **arguments,
    }
    return float64(Seq2SeqAbstractor(**arguments))


def words(batch=3, source=SOURCE, target=TARGET):
    return torch.randint(11, (batch, source)), torch.randint(6, (batch, target))


def close(got, wanted):
    torch.testing.assert_close(got, wanted, atol=1e-10, rtol=0)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_it_is_the_arrangement_of_vectors_between_embeddings_and_classifier(arrangement):
    model = build(*arrangement)
    core = EncoderAbstractorDecoder(
        WIDTH,
        model.n_layers_enc,
        1,
        2,
        **BLOCK,
        symbol_retrieval="symbolic_attention",
        symbol_retrieval_kwargs=SYMBOLS["symbolic_attention"],
        abstractor_reads=arrangement[0],
        decoder_reads=arrangement[1],
    ).double()
    core.encoder_blocks.load_state_dict(model.layers["encoder_blocks"].state_dict())
    core.abstractor.load_state_dict(model.layers["abstractor"].state_dict())
    core.decoder_layers.load_state_dict(model.layers["decoder_blocks"].state_dict())
    x, y = words()
    mask = padding_mask(torch.tensor([7, 3, 5]))
    source, target = model._embed("source", x, None), model._embed("target", y, None)
    wanted = model.layers["final_out"](core(source, target, source_padding_mask=mask))
    memory = model.encode(x, source_padding_mask=mask)
    assert memory.shape == (3, SOURCE, model.memory_dim)
    close(model.decode(y, memory, source_padding_mask=mask), wanted)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_no_target_position_sees_a_later_one(arrangement):
    model = build(*arrangement)
    x, _ = words(2)
    memory = model.encode(x)
    embed = model.layers["target_embedder"]

    def decoded(vectors):
        return model._apply_blocks("decoder", vectors, (memory,), None, None)

    assert_later_tokens_do_not_matter(decoded, embed(torch.randint(6, (2, TARGET))).detach(), at=3)


@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_padded_is_one_by_one(arrangement, symbols):
    model = build(*arrangement, symbols=symbols)
    x, y = words()
    lengths, target_lengths = torch.tensor([2, SOURCE, 4]), torch.tensor([TARGET, 1, 3])
    masks = {
        "source_padding_mask": padding_mask(lengths, SOURCE),
        "target_padding_mask": padding_mask(target_lengths, TARGET),
    }
    memory = model.encode(x, source_padding_mask=masks["source_padding_mask"])
    logits = model.decode(y, memory, **masks)
    last, _ = model(x, y, **masks)
    for row, (n, t) in enumerate(zip(lengths.tolist(), target_lengths.tolist(), strict=True)):
        alone = model.decode(y[row : row + 1, :t], model.encode(x[row : row + 1, :n]))
        close(logits[row : row + 1, :t], alone)
        close(last[row : row + 1], alone[:, -1:])


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_cached_is_uncached(arrangement):
    model = build(*arrangement)
    x, y = words()
    mask = padding_mask(torch.tensor([7, 3, 5]))
    with torch.no_grad():
        memory, cache = model.encode(x, source_padding_mask=mask), model.new_cache()
        steps = [model.decode(part, memory, source_padding_mask=mask, cache=cache) for part in y.split([2, 1, 3], 1)]
        close(torch.cat(steps, 1), model.decode(y, memory, source_padding_mask=mask))
    assert cache.length == TARGET
    for options in ({}, {"num_beams": 3}, {"temperature": 0.8, "seed": 3}):
        made = [
            model.generate(x, 5, start_token=0, source_padding_mask=mask, use_cache=use_cache, **options)
            for use_cache in (True, False)
        ]
        assert torch.equal(*made) and made[0].shape == (3, 5)


def test_every_parameter_learns_and_padding_is_not_scored():
    model = build()
    x, y = words()
    targets, real = torch.randint(6, y.shape), padding_mask(torch.tensor([6, 2, 4]))
    logits, loss = model(x, y, targets, target_padding_mask=real)
    close(loss, F.cross_entropy(logits[real], targets[real]))
    loss.backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []
    assert [n for n, p in model.named_parameters() if not p.grad.any()] == []
    ignored, _ = model(x, y, targets.masked_fill(~real, -1), target_padding_mask=real)
    close(ignored, logits)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_arithmetic_is_what_is_counted(arrangement):
    model = build(*arrangement)
    x, y = words(batch=2, source=5, target=3)
    with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as counter:
        model(x, y, y)
    assert model.flops_per_pair(5, 3) * 2 == 3 * counter.get_total_flops()


@pytest.mark.parametrize(("layers", "published"), [(1, "816K"), (2, "1.54M")])
def test_sizes_of_the_published_runs_on_mathematics(layers, published):
    block = {"n_heads": 8, "dff": 256, "dropout_rate": 0.1, "activation": "relu", "norm_first": False}
    characters = {"type": "token", "vocab_size": 85}
    model = Seq2SeqAbstractor(
        characters,
        characters,
        "symbolic_attention",
        {"d_model": 128, "n_heads": 4, "n_symbols": 161},
        128,
        85,
        layers,
        layers,
        layers,
        block,
        {**block, "residual": "objects"},
        {**block, "n_heads_cross": 8},
        161,
        161,
        tie_weights=False,
    )
    size = model.get_num_params()
    assert (f"{size / 1e3:.0f}K" if size < 1e6 else f"{size / 1e6:.2f}M") == published


def test_vectors_in_and_state_dicts():
    model = build(input_spec={"type": "vector", "dim": 3}, pos_enc="learned")
    x = torch.randn(2, 5, 3).double()
    again = build(input_spec={"type": "vector", "dim": 3}, pos_enc="learned")
    again.load_state_dict(model.state_dict(), strict=True)
    y = torch.randint(6, (2, 4))
    close(again(x, y)[0], model(x, y)[0])
    model.gradient_checkpointing = True
    close(model(x, y, y)[1], again(x, y, y)[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build("target"), "abstractor_reads: expected 'source' or 'encoder', got 'target'"),
        (lambda: build(n_layers_enc=0), "n_layers_enc: expected at least 1 with"),
        (lambda: build("source", "abstractor", n_layers_enc=1), "n_layers_enc: expected 0, "),
        (lambda: build(n_layers_abs=0), "n_layers_abs: expected a positive number"),
        (lambda: build(n_layers_dec=0), "n_layers_dec: expected a positive number"),
        (lambda: build(symbol_retrieval="position_relative"), "symbol_retrieval: expected 'positional_symbols'"),
        (
            lambda: build(symbol_retrieval_kwargs={"d_model": 4, "n_heads": 2, "n_symbols": 3}),
            "expected d_model=8, the width of the model, got 4",
        ),
        (lambda: build().decode(words()[1], torch.zeros(3, 7, WIDTH).double()), r"memory: .*\(3, length, 16\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
