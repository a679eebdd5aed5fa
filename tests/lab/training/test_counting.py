"""Models that are only counted."""

from dataclasses import replace
from typing import get_args

import pytest
import torch

from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.relational_games.model import build_games_model, empty_games_model
from dat.experiments.relational_games.presets import PRESETS
from dat.training.experiment import count_parameters, without_values
from dual_attention.configs import SequenceSymbolRetrieval

SMALL = LanguageModelKeys(context=24, d_model=16, n_layers=2, n_heads_sa=1, n_heads_ra=1, dff=16, n_symbols=4)


def shapes(model: torch.nn.Module) -> dict[str, tuple[torch.Size, torch.dtype]]:
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors}


@pytest.mark.parametrize("positions", ["pos_emb", "RoPE", "none"])
@pytest.mark.parametrize("symbols", [s for s in get_args(SequenceSymbolRetrieval) if s != "rel_sym_attn"])
def test_a_language_model_without_values_has_the_same_shapes(symbols: str, positions: str):
    config = replace(SMALL, symbols=symbols, pos_enc_type=positions).language_config(31)
    before = torch.get_rng_state()
    with without_values():
        empty = config.build()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(tensor.is_meta for tensor in (*empty.parameters(), *empty.buffers()))
    assert shapes(empty) == shapes(config.build())


@pytest.mark.parametrize("name", PRESETS)
def test_a_classifier_without_values_has_the_same_shapes(name: str):
    empty = empty_games_model(PRESETS[name], "same")
    assert all(parameter.is_meta for parameter in empty.parameters())
    assert shapes(empty) == shapes(build_games_model(PRESETS[name], 2, seed=0))
    assert count_parameters(empty) > 0
