"""One product for all projections of dual attention: what it gives, and where the layers are called instead."""

import copy

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from dual_attention import DualAttention
from dual_attention._layers import packed
from dual_attention._layers.packed import is_watched, project_at_once
from dual_attention.functional.rotary import rotary_tables
from tests.support.refusals import refused

D, N = 32, 7
ROTARY = "freqs_cos", "freqs_sin"


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr("dual_attention.dual_attention.saves_launches", lambda x: True)


def called_one_by_one(layer):
    """The same layer, whose projections are called since one of them has a hook."""
    twin = copy.deepcopy(layer)
    twin.self_attention.wv.register_forward_hook(lambda *_: None)
    return twin


LAYERS = {
    "plain": {},
    "symmetric": {"ra_kwargs": {"symmetric_rels": True}},
    "distances": {"ra_kwargs": {"symmetric_rels": True, "rel_score": "squared_distance"}},
    "shared": {"share_attn_params": True},
    "groups": {"sa_kwargs": {"n_kv_heads": 1}, "ra_kwargs": {"n_kv_heads": 1, "n_relations": 5, "rel_proj_dim": 3}},
    "other keys": {"sa_kwargs": {"key_dim": 4}},
    "window": {"sa_kwargs": {"window": 3}, "ra_kwargs": {"window": 3}},
}


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_outputs_and_gradients_are_those_of_the_layers(options, rotary):
    layer = DualAttention(D, 2, 2, **options).double()
    twin = called_one_by_one(layer)
    rotary = rotary and layer.self_attention.key_dim == layer.relational_attention.key_dim
    tables = dict(zip(ROTARY, (table.double() for table in rotary_tables(D // 4, N)), strict=True)) if rotary else {}
    x, symbols = torch.randn(2, 3, N, D, dtype=torch.float64)
    results = []
    for one in (layer, twin):
        given = x.clone().requires_grad_()
        output = one(given, symbols, is_causal=True, **tables).output
        output.square().sum().backward()
        results.append([output, given.grad, *(weight.grad for weight in one.parameters())])
    torch.testing.assert_close(*results)


@torch.no_grad()
def test_decoding_joins_the_weights_once(monkeypatch):
    layer, tables = DualAttention(D, 2, 2).eval(), dict(zip(ROTARY, rotary_tables(D // 4, N), strict=True))
    x, symbols = torch.randn(2, 3, N, D)
    whole = called_one_by_one(layer)(x, symbols, is_causal=True, **tables).output
    joined, cat = [], torch.cat
    monkeypatch.setattr(
        packed.torch, "cat", lambda tensors, *rest, **kw: joined.append(tensors) or cat(tensors, *rest, **kw)
    )
    cache = layer.new_cache()
    pairs = zip(x.split(1, 1), symbols.split(1, 1), strict=True)
    steps = [layer(a, s, is_causal=True, cache=cache, **tables).output for a, s in pairs]
    assert sum(tensors[0].data_ptr() == layer.self_attention.wq.weight.data_ptr() for tensors in joined) == 1
    torch.testing.assert_close(cat(steps, dim=1), whole)


def _hooked(layer):
    layer.relational_attention.wq_rel.register_forward_pre_hook(lambda module, args: (2 * args[0],))


def _hooked_heads(layer):
    layer.relational_attention.register_forward_pre_hook(lambda module, args: (2 * args[0], *args[1:]))


def _adapted(layer):
    layer.self_attention.wq = nn.Sequential(layer.self_attention.wq, nn.Tanh())


def _replaced(layer):
    layer.self_attention.wk.forward = lambda x: x[..., : D // 2]


class Twice(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def _of_another_class(layer):
    layer.self_attention.wv.__class__ = Twice


def _parametrised(layer):
    nn.utils.parametrizations.orthogonal(layer.relational_attention.wk_rel)


def _with_lora(layer):
    peft = pytest.importorskip("peft")
    peft.inject_adapter_in_model(peft.LoraConfig(target_modules=["wq", "wk_rel"], init_lora_weights=False), layer)


class Rounded(torch.Tensor):
    """As weights of a quantised layer: a tensor whose products are its own."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        plain = [x.as_subclass(torch.Tensor).round() if isinstance(x, Rounded) else x for x in args]
        return (
            function(*plain, **(kwargs or {}))
            if function is nn.functional.linear
            else super().__torch_function__(function, types, args, kwargs)
        )


def _quantised(layer):
    layer.self_attention.wk.weight = nn.Parameter((9 * layer.self_attention.wk.weight.detach()).as_subclass(Rounded))


CHANGES = [_hooked, _hooked_heads, _adapted, _replaced, _of_another_class, _parametrised, _quantised]


@pytest.mark.parametrize("change", [*CHANGES, pytest.param(_with_lora, marks=pytest.mark.slow)])
def test_what_stands_in_a_layer_has_its_effect(change, monkeypatch):
    layer = DualAttention(D, 2, 2)
    x, symbols = torch.randn(2, 3, N, D)
    change(layer)
    found = layer(x, symbols).output
    monkeypatch.setattr("dual_attention.dual_attention.saves_launches", lambda x: False)
    torch.testing.assert_close(found, layer(x, symbols).output, rtol=0, atol=0)


def test_projections_of_a_mesh_of_devices_are_called(tmp_path):
    """:func:`parallelize_module` makes distributed tensors of weights, which no product of ours joins."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        layer, x = DualAttention(D, 2, 2), torch.randn(3, N, D)
        expected = called_one_by_one(layer)(x, x).output
        plan = {f"self_attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")}
        parallelize_module(layer, init_device_mesh("cpu", (1,)), plan)
        assert isinstance(layer.self_attention.wq.weight, DTensor)
        torch.testing.assert_close(layer(x, x).output, expected)
    finally:
        distributed.destroy_process_group()


def test_nothing_is_joined_on_a_cpu(monkeypatch):
    """Where a product more costs less than joining weights for it."""
    monkeypatch.undo()
    monkeypatch.setattr("dual_attention.dual_attention.project_at_once", lambda *_: pytest.fail("joined"))
    x = torch.randn(3, N, D)
    DualAttention(D, 2, 2)(x, x)


def test_hooks_of_the_backward_pass_are_called():
    layer, called = DualAttention(D, 2, 2), []
    layer.self_attention.wq.register_full_backward_pre_hook(lambda module, grads: called.append("before"))
    layer.relational_attention.wk_rel.register_full_backward_hook(lambda module, *grads: called.append("after"))
    x, symbols = torch.randn(2, 3, N, D)
    layer(x, symbols).output.sum().backward()
    assert sorted(called) == ["after", "before"]
    layer = DualAttention(D, 2, 2)
    layer.self_attention.wk.register_full_backward_pre_hook(lambda module, grads: called.append("alone"))
    layer(x, symbols).output.sum().backward()
    assert called[2:] == ["alone"]


def test_layers_that_cannot_be_joined_are_called():
    x, one, other = torch.randn(2, D), nn.Linear(D, 3), nn.Linear(D, 4)
    together = project_at_once(x, [one, other])
    assert together is not None
    torch.testing.assert_close(together, torch.cat([one(x), other(x)], dim=-1))
    assert project_at_once(x, [one, nn.Linear(D, 4, bias=False)]) is None
    assert project_at_once(x, [one, nn.Linear(D, 4, dtype=torch.float64)]) is None
    assert project_at_once(x.double(), [one, other]) is None  # so that the layer refuses it in its words
    assert project_at_once(x[:, 1:], [one, other]) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert project_at_once(x, [one, other]).dtype == torch.bfloat16
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert is_watched(one) and project_at_once(x, [one, other]) is None
    handle.remove()
    assert not is_watched(one)


test_inputs_are_refused_in_the_words_of_the_heads = refused(
    ({"freqs_cos": torch.ones(N, D // 8)}, "freqs_cos, freqs_sin: expected both tables or neither"),
    ({"x": torch.randn(3, N, D).double()}, TypeError, "x: expected dtype"),
    by=lambda changed: DualAttention(D, 2, 2)(**{**dict.fromkeys(("x", "symbols"), torch.randn(3, N, D)), **changed}),
)


@pytest.mark.slow
def test_it_compiles_as_one_graph():
    layer, x = DualAttention(D, 2, 2), torch.randn(3, N, D)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, x).output, layer(x, x).output)
