"""Relations that are squared distances: their strength, half precision, compiled code and decoding."""

import math

import pytest
import torch

from dual_attention.relational_attention import RelationalAttention
from tests.support.tensors import float64, normal


def test_squared_distances_start_as_strong_as_dot_products_and_learn_their_strength():
    layer = RelationalAttention(8, 2, n_relations=3, rel_score="squared_distance").double()
    plain = RelationalAttention(8, 2, n_relations=3)
    assert set(layer.state_dict()) - set(plain.state_dict()) == {"raw_rel_strength"}
    x = normal(2, 5, 8)
    u, w = layer.wq_rel(x).unflatten(-1, (3, 2)), layer.wk_rel(x).unflatten(-1, (3, 2))
    distances = (u[:, :, None] - w[:, None]).square().sum(-1)
    torch.testing.assert_close(layer.relations(x), -distances / math.sqrt(2))
    layer.relations(x).sum().backward()
    assert layer.raw_rel_strength.grad.all()
    layer.raw_rel_strength.data.fill_(3.0)
    layer.reset_relations()
    torch.testing.assert_close(layer.relations(x), -distances / math.sqrt(2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("relative", [False, True])
def test_squared_distances_in_low_precision_are_computed_in_float32(dtype, autocast, relative):
    """Equal objects stay equal, and the output is that of the rounded inputs and weights, rounded once."""
    options = {"symmetric_rels": True, "rel_score": "squared_distance", "use_relative_positional_symbols": relative}
    layer = RelationalAttention(64, 2, n_relations=2, **options).eval()
    x = torch.randn(1, 6, 64)
    x[:, 4] = x[:, 1]
    symbols = torch.randn(6, 6, 64) if relative else torch.randn(1, 6, 64)
    with torch.no_grad():
        if autocast:
            exact = layer(x, symbols, is_causal=True).output
            with torch.autocast("cpu", dtype=dtype):
                relations, found = layer.relations(x), layer(x, symbols, is_causal=True, need_weights=True)
        else:
            layer, x, symbols = layer.to(dtype), x.to(dtype), symbols.to(dtype)
            relations, found = layer.relations(x), layer(x, symbols, is_causal=True, need_weights=True)
            exact = layer.float()(x.float(), symbols.float(), is_causal=True).output
    assert relations.dtype == torch.float32 and relations[0, 1, 4].abs().max() < 1e-5
    assert {part.dtype for part in found} == {dtype}
    assert found.relations[0, 1, 4].abs().max() < 1e-5
    torch.testing.assert_close(found.output.float(), exact, atol=0.03, rtol=0.03)


@pytest.mark.slow
def test_squared_distances_under_autocast_compile_to_the_same():
    layer = RelationalAttention(64, 2, n_relations=2, symmetric_rels=True, rel_score="squared_distance").eval()
    x, symbols = torch.randn(1, 6, 64), torch.randn(1, 6, 64)
    x[:, 4] = x[:, 1]

    def call(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x, symbols, need_weights=True)

    found, wanted = torch.compile(call, fullgraph=True)(x), call(x)
    assert found.relations[0, 1, 4].abs().max() < 1e-5
    torch.testing.assert_close(found.output, wanted.output, atol=0.02, rtol=0.02)


def test_a_step_of_decoding_makes_no_factors_of_earlier_senders(monkeypatch):
    layer = float64(RelationalAttention(8, 2, rel_score="squared_distance", symmetric_rels=True))
    x, symbols, cache = normal(2, 5, 8), normal(2, 5, 8), layer.new_cache()
    made = []
    strengthened = layer._strengthened
    monkeypatch.setattr(layer, "_strengthened", lambda x: made.append(x.shape) or strengthened(x))
    with torch.no_grad():
        wanted = layer(x, symbols, is_causal=True).output
        steps = [layer(x[:, i : i + 1], symbols[:, i : i + 1], is_causal=True, cache=cache).output for i in range(5)]
    torch.testing.assert_close(torch.cat(steps, 1), wanted)
    assert made == [(2, 5, 8), *[(2, 1, 8)] * 5]
