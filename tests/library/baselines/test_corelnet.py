"""CoRelNet and the normalisation over objects."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.baselines import ContextNorm, CoRelNet
from tests.support.refusals import refused
from tests.support.tensors import float64, normal


def build(activation="softmax", n_objects=4, **arguments):
    return float64(CoRelNet(6, n_objects, 10, activation, **arguments))


@pytest.mark.parametrize("activation", ["softmax", "identity", "tanh"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("context_norm", [True, False])
def test_entries_by_hand(activation, symmetric, context_norm):
    model, x = build(activation, symmetric_rels=symmetric, context_norm=context_norm), normal(2, 4, 6)
    first, second = model.embed.linear1, model.embed.linear2
    z = torch.relu(x @ first.weight.T + first.bias) @ second.weight.T + second.bias
    u, w = (z, z) if symmetric else (z @ model.wq.weight.T, z @ model.wk.weight.T)
    if context_norm:
        norms = list(model.context_norms)
        u, w = norms[0](u), norms[-1](w)
    for b in range(2):
        for i in range(4):
            row = torch.stack([u[b, i] @ w[b, j] for j in range(4)])
            row = (
                row.exp() / row.exp().sum() if activation == "softmax" else row.tanh() if activation == "tanh" else row
            )
            torch.testing.assert_close(model.relations(x)[b, i], row)
    torch.testing.assert_close(model(x), model.relations(x).reshape(2, 16))


def test_similarities_are_symmetric_only_as_they_are():
    x = normal(2, 4, 6)
    for activation, symmetric, wanted in (
        ("identity", True, True),
        ("identity", False, False),
        ("softmax", True, False),
    ):
        r = build(activation, symmetric_rels=symmetric).relations(x)
        assert torch.allclose(r, r.transpose(1, 2)) == wanted


def test_rows_of_the_definition_sum_to_one():
    torch.testing.assert_close(build().relations(normal(2, 4, 6)).sum(-1), torch.ones(2, 4).double())


@given(st.integers(1, 4), st.booleans(), st.booleans(), st.sampled_from(["softmax", "identity"]))
def test_missing_objects_are_as_if_masked(n, symmetric, context_norm, activation):
    model, x = build(activation, symmetric_rels=symmetric, context_norm=context_norm), normal(2, 4, 6)
    mask = torch.arange(4).expand(2, 4) < n
    torch.testing.assert_close(model(x, padding_mask=mask), model(x[:, :n]))


def test_a_masked_object_anywhere_leaves_the_relations_of_the_others():
    model, x = build(), normal(2, 4, 6)
    mask = torch.tensor([True, False, True, True]).expand(2, 4)
    r = model.relations(x, padding_mask=mask)
    keep = torch.tensor([0, 2, 3])
    torch.testing.assert_close(r[:, keep][:, :, keep], model.relations(x[:, keep]))
    assert (r[:, 1] == 0).all() and (r[:, :, 1] == 0).all()


def test_no_objects():
    assert (build()(normal(2, 0, 6)) == 0).all()
    x = normal(2, 4, 6).requires_grad_()
    model = build(context_norm=True)
    out = model(x, padding_mask=torch.zeros(2, 4, dtype=torch.bool))
    out.sum().backward()
    assert (out == 0).all() and (x.grad == 0).all()


test_bad_input = refused(
    (lambda: CoRelNet(6, 0), "n_objects: expected a positive number, got 0"),
    (lambda: CoRelNet(6, 4, 0), "dff: expected a positive number, got 0"),
    (lambda: CoRelNet(6, 4, activation="step"), "activation: expected one of .*got 'step'"),
    (lambda: build()(normal(2, 5, 6)), "x: expected at most n_objects=4 objects, got 5"),
    (lambda: build()(normal(2, 6)), r"x: expected shape \(batch, length, 6\), got \(2, 6\)"),
    (lambda: build()(torch.ones(2, 4, 6, dtype=torch.long)), TypeError, "x: expected floating-point vectors"),
    (lambda: build()(normal(2, 4, 6), padding_mask=torch.ones(2, 3, dtype=torch.bool)),
     r"padding_mask: expected shape \(batch, length\) = \(2, 4\), got \(2, 3\)"),
)  # fmt: skip


# ---- The normalisation over objects


def test_mean_and_variance_over_the_objects():
    out = ContextNorm(6).double()(5.0 + 3.0 * normal(2, 7, 6))
    torch.testing.assert_close(out.mean(1), torch.zeros(2, 6).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(out.var(1, unbiased=False), torch.ones(2, 6).double(), atol=1e-6, rtol=0)


def test_what_all_objects_share_is_dropped():
    norm, x = float64(ContextNorm(6)), normal(2, 7, 6)
    torch.testing.assert_close(norm(x * 4.0 + normal(2, 1, 6)), norm(x), atol=1e-6, rtol=1e-6)


@given(st.integers(1, 6))
def test_masked_objects_count_for_nothing(n):
    norm, x = float64(ContextNorm(6)), normal(2, 6, 6)
    out = norm(x, padding_mask=torch.arange(6).expand(2, 6) < n)
    torch.testing.assert_close(out[:, :n], norm(x[:, :n]))
    assert (out[:, n:] == 0).all()


def test_equal_objects_have_finite_gradients():
    x = torch.ones(2, 3, 6, requires_grad=True)
    ContextNorm(6)(x).square().sum().backward()
    assert x.grad.isfinite().all()


def test_alike_objects_are_normalised_to_zero_in_half_precision():
    alike = torch.ones(2, 3, 8, dtype=torch.float16)
    assert (ContextNorm(8).half()(alike) == 0).all()
