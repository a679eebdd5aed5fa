"""PrediNet against its equations."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.baselines import PrediNet, VisionPrediNet
from tests.support.refusals import refused
from tests.support.tensors import float64, normal


def build(position_dim=1, **arguments):
    return float64(PrediNet(6, 4, 3, 2, 5, position_dim=position_dim, **arguments))


@pytest.mark.parametrize("position_dim", [0, 1, 2])
def test_each_head_by_hand(position_dim):
    model, x = build(position_dim), normal(2, 4, 6)
    positions = {0: None, 1: None, 2: normal(4, 2)}[position_dim]
    tags = {0: torch.zeros(4, 0), 1: torch.arange(4.0)[:, None], 2: positions}[position_dim].double()
    wanted = []
    for b in range(2):
        rows = torch.cat((x[b], tags), dim=1)
        keys = rows @ model.wk.weight.T
        for h in range(3):
            pair = []
            for wq in (model.wq1.weight, model.wq2.weight):
                query = wq[5 * h : 5 * h + 5] @ rows.flatten()
                pair.append(torch.softmax(keys @ query, dim=0) @ rows)
            wanted.append((pair[0] - pair[1]) @ model.ws.weight.T)
            wanted.extend(e[6:] for e in pair)
    out = model(x, positions=positions)
    assert out.shape == (2, model.out_features) == (2, 3 * (2 + 2 * position_dim))
    torch.testing.assert_close(out, torch.cat(wanted).view(2, -1))


def test_positions_may_differ_between_examples():
    model, x, positions = build(2), normal(2, 4, 6), normal(2, 4, 2)
    out = model(x, positions=positions)
    for b in range(2):
        torch.testing.assert_close(out[b : b + 1], model(x[b : b + 1], positions=positions[b]))


@given(st.integers(1, 4))
def test_missing_objects_are_as_if_masked(n):
    model, x = build(), normal(2, 4, 6)
    mask = torch.arange(4).expand(2, 4) < n
    torch.testing.assert_close(model(x, padding_mask=mask), model(x[:, :n]))


def test_what_a_masked_object_holds_does_not_matter():
    model, x = build(), normal(2, 4, 6)
    mask = torch.tensor([True, False, True, True]).expand(2, 4)
    changed = x.clone()
    changed[:, 1] = 100.0
    torch.testing.assert_close(model(x, padding_mask=mask), model(changed, padding_mask=mask))
    assert not torch.allclose(model(x), model(changed))


def test_weights_when_asked_for():
    model, x = build(), normal(2, 4, 6)
    mask = torch.tensor([[True, True, False, True], [True] * 4])
    output, weights = model(x, padding_mask=mask, need_weights=True)
    torch.testing.assert_close(output, model(x, padding_mask=mask))
    assert weights.shape == (2, 3, 2, 4) and (weights[0, ..., 2] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 2).double())


@pytest.mark.parametrize("n", [0, 4])
def test_no_objects(n):
    mask = torch.zeros(2, n, dtype=torch.bool) if n else None
    assert (build()(normal(2, n, 6), padding_mask=mask) == 0).all()


def test_positions_in_a_grid():
    model = float64(VisionPrediNet((3, 12, 8), (4, 4), 5, 6, 3, 2, positions="grid"))
    images = normal(2, 3, 8, 12)
    places = torch.tensor([(r, c) for r in (-1.0, 1.0) for c in (-1.0, 0.0, 1.0)]).double()
    summary = model.predinet(model.objects(images), positions=places)
    torch.testing.assert_close(model(images), model.classifier(summary))


test_bad_input = refused(
    (lambda: PrediNet(6, 4, 0, 2), "n_heads: expected a positive number, got 0"),
    (lambda: PrediNet(2, 4, 3, 2), "key_dim: expected a positive number, got 0"),
    (lambda: PrediNet(6, 4, 3, 2, position_dim=-1), "position_dim: expected zero or more"),
    (lambda: build()(normal(2, 5, 6)), "x: expected at most n_objects=4 objects, got 5"),
    (lambda: build(2)(normal(2, 4, 6)), "positions: expected 2 numbers for each object, got none"),
    (lambda: build(2)(normal(2, 4, 6), positions=normal(4, 1)), r"positions: expected \(4, 2\) .*, got \(4, 1\)"),
    (lambda: build()(normal(2, 4, 6), positions=torch.arange(4)[:, None]), TypeError,
     "positions: expected floating-point numbers, got dtype torch.int64"),
    (lambda: VisionPrediNet((3, 8, 8), (4, 4), 2, 6, 3, 2, positions="polar"), "positions: .*'polar'"),
)  # fmt: skip
