"""NaN and infinity in padded senders reach nothing that is real, forward or backward, whatever computes."""

import itertools

import pytest
import torch

from dual_attention.functional import (
    OffsetSymbols,
    attention,
    disentangled_relational_cross_attention,
    mask_pattern,
    relational_attention,
    relational_cross,
    relational_cross_attention,
)
from dual_attention.functional.padding import zero_padding
from tests.support.tensors import normal

pytestmark = pytest.mark.sweep(8)

B, H, N, D = 2, 2, 6, 3
REAL = torch.arange(N) < torch.tensor([[4], [6]])
LEFT = torch.arange(N) >= torch.tensor([[2], [0]])


def pattern(real, is_causal=False, **more):
    return mask_pattern(None, real, is_causal, **more, batch=B, heads=H, n=N, m=N)


def axis(name):
    return 1 if name in ("u", "w") else 2


def results(operation, tensors, real, poison=None):
    """What real receivers get, and the gradients of what real receivers and senders hold; ``k...`` are of senders."""
    given = {name: x.clone() for name, x in tensors.items()}
    for name in given if poison is not None else ():
        if name in ("k", "v", "w", "symbols", "k_rel"):
            given[name].movedim(axis(name), 1)[~real] = poison
    given = {name: x.requires_grad_() for name, x in given.items()}
    output = operation(**given)[0].movedim(2, 1)[real]
    grads = torch.autograd.grad(output.square().sum(), list(given.values()))
    return [output, *(grad.movedim(axis(name), 1)[real] for name, grad in zip(given, grads, strict=True))]


def assert_unchanged(operation, tensors, real, **tolerance):
    wanted = results(operation, tensors, real)
    for poison in (torch.nan, torch.inf, -torch.inf):
        for ours, theirs in zip(results(operation, tensors, real, poison), wanted, strict=True):
            assert ours.isfinite().all()
            torch.testing.assert_close(ours, theirs, **tolerance)


def heads(*names, dtype=torch.float64):
    return {name: normal(B, H, N, D, dtype=dtype) for name in names}


@pytest.mark.parametrize(
    "real, causal, window",
    [(REAL, False, None), (LEFT, True, None), (LEFT, False, 2)],
    ids=["right", "left, causal", "left, window"],
)
@pytest.mark.parametrize(
    "impl, activation",
    [
        *itertools.product(["reference", "dense", "linear"], ["identity", "relu", "softmax"]),
        ("sdpa", "identity"),
        pytest.param("triton", "identity", marks=pytest.mark.slow),
    ],
)
def test_relational_attention(impl, activation, causal, window, real):
    if impl == "triton":
        pytest.importorskip("triton")
    dtype = torch.float32 if impl == "triton" else torch.float64
    tensors = heads("q", "k", "symbols", dtype=dtype) | {name: normal(B, N, 2, 2, dtype=dtype) for name in "uw"}
    w_r, mask = normal(H, D, 2, dtype=dtype), pattern(real, causal, window=window)
    arguments = {"w_r": w_r, "scale": 0.5, "rel_scale": 0.5, "rel_activation": activation, "mask": mask, "impl": impl}
    assert_unchanged(lambda **given: relational_attention(**given, **arguments), tensors, real)


@pytest.mark.parametrize("real", [REAL, LEFT], ids=["right", "left"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_attention(need_weights, real):
    arguments = {"scale": 0.5, "mask": pattern(real, True), "need_weights": need_weights}
    assert_unchanged(lambda **given: attention(**given, **arguments), heads("q", "k", "v"), real)


@pytest.mark.parametrize("activation", ["softmax", "identity", "relu"])
@pytest.mark.parametrize("largest", [0, 10_000])
def test_relational_cross_attention(activation, largest, monkeypatch):
    monkeypatch.setattr(relational_cross, "LARGEST_WHOLE", largest)
    arguments = {"scale": 0.5, "mask": pattern(REAL)}
    assert_unchanged(
        lambda **given: relational_cross_attention(**given, **arguments, activation=activation),
        heads("q", "k", "symbols"),
        REAL,
    )
    assert_unchanged(
        lambda **given: disentangled_relational_cross_attention(**given, **arguments, rel_activation=activation),
        heads("q", "k", "q_rel", "k_rel", "symbols"),
        REAL,
    )


def test_what_serves_every_example_is_zeroed_where_all_are_padded():
    x = torch.ones(1, 1, N, 1)
    (zeroed,) = zero_padding(pattern(REAL & (torch.arange(N) != 1)), x)
    assert zeroed.flatten().tolist() == [1, 0, 1, 1, 1, 1]
    assert zero_padding(pattern(None), x)[0] is x


def test_symbols_of_offsets_are_not_of_senders():
    """Nothing of a library is padding."""
    table = normal(5, H, D)
    q, k, u, w = normal(B, H, N, D), normal(B, H, N, D), normal(B, N, 2, 2), normal(B, N, 2, 2)
    w[~REAL] = torch.nan
    arguments = {"scale": 0.5, "rel_scale": 0.5, "mask": pattern(REAL)}
    ours = relational_attention(q, k, u, w, OffsetSymbols(table, N, N), normal(H, D, 2), **arguments).output
    assert ours.isfinite().all()
