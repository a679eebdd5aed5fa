"""Products of linear layers in C against PyTorch's in float64, on every machine with a compiler."""

import os
import shutil
import sys
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

from dual_attention.functional import compiled_products, products
from dual_attention.functional.compiled_products import few_rows, gradient_of_weight
from dual_attention.functional.native.building import COMPILERS, SWITCH, UnavailableError
from dual_attention.functional.native.library import Library

# Where there is a compiler, a library that cannot be built is a failure.
pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or os.environ.get(SWITCH) == "0" or not any(map(shutil.which, COMPILERS)),
    reason="needs a compiler of C",
)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


SIZES = [(1, 1, 1), (3, 2, 5), (300, 128, 64), (257, 97, 513), (256, 6, 1030), (513, 1030, 7), (1000, 384, 130)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("number", [1, 3])
def test_gradient(sizes, number, threads, monkeypatch):
    monkeypatch.setattr(compiled_products, "FEWEST_FOR_THREAD", 1)
    threads(number)
    rows, o, i = sizes
    grads, inputs = drawn(rows, o), drawn(rows, i, seed=1)
    expected = grads.double().t() @ inputs.double()
    torch.testing.assert_close(
        gradient_of_weight(grads, inputs).double(), expected, rtol=1e-4, atol=2e-6 * rows**0.5 * 10
    )


def test_gradient_of_columns_of_wider_matrices():
    grads, inputs = drawn(100, 90)[:, 10:80], drawn(100, 300, seed=1)[:, 200:]
    torch.testing.assert_close(gradient_of_weight(grads, inputs), grads.t() @ inputs, rtol=1e-4, atol=1e-4)


def test_gradients_do_not_depend_on_the_number_of_threads(threads, monkeypatch):
    monkeypatch.setattr(compiled_products, "FEWEST_FOR_THREAD", 1)
    for o, i in ((200, 100), (100, 200)):
        grads, inputs = drawn(700, o), drawn(700, i, seed=1)
        found = []
        for number in (1, 2, 5, 300):
            threads(number)
            found.append(gradient_of_weight(grads, inputs))
        assert all(torch.equal(found[0], other) for other in found)


@pytest.mark.parametrize("shape", [(2, 3), (64, 64), (33, 1000), (1000, 33), (517, 259)])
@pytest.mark.parametrize("rows", range(1, 9))
@pytest.mark.parametrize("with_bias", [False, True])
def test_few_rows(shape, rows, with_bias):
    o, i = shape
    x, weight, bias = drawn(rows, 1, i), drawn(o, i, seed=1), drawn(o, seed=2) if with_bias else None
    expected = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    torch.testing.assert_close(few_rows(x, weight, bias).double(), expected, rtol=1e-4, atol=1e-4)


def test_views():
    x, weight, bias = drawn(2, 4, 70).transpose(0, 1), drawn(300, 90, seed=1)[:, 5:75], drawn(600, seed=2)[::2]
    torch.testing.assert_close(few_rows(x, weight, bias), F.linear(x, weight, bias), rtol=1e-4, atol=1e-4)


def test_a_row_is_the_same_alone_and_beside_others(threads):
    x, weight = drawn(8, 600), drawn(700, 600, seed=1)
    together = few_rows(x, weight, None)
    for number in (1, 3):
        threads(number)
        assert all(torch.equal(few_rows(x[:k], weight, None), together[:k]) for k in range(1, 9))


def test_what_is_no_number_stays_so():
    x, weight = torch.ones(2, 40), torch.ones(50, 40)
    x[0, 39] = torch.nan
    weight[7, 3] = torch.inf
    found = few_rows(x, weight, None)
    assert found[0].isnan().all()
    assert found[1, 7] == torch.inf
    assert (found[1].isfinite() == (torch.arange(50) != 7)).all()


@pytest.fixture
def calls(monkeypatch):
    """The products that the library was asked for by linear layers, on a machine whose others are slow."""
    monkeypatch.setattr(products, "SLOW_ROWS", True)
    monkeypatch.setattr(products, "SLOW_PRODUCTS", True)
    with (
        mock.patch.object(compiled_products, "few_rows", wraps=few_rows) as few,
        mock.patch.object(compiled_products, "gradient_of_weight", wraps=gradient_of_weight) as gradient,
    ):
        yield few, gradient


def test_linear_layers_take_it(calls):
    few, gradient = calls
    x, weight = drawn(4, 1, 512), drawn(600, 512, seed=1)
    torch.testing.assert_close(products.linear(x, weight), F.linear(x, weight), rtol=1e-4, atol=1e-4)
    assert few.call_count == 1
    x, weight, grad = drawn(3, 400, 96), drawn(128, 96, seed=1).requires_grad_(), drawn(3, 400, 128, seed=2)
    (ours,) = torch.autograd.grad(products.linear(x, weight), weight, grad)
    (theirs,) = torch.autograd.grad(F.linear(x, weight), weight, grad)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    assert gradient.call_count == 1
    assert few.call_count == 1


def test_without_avx512_it_takes_few_rows_only(calls, monkeypatch):
    monkeypatch.setattr(products, "SLOW_PRODUCTS", False)
    few, gradient = calls
    x, weight = drawn(4, 512), drawn(600, 512, seed=1)
    with mock.patch.object(torch.ops.mkldnn, "_linear_pointwise", side_effect=AssertionError):
        torch.testing.assert_close(products.linear(x, weight), F.linear(x, weight), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(products._compiled(x, weight, None), F.linear(x, weight), rtol=1e-4, atol=1e-4)
        assert few.call_count == 2
        for rows in (9, 400):
            x = drawn(rows, 512)
            assert torch.equal(products.linear(x, weight), F.linear(x, weight))
            assert torch.equal(products._compiled(x, weight, None), F.linear(x, weight))
        x.requires_grad_()
        weight.requires_grad_()
        grads = drawn(400, 600, seed=2)
        ours, theirs = (torch.autograd.grad(f(x, weight), (x, weight), grads) for f in (products.linear, F.linear))
        assert all(map(torch.equal, ours, theirs))
    assert few.call_count == 2
    assert not gradient.called


def test_others_are_left_to_libraries(calls):
    few, gradient = calls
    weight = drawn(600, 512, seed=1)
    for x in (drawn(9, 512), drawn(0, 512)):
        products.linear(x, weight)
    products.linear(drawn(4, 600), weight.t())
    products.linear(drawn(4, 8), drawn(8, 8))
    wide = [drawn(3000, 96).double(), drawn(3000, 128).double()]
    products.gradient_of_weight(*wide)
    differentiable = [drawn(3000, 96).requires_grad_(), drawn(3000, 128, seed=1)]
    assert products.gradient_of_weight(*differentiable).requires_grad
    with torch.backends.mkldnn.flags(enabled=False):
        products.linear(drawn(4, 512), weight)
        products.gradient_of_weight(*(x.detach() for x in differentiable))
    assert not few.called
    assert not gradient.called


def test_batched_gradients(calls):
    x, weight = drawn(4, 512).requires_grad_(), drawn(600, 512, seed=1).requires_grad_()
    for rows in (x, drawn(1000, 512).requires_grad_()):
        out = products.linear(rows, weight)
        grads = drawn(2, *out.shape, seed=2)
        batched = torch.autograd.grad(out, (rows, weight), grads, is_grads_batched=True, retain_graph=True)
        for i, g in enumerate(grads):
            for ours, theirs in zip(
                batched, torch.autograd.grad(out, (rows, weight), g, retain_graph=True), strict=True
            ):
                torch.testing.assert_close(ours[i], theirs, rtol=1e-3, atol=1e-3)


def test_numbers_that_are_negated_in_place(calls):
    x, weight = drawn(4, 512), drawn(600, 512, seed=1)
    negated = products.linear(torch._neg_view(x), weight)  # pyright: ignore[reportPrivateImportUsage]
    torch.testing.assert_close(negated, products.linear(-x, weight), rtol=1e-3, atol=1e-3)


def test_without_a_compiler_libraries_serve(calls, monkeypatch):
    few, gradient = calls
    monkeypatch.setattr(
        "dual_attention.functional.native.library.built", mock.Mock(side_effect=UnavailableError("no compiler"))
    )
    monkeypatch.setattr(compiled_products, "LIBRARY", Library(compiled_products.SOURCE, {}))
    assert not compiled_products.LIBRARY.is_available()
    x, weight = drawn(4, 512), drawn(600, 512, seed=1)
    torch.testing.assert_close(products.linear(x, weight), F.linear(x, weight), rtol=1e-4, atol=1e-4)
    grads, inputs = drawn(3000, 96), drawn(3000, 128, seed=1)
    torch.testing.assert_close(products.gradient_of_weight(grads, inputs), grads.t() @ inputs, rtol=1e-3, atol=1e-3)
    assert not few.called
    assert not gradient.called
