"""The emergent symbol binding network against its algorithm, and what its controller can know."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.baselines import ESBN
from tests.support.refusals import refused
from tests.support.tensors import float64, normal


def build(**arguments):
    return float64(ESBN(6, 3, 5, **arguments))


def one_example(model: ESBN, objects: torch.Tensor) -> torch.Tensor:
    """The algorithm as it is written: one example, one object after the other, with a memory that grows."""
    z = objects if model.context_norm is None else model.context_norm(objects[None])[0]
    h, c, read = torch.zeros(5).double(), torch.zeros(5).double(), torch.zeros(4).double()
    memory: list[tuple[torch.Tensor, torch.Tensor]] = []
    for value in z:
        h, c = model.controller(read, (h, c))
        gate = torch.sigmoid(model.to_gate(h))
        if memory:
            scores = model.scale * torch.stack([value @ old for _, old in memory])
            weights = torch.softmax(scores, dim=0)
            confidence = torch.sigmoid(model.confidence_gain * scores + model.confidence_bias)
            bound = torch.stack([torch.cat((key, c_k[None])) for (key, _), c_k in zip(memory, confidence, strict=True)])
            read = gate * (weights @ bound)
        else:
            read = torch.zeros(4).double()
        memory.append((torch.relu(model.to_key(h)), value))
    return model.controller(read, (h, c))[0]


@pytest.mark.parametrize("context_norm", [True, False])
@pytest.mark.parametrize("scale", [1.0, None])
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_the_algorithm(context_norm, scale, n):
    model, x = build(context_norm=context_norm, scale=scale), normal(3, n, 6)
    assert model.scale == pytest.approx(1.0 if scale else 6**-0.5)
    torch.testing.assert_close(model(x), torch.stack([one_example(model, example) for example in x]))


@given(st.lists(st.booleans(), min_size=4, max_size=4), st.booleans())
def test_padding_anywhere_is_as_if_it_were_not_there(real, context_norm):
    model, x = build(context_norm=context_norm), normal(2, 4, 6)
    mask = torch.tensor(real)
    torch.testing.assert_close(model(x, padding_mask=mask.expand(2, 4)), model(x[:, mask]))


def test_the_controller_knows_how_objects_match_and_nothing_else():
    """Turning all objects together leaves their inner products, and so the output."""
    model, x = build(context_norm=False), normal(2, 5, 6)
    turn = torch.linalg.qr(normal(6, 6)).Q
    torch.testing.assert_close(model(x @ turn), model(x))
    assert not torch.allclose(model(normal(2, 5, 6)), model(x))


def test_retrieval_when_asked_for():
    model, x = build(), normal(2, 4, 6)
    mask = torch.tensor([[True, False, True, True], [True] * 4])
    output, weights, keys = model(x, padding_mask=mask, need_weights=True)
    torch.testing.assert_close(output, model(x, padding_mask=mask))
    assert weights.shape == (2, 4, 4) and keys.shape == (2, 4, 3)
    assert (weights.triu() == 0).all() and (weights[0, :, 1] == 0).all()
    torch.testing.assert_close(weights[:, 2:].sum(-1), torch.ones(2, 2).double())


def test_initial_weights():
    torch.manual_seed(0)
    model = ESBN(16, 64, 256)
    gates = model.controller.weight_hh.detach().chunk(4)
    for part, gain in zip(gates, (1, 1, 5 / 3, 1), strict=True):
        assert part.std().item() == pytest.approx(gain * 256**-0.5, rel=0.02)
    assert model.to_key.weight.std().item() == pytest.approx((2 / 256) ** 0.5, rel=0.02)
    assert not any(p.any() for name, p in model.named_parameters() if name.startswith("controller.bias"))
    assert (model.confidence_gain.item(), model.confidence_bias.item()) == (1.0, 0.0)


def test_gradients():
    model, x = build(), normal(2, 3, 6).requires_grad_()
    mask = torch.tensor([[True, False, True], [True, True, True]])
    assert torch.autograd.gradcheck(lambda x: model(x, padding_mask=mask), (x,))


test_bad_input = refused(
    (lambda: ESBN(6, 0), "key_dim: expected a positive number, got 0"),
    (lambda: build()(normal(2, 4, 5)), r"x: expected shape \(batch, length, 6\), got \(2, 4, 5\)"),
    (lambda: build()(normal(2, 4, 6), padding_mask=torch.ones(2, 4)), TypeError, "padding_mask: .*boolean"),
    (lambda: build()(normal(2, 4, 6), padding_mask=torch.ones(1, 4, dtype=torch.bool)),
     r"padding_mask: expected shape \(batch, length\) = \(2, 4\), got \(1, 4\)"),
)  # fmt: skip
