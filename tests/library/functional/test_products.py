"""Products by oneDNN against PyTorch's own, on every machine: the choice between them is made here by hand."""

import platform
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from dual_attention.functional import products
from dual_attention.functional.products import gradient_of_weight, linear, maker

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(autouse=True)
def slow_products(monkeypatch):
    monkeypatch.setattr(products, "SLOW_ROWS", True)
    monkeypatch.setattr(products, "SLOW_PRODUCTS", True)
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):  # a build without oneDNN: all but its own numbers
        monkeypatch.setattr(products, "_times", F.linear)


@pytest.fixture
def calls(slow_products):
    """The products that oneDNN was asked for."""
    with mock.patch.object(products, "_times", wraps=products._times) as times:
        yield times


def drawn(*shapes, grad=False):
    torch.manual_seed(0)
    return [torch.randn(shape, requires_grad=grad) for shape in shapes]


@pytest.mark.parametrize("shape", [(2, 300, 96), (600, 96), (96,), (1, 1, 600, 96)])
@pytest.mark.parametrize("bias", [False, True])
def test_forward(shape, bias, calls):
    x, weight, b = drawn(shape, (2800, 96), (2800,))
    b = b if bias else None
    torch.testing.assert_close(linear(x, weight, b), F.linear(x, weight, b), **TOLERANCE)
    assert calls.called


@pytest.mark.parametrize("sizes", [(700, 64, 384), (700, 384, 64), (5, 1024, 1024), (40_000, 48, 16)])
@pytest.mark.parametrize("trained", ["xwb", "x", "w", "b", "xb"])
def test_gradients(sizes, trained, calls):
    rows, i, o = sizes
    x, weight, bias, grad = drawn((rows, i), (o, i), (o,), (rows, o))
    tensors = dict(zip("xwb", (x, weight, bias), strict=True))
    leaves = [tensors[name].requires_grad_() for name in trained]
    found = torch.autograd.grad(linear(x, weight, bias), leaves, grad)
    expected = torch.autograd.grad(F.linear(x, weight, bias), leaves, grad)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * rows**0.5 * i**0.5)
    assert calls.called


@pytest.mark.parametrize(("trained", "kept"), [("x", {"weight"}), ("w", {"x"}), ("xw", {"x", "weight"}), ("b", set())])
def test_only_what_a_gradient_needs_is_kept(trained, kept):
    x, weight, bias = drawn((700, 96), (128, 96), (128,))
    for name, tensor in zip("xwb", (x, weight, bias), strict=True):
        tensor.requires_grad_(name in trained)
    saved = set()
    names = {x.data_ptr(): "x", weight.data_ptr(): "weight"}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.add(names[t.data_ptr()]), lambda _: None):
        linear(x, weight, bias)
    assert saved == kept


def test_second_derivatives():
    x, weight, bias, grad = drawn((600, 96), (128, 96), (128,), (600, 128), grad=True)

    def second(function):
        first = torch.autograd.grad(function(x, weight, bias), (x, weight), grad, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), (x, weight, grad))

    for ours, theirs in zip(second(linear), second(F.linear), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * theirs.abs().max().item())


def views():
    torch.manual_seed(0)
    x, weight, bias = torch.randn(300, 128), torch.randn(128, 128), torch.randn(128)
    return {
        "transposed weight": (x, weight.t(), bias),
        "weight of every other column": (x, torch.randn(128, 256)[:, ::2], bias),
        "part of a weight": (x, torch.randn(256, 256)[7:135, 9:137], bias),
        "one row as all of a weight": (x, weight[:1].expand(128, 128), bias),
        "overlapping rows": (x, torch.randn(255).unfold(0, 128, 1), bias),
        "every other number of a bias": (x, weight, torch.randn(256)[::2]),
        "one number as all of a bias": (x, weight, bias[:1].expand(128)),
        "one input as all": (x[:1].expand(300, 128), weight, bias),
        "inputs in another order": (torch.randn(128, 300).t(), weight, bias),
        "no inputs": (x[:0], weight, bias),
        "no outputs": (x, weight[:0], bias[:0]),
        "no width": (x[:, :0], weight[:, :0], bias),
        "large weight, no inputs": (x[:0], torch.randn(4096, 128), None),
    }


@pytest.mark.parametrize("name", views())
@pytest.mark.parametrize("grad", [False, True])
def test_any_view(name, grad):
    x, weight, bias = (None if t is None else t.requires_grad_(grad) for t in views()[name])
    torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias), **TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_are_left_to_pytorch(dtype, calls):
    x, weight = (t.to(dtype) for t in drawn((300, 128), (128, 128)))
    assert torch.equal(linear(x, weight), F.linear(x, weight))
    assert not calls.called


def test_small_products_are_left_to_pytorch(calls):
    x, weight = drawn((10, 128), (128, 128))
    assert torch.equal(linear(x, weight), F.linear(x, weight))
    with torch.enable_grad():  # above the limit without a graph, below that with one
        x, weight = drawn((100, 128), (128, 128), grad=True)
        assert torch.equal(linear(x, weight), F.linear(x, weight))
    assert not calls.called


def test_not_under_autocast(calls):
    x, weight = drawn((300, 128), (128, 128))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    assert not calls.called


def test_switched_off(calls):
    x, weight, grad = drawn((600, 96), (128, 96), (600, 128), grad=True)
    with torch.backends.mkldnn.flags(enabled=False):
        ours = torch.autograd.grad(linear(x, weight), (x,), grad)
        theirs = torch.autograd.grad(F.linear(x, weight), (x,), grad)
    assert torch.equal(ours[0], theirs[0])


def test_transforms_and_forward_derivatives():
    x, weight = drawn((300, 128), (128, 128))
    derivative = torch.func.jvp(lambda x: linear(x, weight), (x,), (torch.ones_like(x),))[1]
    torch.testing.assert_close(derivative, F.linear(torch.ones_like(x), weight), **TOLERANCE)
    mapped = torch.func.vmap(lambda x: linear(x, weight))(x)
    torch.testing.assert_close(mapped, F.linear(x, weight), **TOLERANCE)


def test_operations_are_still_counted():
    x, weight = drawn((300, 128), (128, 128))
    with FlopCounterMode(display=False) as counter:
        linear(x, weight)
    assert counter.get_total_flops() == 2 * 300 * 128 * 128


@pytest.mark.parametrize("sizes", [(2, 3), (700, 40), (40, 700)])
def test_gradient_of_weight(sizes):
    o, i = sizes
    grads, inputs = drawn((1000, o), (1000, i))
    torch.testing.assert_close(gradient_of_weight(grads, inputs), grads.t() @ inputs, rtol=1e-3, atol=1e-3)


CPUINFO = "processor\t: 0\nvendor_id\t: {}\nmodel name\t: x\n\nprocessor\t: 1\nvendor_id\t: {}\n"


@pytest.mark.parametrize("name", ["AuthenticAMD", "GenuineIntel"])
def test_maker_on_linux(name):
    with (
        mock.patch.object(platform, "system", return_value="Linux"),
        mock.patch.object(products.Path, "read_text", return_value=CPUINFO.format(name, name)),
    ):
        assert maker() == name


def test_maker_elsewhere():
    with mock.patch.object(platform, "system", return_value="Darwin"):
        with mock.patch.object(products.Path, "read_text", side_effect=FileNotFoundError):
            assert maker() is None
        with mock.patch.object(products.Path, "read_text", return_value="CPU implementer : 0x41\n"):
            assert maker() is None
    processor = "AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD"
    with (
        mock.patch.object(platform, "system", return_value="Windows"),
        mock.patch.object(platform, "processor", return_value=processor),
    ):
        assert maker() == "AuthenticAMD"


@pytest.mark.parametrize(
    ("name", "capability", "slow"),
    [
        ("AuthenticAMD", "AVX512", (True, True)),
        ("AuthenticAMD", "AVX2", (True, False)),
        ("GenuineIntel", "AVX512", (False, False)),
        (None, "AVX512", (False, False)),
    ],
)
def test_what_is_slow_depends_on_maker_and_vectors(name, capability, slow, monkeypatch):
    monkeypatch.setattr(products, "maker", lambda: name)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    has_both = torch.backends.mkl.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    expected = slow if has_both else (False, False)
    assert products._slow_products() == expected
