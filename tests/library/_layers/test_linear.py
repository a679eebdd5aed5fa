"""Linear layers that are called only where somebody would notice; the choice of products is made here by hand."""

import copy
import warnings
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune

from dual_attention._layers.linear import call_linear, call_sequence
from dual_attention.functional import products
from dual_attention.language_presets import language_preset

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(autouse=True)
def slow_products(monkeypatch):
    monkeypatch.setattr(products, "SLOW_ROWS", True)
    monkeypatch.setattr(products, "SLOW_PRODUCTS", True)
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):  # a build without oneDNN: all but its own numbers
        monkeypatch.setattr(products, "_times", F.linear)
        monkeypatch.setattr(products, "_compiled", F.linear)


@pytest.fixture
def taken():
    """Products taken without calling a layer."""
    with mock.patch.object(products, "linear", wraps=products.linear) as taken:
        yield taken


class Calling(nn.Module):
    """One of this library's modules, in short."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(512, 600)

    def forward(self, x):
        return call_linear(self.layer, x)


def drawn(*shape):
    torch.manual_seed(0)
    return torch.randn(shape)


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer(bias, taken):
    layer, x = nn.Linear(600, 512, bias=bias), drawn(40, 600)
    torch.testing.assert_close(call_linear(layer, x), layer(x), **TOLERANCE)
    torch.testing.assert_close(call_linear(copy.deepcopy(layer), x), layer(x), **TOLERANCE)
    assert taken.call_count == 2
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        call_linear(layer, x[:, :7])


def test_a_sequence(taken):
    layers, x = nn.Sequential(nn.LayerNorm(600), nn.Linear(600, 512), nn.ReLU(), nn.Linear(512, 7)), drawn(40, 600)
    torch.testing.assert_close(call_sequence(layers, x), layers(x), **TOLERANCE)
    assert taken.call_count == 2
    layers.register_forward_hook(lambda module, inputs, output: output + 1)
    assert torch.equal(call_sequence(layers, x), layers(x))
    assert torch.equal(call_sequence(layers[1], x), layers[1](x))
    assert taken.call_count == 2


class Doubled(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


def patched(layer):
    forward = layer.forward
    layer.forward = lambda input: 2 * forward(input)
    return layer


def hooked(name, hook):
    def changed(layer):
        getattr(layer, name)(hook)
        return layer

    return changed


CHANGED = {
    "another layer": lambda layer: nn.Identity(),
    "a subclass": lambda layer: Doubled(512, 512),
    "another forward": patched,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "forward hook": hooked("register_forward_hook", lambda layer, inputs, output: 2 * output),
    "forward pre-hook": hooked("register_forward_pre_hook", lambda layer, inputs: (2 * inputs[0],)),
    "backward hook": hooked("register_full_backward_hook", lambda layer, grads, outputs: (2 * grads[0],)),
    "backward pre-hook": hooked("register_full_backward_pre_hook", lambda layer, grads: (2 * grads[0],)),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_a_call_does_besides_is_done(name, taken):
    x = drawn(40, 512).requires_grad_()
    layer = CHANGED[name](nn.Linear(512, 512)).eval()
    ours, theirs = call_linear(layer, x), layer(x)
    assert torch.equal(ours, theirs)
    assert torch.equal(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)))
    assert not taken.called


def test_hooks_of_all_modules_are_called(taken):
    layer, seen = nn.Linear(512, 512), []
    with torch.nn.modules.module.register_module_forward_hook(lambda module, inputs, output: seen.append(module)):
        call_linear(layer, drawn(40, 512))
    assert seen == [layer] and not taken.called


def test_a_class_that_was_patched(monkeypatch, taken):
    monkeypatch.setattr(nn.Linear, "forward", lambda self, input: "patched")
    assert call_linear(nn.Linear(4, 4), drawn(2, 4)) == "patched"


def test_a_subclass_of_tensors_sees_the_layer(taken):
    class Own(torch.Tensor):
        pass

    call_linear(nn.Linear(512, 512), drawn(40, 512).as_subclass(Own))
    assert not taken.called


def test_compiled_with_and_without_gradients():
    module = Calling()
    layer, compiled = module.layer, torch.compile(module, backend="aot_eager", fullgraph=True)
    x = drawn(7, 512)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x), **TOLERANCE)
    found = torch.autograd.grad(compiled(x).square().sum(), layer.weight)
    expected = torch.autograd.grad(layer(x).square().sum(), layer.weight)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_an_exported_program_has_pytorchs_operations_alone():
    program = torch.export.export(Calling(), (torch.randn(7, 512),))
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert called == {"aten.linear.default"}


def test_a_traced_graph_shows_the_layers():
    graph = torch.fx.symbolic_trace(Calling()).graph
    assert [node.target for node in graph.nodes if node.op == "call_module"] == ["layer"]


def test_dynamic_quantisation_finds_the_layers_of_a_model():
    model = language_preset("DAT-tiny").build().eval()
    tokens = torch.arange(20)[None]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = model(tokens)[0]
        quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
        found = quantised(tokens)[0]
    layers = [type(layer).__module__ for layer in quantised.modules() if type(layer).__name__ == "Linear"]
    assert layers and all("quantized.dynamic" in module for module in layers)
    assert not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.1 * expected.abs().max().item())


@pytest.mark.parametrize("name", ["jvp", "grad"])
def test_derivatives_by_transforms_in_compiled_code(name):
    module, x = Calling().requires_grad_(False), drawn(3, 512)
    transformed = {
        "jvp": lambda x: torch.func.jvp(module, (x,), (x,))[1],
        "grad": lambda x: torch.func.grad(lambda x: module(x).square().sum())(x),
    }[name]
    torch._dynamo.reset()
    found = torch.compile(transformed, backend="aot_eager")(x)
    assert found.abs().max() > 0
    torch.testing.assert_close(found, transformed(x), **TOLERANCE)
