"""Models made without values have, once these are drawn, the values of a model that is made at once."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from dat.experiments.language.config import LanguageMachineConfig
from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.language.problem import build_language_model, prepare_text
from dat.training.configs import ParallelMachineConfig
from dat.training.deferred import deferred
from dat.training.distributed import Workers
from dat.training.placement import place_model
from tests.lab.experiments.language.conftest import MODEL, tiny_config
from tests.support.processes import together

SHARDED = ParallelMachineConfig(parallel="shard")
KINDS: dict[str, LanguageModelKeys] = {
    "a DAT": MODEL,
    "a Transformer": replace(MODEL, n_heads_ra=0, n_heads_sa=2, bias=True),
    "learned positions, nothing tied": replace(MODEL, pos_enc_type="pos_emb", tie_weights=False),
    "sinusoids": replace(MODEL, symbols="positional_symbols", n_layers=2),
    "relative symbols": replace(MODEL, symbols="position_relative"),
    "tied libraries, trained": replace(
        MODEL, n_layers=2, shared_symbol_retriever=False, weight_tie_symbol_library=True, trainable_symbols=True
    ),
    "large W_r": replace(MODEL, wr_init="large", n_relations=3),
    "relations of a size": replace(MODEL, rel_init_size=0.5),
    "gates, RMSNorm": replace(MODEL, output_gate="sigmoid", norm_type="rmsnorm"),
}


def made(keys: LanguageModelKeys) -> nn.Module:
    return build_language_model(keys.language_config(257), seed=5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_values_are_those_of_a_model_made_at_once(kind):
    expected = made(KINDS[kind])
    after = torch.get_rng_state()
    torch.manual_seed(77)
    model, draw = deferred(partial(made, KINDS[kind]))
    assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    torch.manual_seed(78)  # whatever is drawn meanwhile
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        parameter.data.fill_(float("nan"))
    draw()
    assert torch.equal(torch.get_rng_state(), after)
    found = dict([*model.named_parameters(), *model.named_buffers()])
    wanted = dict([*expected.named_parameters(), *expected.named_buffers()])
    assert found.keys() == wanted.keys()
    assert [name for name, tensor in wanted.items() if not torch.equal(tensor, found[name])] == []
    assert [p.requires_grad for p in model.parameters()] == [p.requires_grad for p in expected.parameters()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "kind"), [(1, "tied libraries, trained"), (2, "a DAT"), (3, "tied libraries, trained")]
)
def test_sharded_models_have_them_whatever_the_number_of_processes(size, kind):
    def weights(workers: Workers):
        model, draw = deferred(partial(made, KINDS[kind]))
        # tests make problems of models only, so no data are needed here
        problem = Bare(model, draw)
        return place_model(problem, torch.device("cpu"), SHARDED, workers).weights()

    found = together(size, weights)[0]
    expected = made(KINDS[kind]).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


class Bare:
    """A problem without data."""

    def __init__(self, model: nn.Module, draw) -> None:
        self.model, self.draw, self.taught = model, draw, None


@pytest.mark.parametrize("base", [None, 8])
def test_a_run_that_is_to_be_sharded_begins_alike_in_one_process(tmp_path, base):
    config = tiny_config(tmp_path)
    config = replace(config, optim=replace(config.optim, mup_base_width=base))
    machine = LanguageMachineConfig(device="cpu", threads=1, parallel="shard")
    whole = prepare_text(config, cache=tmp_path).problem
    parts = prepare_text(replace(config, machine=machine), cache=tmp_path).problem
    assert parts.draw is not None and next(parts.model.parameters()).is_meta
    place_model(parts, torch.device("cpu"), machine)
    assert parts.factors == whole.factors
    for found, expected in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(found, expected)


def test_functions_that_are_not_known_are_refused():
    with pytest.raises(TypeError, match="expected only random functions that fill a tensor"):
        deferred(lambda: nn.ParameterList([torch.bernoulli(torch.empty(3))]))
