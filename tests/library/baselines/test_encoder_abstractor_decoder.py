"""The four arrangements of encoder, abstractor and decoder."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dual_attention.baselines import EncoderAbstractorDecoder
from dual_attention.functional import padding_mask
from tests.support.refusals import refused
from tests.support.tensors import float64, normal

ARRANGEMENTS = [("source", "abstractor"), ("encoder", "abstractor"), ("source", "both"), ("encoder", "both")]
SIZES = {"n_heads": 2, "dff": 12, "dropout_rate": 0.0, "activation": "relu", "norm_first": False}
LIBRARY = {"d_model": 8, "n_heads": 2, "n_symbols": 3}
SYMBOLS = {"symbol_retrieval": "symbolic_attention", "symbol_retrieval_kwargs": LIBRARY}


def build(abstractor_reads="encoder", decoder_reads="both", **arguments):
    encoder = 0 if (abstractor_reads, decoder_reads) == ("source", "abstractor") else 2
    arguments = {"n_layers_enc": encoder, "n_layers_abs": 1, "n_layers_dec": 2, **SIZES, **SYMBOLS, **arguments}
    arguments |= {"abstractor_reads": abstractor_reads, "decoder_reads": decoder_reads}
    return float64(EncoderAbstractorDecoder(8, **arguments))


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_who_reads_what(arrangement):
    model, x, y = build(*arrangement), normal(2, 5, 8), normal(2, 4, 8)
    encoded = x
    for block in model.encoder_blocks:
        encoded = block(encoded)
    abstract = model.abstractor(encoded if arrangement[0] == "encoder" else x)
    contexts = [encoded, abstract] if arrangement[1] == "both" else [abstract]
    wanted = y
    for blocks in model.decoder_layers:
        for block, context in zip(blocks, contexts, strict=True):
            wanted = block(wanted, context)
    torch.testing.assert_close(model(x, y), wanted)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_cached_is_uncached(arrangement):
    model, x, y = build(*arrangement), normal(2, 5, 8), normal(2, 6, 8)
    mask = padding_mask(torch.tensor([5, 3]))
    with torch.no_grad():
        context, cache = model.encode(x, source_padding_mask=mask), model.new_cache()
        steps = [model.decode(part, context, cache=cache) for part in y.split([2, 1, 3], dim=1)]
        whole = model(x, y, source_padding_mask=mask)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)
    assert cache.length == 6


def test_the_abstractor_may_differ_from_the_other_layers():
    model = build(abstractor_kwargs={"n_heads": 4, "n_layers": 3, "residual": "objects"})
    assert len(model.abstractor.blocks) == 3 and model.abstractor.residual == "objects"
    assert model.abstractor.blocks[0].rel_attn.n_heads == 4 and model.encoder_blocks[0].self_attn.n_heads == 2


def test_it_learns_to_sort():
    """Each output is the place of the next larger of five random numbers, given the objects before it."""
    torch.manual_seed(0)
    model = EncoderAbstractorDecoder(
        16, 1, 1, 1, n_heads=2, dff=32, dropout_rate=0.0, activation="relu", norm_first=False, **SYMBOLS | {
            "symbol_retrieval": "positional_symbols", "symbol_retrieval_kwargs": {"symbol_dim": 16, "max_length": 5}
        }
    )  # fmt: skip
    embed, token, place, head = nn.Linear(1, 16), nn.Embedding(6, 16), nn.Embedding(5, 16), nn.Linear(16, 5)
    parts = nn.ModuleList([model, embed, token, place, head])
    optimizer = torch.optim.Adam(parts.parameters(), lr=3e-3)
    numbers = torch.rand(64, 5)
    order = numbers.argsort(dim=1)
    shifted = torch.cat((torch.full((64, 1), 5), order[:, :-1]), dim=1)
    losses = []
    for _ in range(60):
        logits = head(model(embed(numbers[..., None]) + place.weight, token(shifted) + place.weight))
        losses.append(nn.functional.cross_entropy(logits.flatten(0, 1), order.flatten()))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.7 * losses[0]


test_bad_input = refused(
    (lambda: build("target"), "abstractor_reads: expected 'source' or 'encoder', got 'target'"),
    (lambda: build(decoder_reads="encoder"), "decoder_reads: expected 'abstractor' or 'both'"),
    (lambda: build(n_layers_enc=0), "n_layers_enc: expected at least 1 with .*got 0"),
    (lambda: build("source", "abstractor", n_layers_enc=1), "n_layers_enc: expected 0, .*got 1"),
    (lambda: build(n_layers_dec=0), "n_layers_dec: expected a positive number, got 0"),
    (lambda: build()(normal(2, 5, 7), normal(2, 4, 8)), r"source: expected shape .*\(2, 5, 7\)"),
    (lambda: build()(normal(2, 5, 8), normal(3, 4, 8)), r"target: expected shape \(2, length, 8\)"),
    (lambda: build()(*[normal(2, 5, 8)] * 2, source_padding_mask=torch.ones(2, 5)), TypeError, "padding_mask: .*bool"),
)
