"""Slot Attention against its algorithm, and how slots share the positions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.baselines import SlotAttention
from tests.support.refusals import refused
from tests.support.tensors import float64, normal


def build(**arguments):
    return float64(SlotAttention(6, 3, 4, **arguments))


def algorithm(model: SlotAttention, x: torch.Tensor, slots: torch.Tensor):
    """Algorithm 1 for one example, position by position; the GRU is written out."""

    def norm(v, layer):
        return (v - v.mean()) / (v.var(unbiased=False) + layer.eps).sqrt() * layer.weight + layer.bias

    x = torch.stack([norm(row, model.norm_input) for row in x])
    weights = torch.zeros(len(slots), len(x), dtype=torch.float64)
    shares = weights.clone()
    for _ in range(model.n_iterations):
        queries = [model.wq.weight @ norm(slot, model.norm_slots) for slot in slots]
        for n, row in enumerate(x):
            scores = torch.stack([q @ (model.wk.weight @ row) / 6**0.5 for q in queries])
            shares[:, n] = scores.exp() / scores.exp().sum()
        weights = (shares + model.eps) / (shares + model.eps).sum(1, keepdim=True)
        found = []
        for k, slot in enumerate(slots):
            update = sum(weights[k, n] * (model.wv.weight @ row) for n, row in enumerate(x))
            cell = model.update.cell
            i = (cell.weight_ih @ update + cell.bias_ih).chunk(3)
            h = (cell.weight_hh @ slot + cell.bias_hh).chunk(3)
            reset, keep = torch.sigmoid(i[0] + h[0]), torch.sigmoid(i[1] + h[1])
            slot = (1 - keep) * torch.tanh(i[2] + reset * h[2]) + keep * slot
            first, second = model.ff_block.linear1, model.ff_block.linear2
            hidden = torch.relu(first.weight @ norm(slot, model.norm_ff) + first.bias)
            found.append(slot + second.weight @ hidden + second.bias)
        slots = torch.stack(found)
    return slots, weights, shares


@pytest.mark.parametrize("init", ["random", "learned"])
@pytest.mark.parametrize("n_iterations", [1, 3])
@torch.no_grad()
def test_the_algorithm(init, n_iterations):
    model, x = build(init=init, n_iterations=n_iterations, eps=1e-2), normal(2, 5, 4)
    got = model(x, need_weights=True)
    for b in range(2):
        for ours, theirs in zip(got, algorithm(model, x[b], model.initial_slots(2)[b]), strict=True):
            torch.testing.assert_close(ours[b], theirs)
    torch.testing.assert_close(model(x), got.slots)
    torch.testing.assert_close(got.shares.sum(1), torch.ones(2, 5).double())
    torch.testing.assert_close(got.weights.sum(2), torch.ones(2, 3).double())


def test_gradients_pass_through_all_iterations():
    model, x, slots = build(), normal(1, 3, 4).requires_grad_(), normal(1, 2, 6).requires_grad_()
    assert torch.autograd.gradcheck(model, (x, slots))


@pytest.mark.parametrize("init", ["random", "learned"])
def test_every_parameter_learns(init):
    model = build(init=init)
    model(normal(3, 5, 4)).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@given(st.lists(st.booleans(), min_size=5, max_size=5))
def test_padding_anywhere_is_as_if_it_were_not_there(real):
    model, x = build(), normal(2, 5, 4)
    mask = torch.tensor(real)
    got, wanted = model(x, padding_mask=mask.expand(2, 5), need_weights=True), model(x[:, mask], need_weights=True)
    torch.testing.assert_close(got.slots, wanted.slots)
    torch.testing.assert_close(got.weights[..., mask], wanted.weights)
    assert not got.weights[..., ~mask].any() and not got.shares[..., ~mask].any()


def test_slots_are_exchangeable_and_positions_have_no_order():
    model, x, slots = build(), normal(2, 5, 4), normal(2, 7, 6)
    among, turned = torch.randperm(7), torch.randperm(5)
    torch.testing.assert_close(model(x[:, turned], slots[:, among]), model(x, slots)[:, among])


def test_random_slots_are_drawn_anew_in_training_and_kept_in_evaluation():
    model, x = build(), normal(1, 5, 4).expand(2, -1, -1)
    torch.testing.assert_close(*model(x))
    assert not torch.equal(*model.train()(x))
    again = build()
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again(x), model.eval()(x))


def test_scores_beyond_float16_leave_finite_slots():
    model = SlotAttention(4, 3).half()
    with torch.no_grad():
        model.wk.weight.mul_(3e4)
    assert model(torch.randn(2, 5, 4).half()).isfinite().all()


test_bad_input = refused(
    (lambda: SlotAttention(8, 0), "n_slots: expected a positive"),
    (lambda: SlotAttention(8, 2, n_iterations=0), "n_iterations: expected a positive"),
    (lambda: SlotAttention(8, 2, init="zero"), "init: expected 'random' or 'learned', got 'zero'"),
    (lambda: SlotAttention(8, 2, eps=0.0), "eps: expected a positive number, got 0.0"),
    (lambda: build()(normal(2, 5, 6)), r"x: expected shape \(batch, length, 4\), got \(2, 5, 6\)"),
    (lambda: build()(normal(2, 5, 4), normal(1, 3, 6)), r"slots: expected shape \(2, length, 6\)"),
)


def test_padding_may_hold_anything():
    attention, x = SlotAttention(8, 3).double().eval(), torch.randn(2, 6, 8, dtype=torch.float64)
    real = torch.tensor([True] * 4 + [False] * 2).expand(2, 6)
    broken = x.masked_fill(~real[..., None], torch.nan)
    torch.testing.assert_close(attention(broken, padding_mask=real), attention(x[:, :4]))
