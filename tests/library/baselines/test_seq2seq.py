"""Abstractors from tokens to tokens: their arrangements; what they share with others is in `test_seq2seq_models.py`."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dat.estimate import counter_formulas
from dual_attention.baselines import Seq2SeqAbstractor
from dual_attention.functional import padding_mask
from tests.library.test_every_parameter import without_gradient
from tests.support.refusals import refused
from tests.support.seq2seq import ABSTRACTORS, SOURCE, SYMBOLS, TARGET, WIDTH, build, close, words

KIND = "encoder, both"


@pytest.mark.parametrize("kind", ABSTRACTORS)
def test_who_reads_what(kind):
    model, (x, y) = build(kind, pos_enc="none"), words()
    mask, real = padding_mask(torch.tensor([9, 3, 5])), torch.arange(TARGET) >= torch.tensor([[5], [0], [3]])
    source, target = model._embed("source", x, None), model._embed("target", y, None)
    encoded, (abstractor_reads, decoder_reads) = source, kind.split(", ")
    for block in model.layers["encoder_blocks"]:
        encoded = block(encoded, padding_mask=mask)
    abstract = model.layers["abstractor"](encoded if abstractor_reads == "encoder" else source, padding_mask=mask)
    contexts = [encoded, abstract] if decoder_reads == "both" else [abstract]
    for blocks in model.layers["decoder_blocks"]:
        for block, context in zip(blocks, contexts, strict=True):
            target = block(target, context, padding_mask=real, context_padding_mask=mask)
    memory = model.encode(x, source_padding_mask=mask)
    assert memory.shape == (3, SOURCE, model.memory_dim)
    decoded = model.decode(y, memory, source_padding_mask=mask, target_padding_mask=real)
    close(decoded[real], model.layers["final_out"](target)[real])


@pytest.mark.parametrize("kind", ABSTRACTORS)
def test_every_parameter_gets_a_gradient(kind):
    model, (x, y) = build(kind), words()
    model(x, y, y)[1].backward()
    assert not without_gradient(model)


@pytest.mark.parametrize("kind", ABSTRACTORS)
def test_arithmetic_is_what_is_counted(kind):
    symbols = {"symbol_retrieval": "symbolic_attention", "symbol_retrieval_kwargs": SYMBOLS["symbolic_attention"]}
    model, (x, y) = build(kind, **symbols), words(batch=2, source=5, target=3)
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


test_bad_input = refused(
    (lambda: build(KIND, abstractor_reads="target"), "abstractor_reads: expected 'source' or 'encoder', got 'target'"),
    (lambda: build(KIND, decoder_reads="encoder"), "decoder_reads: expected 'abstractor' or 'both'"),
    (lambda: build(KIND, n_layers_enc=0), "n_layers_enc: expected at least 1 with .*got 0"),
    (lambda: build("source, abstractor", n_layers_enc=1), "n_layers_enc: expected 0, .*got 1"),
    (lambda: build(KIND, n_layers_abs=0), "n_layers_abs: expected a positive number"),
    (lambda: build(KIND, n_layers_dec=0), "n_layers_dec: expected a positive number"),
    (lambda: build(KIND, symbol_retrieval="position_relative"), "symbol_retrieval: expected 'positional_symbols'"),
    (lambda: build(KIND, symbol_retrieval_kwargs={"d_model": 4, "n_heads": 2, "n_symbols": 3}),
     "expected d_model=8, the width of the model, got 4"),
    (lambda: build(KIND).decode(words()[1], torch.zeros(3, 7, WIDTH).double()), r"memory: .*\(3, length, 16\)"),
)  # fmt: skip
