"""Keys of models that go to symbol mechanisms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dat.experiments import EXPERIMENTS

MODEL = EXPERIMENTS["language"].load().Config().model


@pytest.mark.parametrize("symbols", ["positional_symbols", "position_relative"])
def test_symbols_may_be_sinusoids(symbols: str):
    learned = replace(MODEL, symbols=symbols)
    models = [
        keys.language_config(31).build(device="meta") for keys in (learned, replace(learned, sinusoidal_symbols=True))
    ]
    counts = [sum(p.numel() for p in model.parameters()) for model in models]
    rows = MODEL.context if symbols == "positional_symbols" else 2 * MODEL.n_symbols + 1
    assert counts[0] - counts[1] == rows * MODEL.d_model


@pytest.mark.parametrize("symbols", ["symbolic_attention", "rel_sym_attn"])
def test_symbols_that_objects_retrieve_are_no_sinusoids(symbols: str):
    with pytest.raises(ValueError, match=f"model.symbols: expected positional_symbols, .*got '{symbols}'"):
        replace(MODEL, symbols=symbols, sinusoidal_symbols=True)
