"""Cross-entropy: the plain form against torch's, the form without all logits against the plain one."""

import importlib.util

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from dual_attention.functional import cross_entropy, linear_cross_entropy
from dual_attention.part_trials import LargestTensor
from tests.support.refusals import refusals

V, D = 7, 5
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # of kernels, which have an interpreter off the GPU
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


def problem(*shape: int, dtype: torch.dtype = torch.float64, bias: bool = True, ignored: int = 2):
    """Hidden states, an output layer and targets, of which the first few are ignored."""
    hidden = torch.randn(*shape, D, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, dtype=dtype, requires_grad=True)
    offsets = torch.randn(V, dtype=dtype, requires_grad=True) if bias else None
    targets = torch.randint(V, shape)
    targets.view(-1)[:ignored] = -1
    return hidden, weight, targets, offsets


def gradients(loss, *tensors):
    return torch.autograd.grad(loss, [tensor for tensor in tensors if tensor is not None])


def close(found, wanted, **tolerance):
    torch.testing.assert_close(found, wanted, **{"rtol": 1e-12, "atol": 1e-12, **tolerance})


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_plain_form_is_that_of_torch(reduction):
    logits, targets = torch.randn(2, 6, V, dtype=torch.float64), torch.randint(-1, V, (2, 6))
    wanted = F.cross_entropy(logits.view(-1, V), targets.view(-1), ignore_index=-1, reduction=reduction)
    found = cross_entropy(logits, targets, reduction=reduction)
    close(found.flatten() if reduction == "none" else found, wanted)


@given(
    rows=st.integers(0, 9),
    chunk_size=st.none() | st.integers(1, 12),
    bias=st.booleans(),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    ignored=st.integers(0, 9),
)
def test_without_all_logits_is_the_plain_form(rows, chunk_size, bias, reduction, ignored):
    hidden, weight, targets, offsets = problem(rows, bias=bias, ignored=ignored)
    plain = cross_entropy(F.linear(hidden, weight, offsets), targets, reduction=reduction)
    found = linear_cross_entropy(hidden, weight, targets, offsets, reduction=reduction, chunk_size=chunk_size)
    close(found, plain)
    cotangent = torch.randn_like(plain)
    close(*(gradients((loss * cotangent).sum(), hidden, weight, offsets) for loss in (found, plain)))


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 1, 3)])
def test_any_axes(shape):
    hidden, weight, targets, _ = problem(*shape, ignored=0)
    found = linear_cross_entropy(hidden, weight, targets, reduction="none", chunk_size=2)
    assert found.shape == shape
    close(found, cross_entropy(hidden @ weight.t(), targets, reduction="none"))


def test_first_and_second_derivatives():
    hidden, weight, targets, bias = problem(5)

    def loss(*tensors):
        return linear_cross_entropy(tensors[0], tensors[1], targets, tensors[2], chunk_size=2)

    torch.autograd.gradcheck(loss, (hidden, weight, bias))
    torch.autograd.gradgradcheck(loss, (hidden, weight, bias))


@pytest.mark.parametrize("with_bias", [False, True])
def test_transforms_and_forward_derivatives(with_bias):
    hidden, weight, targets, bias = problem(5, bias=with_bias)
    inputs = [tensor for tensor in (hidden, weight, bias) if tensor is not None]

    def loss(hidden, weight, bias=None, targets=targets):
        return linear_cross_entropy(hidden, weight, targets, bias, chunk_size=2)

    torch.autograd.gradcheck(loss, inputs, check_forward_ad=True)
    wanted, tangents = gradients(loss(*inputs), *inputs), [torch.randn_like(tensor) for tensor in inputs]
    places = tuple(range(len(inputs)))
    close(torch.func.grad(loss, places)(*inputs), wanted)
    change = sum((gradient * tangent).sum() for gradient, tangent in zip(wanted, tangents, strict=True))
    close(torch.func.jvp(loss, tuple(inputs), tuple(tangents))[1], change)
    batches, labels = torch.stack([hidden, 2 * hidden]), torch.stack([targets, targets.flip(0)])
    each = torch.func.vmap(lambda x, y: torch.func.grad(loss)(x, *inputs[1:], targets=y))(batches, labels)
    for row, x, y in zip(each, batches, labels, strict=True):
        close(row, gradients(loss(x, *inputs[1:], targets=y), x)[0])


def test_gradients_that_are_not_asked_for_are_not_computed():
    hidden, weight, targets, bias = problem(4)
    linear_cross_entropy(hidden, weight.detach(), targets, bias).backward()
    assert weight.grad is None and hidden.grad is not None and bias.grad is not None
    linear_cross_entropy(hidden.detach(), weight, targets, bias.detach()).backward()
    assert weight.grad is not None


def test_nothing_to_score_costs_nothing():
    hidden, weight, targets, _ = problem(4, ignored=4)
    for loss in (linear_cross_entropy(hidden, weight, targets), cross_entropy(hidden @ weight.t(), targets)):
        assert loss.item() == 0.0
        assert all(not grad.any() for grad in gradients(loss, hidden, weight))


def test_another_index_is_ignored():
    hidden, weight, targets, _ = problem(6, ignored=0)
    targets[2] = -100
    found = linear_cross_entropy(hidden, weight, targets, ignore_index=-100, chunk_size=4)
    close(found, F.cross_entropy(hidden @ weight.t(), targets, ignore_index=-100))


@pytest.mark.parametrize("fuses", [False, pytest.param(True, marks=needs_triton)])
def test_no_tensor_is_as_large_as_all_logits(fuses, monkeypatch):
    monkeypatch.setattr("dual_attention.functional.losses._fuses", lambda logits: fuses)
    hidden, weight = (torch.randn(rows, 4, requires_grad=True, device=DEVICE) for rows in (64, 100))
    targets = torch.randint(100, (64,), device=DEVICE)
    with LargestTensor() as seen:
        linear_cross_entropy(hidden, weight, targets, chunk_size=8).backward()
    assert seen.numel == 8 * 100
    with LargestTensor() as seen:
        cross_entropy(hidden @ weight.t(), targets).backward()
    assert seen.numel == 64 * 100


@pytest.mark.parametrize(
    ("reduction", "dtype", "products"),
    [("mean", torch.bfloat16, 3), ("none", torch.bfloat16, 4), ("sum", torch.float16, 4)],
)
def test_a_reduced_loss_multiplies_by_the_output_layer_once(reduction, dtype, products):
    hidden, weight, targets, _ = problem(6, bias=False, dtype=dtype)
    with FlopCounterMode(display=False) as counter:
        linear_cross_entropy(hidden, weight, targets, reduction=reduction, chunk_size=4).sum().backward()
    assert counter.get_total_flops() == products * 2 * 6 * V * D


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_low_precision_it_is_as_close_as_the_plain_form(dtype):
    hidden, weight, targets, bias = (tensor.detach() for tensor in problem(300, dtype=torch.float32))
    low = [tensor.to(dtype).requires_grad_() for tensor in (hidden, weight, bias)]
    exact = [tensor.detach().double().requires_grad_() for tensor in low]
    wanted = cross_entropy(F.linear(*exact), targets)
    found = linear_cross_entropy(low[0], low[1], targets, low[2], chunk_size=32)
    plain = cross_entropy(F.linear(*low), targets)
    assert found.dtype == torch.float32
    assert abs(found - wanted) <= abs(plain - wanted) + 1e-6
    yardstick = gradients(wanted, *exact)
    for ours, theirs, true in zip(gradients(found, *low), gradients(plain, *low), yardstick, strict=True):
        assert ours.dtype == dtype
        # One rounding more: that of the products of each chunk before they are summed.
        assert (ours - true).abs().max() <= (theirs - true).abs().max() + torch.finfo(dtype).eps * true.abs().max()


def test_autocast_multiplies_in_low_precision_and_returns_full_gradients():
    hidden, weight, targets, bias = (tensor.detach() for tensor in problem(40, dtype=torch.float32))
    leaves = [tensor.requires_grad_() for tensor in (hidden, weight, bias)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear_cross_entropy(leaves[0], leaves[1], targets, leaves[2], chunk_size=7)
        plain = cross_entropy(F.linear(*leaves), targets)
    assert found.dtype == torch.float32
    close(found, plain, rtol=1e-6, atol=1e-6)
    exact = linear_cross_entropy(leaves[0], leaves[1], targets, leaves[2])
    assert 1e-6 < abs(found - exact) < 1e-2
    for ours, theirs in zip(gradients(found, *leaves), gradients(exact, *leaves), strict=True):
        assert ours.dtype == torch.float32
        close(ours, theirs, rtol=0, atol=2e-3)


def test_autocast_leaves_float64_alone():
    hidden, weight, targets, bias = problem(6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear_cross_entropy(hidden, weight, targets, bias, chunk_size=4)
    close(found, linear_cross_entropy(hidden, weight, targets, bias))


@pytest.mark.slow
@pytest.mark.parametrize("autocast", [False, True])
def test_compiles_as_one_graph(autocast):
    hidden, weight, targets, bias = (tensor.detach() for tensor in problem(2, 9, dtype=torch.float32))
    leaves = [tensor.requires_grad_() for tensor in (hidden, weight, bias)]

    def loss(hidden, weight, bias):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            return linear_cross_entropy(hidden, weight, targets, bias, chunk_size=4)

    found, wanted = torch.compile(loss, fullgraph=True, backend="aot_eager")(*leaves), loss(*leaves)
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if autocast else {"rtol": 1e-5, "atol": 1e-6}
    close(found, wanted, **tolerance)
    close(gradients(found, *leaves), gradients(wanted, *leaves), **tolerance)


def test_works_without_values():
    """On the meta device, and elsewhere where values cannot be looked at, only shapes are checked."""
    hidden, weight = torch.randn(3, D, device="meta"), torch.randn(V, D, device="meta")
    assert linear_cross_entropy(hidden, weight, torch.empty(3, dtype=torch.long, device="meta")).shape == ()


@refusals(
    ({"targets": torch.zeros(3)}, TypeError, "targets: expected integers, got dtype torch.float32"),
    ({"targets": torch.zeros(4, dtype=torch.long)}, r"targets: expected shape \(3,\).*got \(4,\)"),
    ({"targets": torch.tensor([0, 7, 1])}, "targets: expected 0 to 6, or -1 to be ignored, got 7"),
    ({"targets": torch.tensor([0, -2, 1])}, "targets: expected 0 to 6, or -1 to be ignored, got -2"),
    ({"weight": torch.zeros(V, D + 1)}, r"weight: expected shape \(vocabulary, 5\).*got \(7, 6\)"),
    ({"weight": torch.zeros(D)}, r"weight: expected shape .* got \(5,\)"),
    ({"weight": torch.zeros(V, D).double()}, TypeError, "weight: expected torch.float32 as of hidden"),
    ({"bias": torch.zeros(V + 1)}, r"bias: expected shape \(7,\), got \(8,\)"),
    ({"bias": torch.zeros(V).double()}, TypeError, "bias: expected torch.float32"),
    ({"chunk_size": 0}, "chunk_size: expected at least one token, got 0"),
    ({"reduction": "median"}, "reduction: expected 'mean', 'sum' or 'none', got 'median'"),
    of="changes",
)
def test_bad_input(changes, error, message):
    arguments = {"hidden": torch.zeros(3, D), "weight": torch.zeros(V, D), "targets": torch.zeros(3).long()} | changes
    with pytest.raises(error, match=message):
        linear_cross_entropy(**arguments)


@needs_triton
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-7)])
@pytest.mark.parametrize("vocabulary", [5, 4096, 9000])
def test_a_kernel_takes_losses_and_errors_of_logits(vocabulary, dtype, tolerance, bias, monkeypatch):
    """It overwrites the logits, of which no others are kept."""
    shapes = [(7, 16), (vocabulary, 16), *([(vocabulary,)] if bias else [])]
    leaves = [torch.randn(shape, requires_grad=True, dtype=dtype, device=DEVICE) for shape in shapes]
    targets = torch.randint(vocabulary, (7,), device=DEVICE)
    targets[2] = -1
    if bias:
        unsaid = max(3, vocabulary // 2)  # all columns of a block among them
        leaves[2].data[:unsaid] = -torch.inf
        targets[targets >= 0] = targets[targets >= 0].clamp_min(unsaid)
    results = []
    for fuses in (True, False):
        monkeypatch.setattr("dual_attention.functional.losses._fuses", lambda logits, fuses=fuses: fuses)
        loss = linear_cross_entropy(leaves[0], leaves[1], targets, *leaves[2:], chunk_size=3)
        results.append([loss, *torch.autograd.grad(3 * loss, leaves)])
    torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)


@needs_triton
def test_the_kernel_is_an_operation_that_compilers_know(monkeypatch):
    from dual_attention.functional.triton.loss import errors_of_logits

    given = torch.randn(3, 5, device=DEVICE), torch.tensor([4, 0, 2], device=DEVICE), torch.rand(3, device=DEVICE)
    torch.library.opcheck(errors_of_logits, given)
    monkeypatch.setattr("dual_attention.functional.losses._fuses", lambda logits: True)
    weight, hidden = (torch.randn(rows, 4, requires_grad=True, device=DEVICE) for rows in (5, 3))
    compiled = torch.compile(linear_cross_entropy, fullgraph=True, backend="aot_eager")
    losses = [loss(hidden, weight, given[1], chunk_size=2) for loss in (compiled, linear_cross_entropy)]
    torch.testing.assert_close(*(gradients(loss, hidden, weight) for loss in losses))
