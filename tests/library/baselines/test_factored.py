"""The Slot Abstractor and OCRA: their equations, and what passes of features and positions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.baselines import OCRA, SlotAbstractor
from tests.support.refusals import refused
from tests.support.tensors import float64, normal

KINDS = {
    "slot abstractor": lambda: float64(SlotAbstractor(6, 2, 2, 8)),
    "ocra": lambda: float64(OCRA(6, 2, 2, 8)),
    "ocra, identity": lambda: float64(OCRA(6, 2, 2, 8, rel_activation="identity")),
}


def context_norm(norm, x):
    return (x - x.mean(1, keepdim=True)) / (x.var(1, unbiased=False, keepdim=True) + norm.eps).sqrt() * norm.weight + (
        norm.bias
    )


def test_the_slot_abstractor_is_an_abstractor_with_positions_as_symbols():
    model, z, m = KINDS["slot abstractor"](), normal(2, 5, 6), normal(2, 5, 6)
    x, a = context_norm(model.context_norm, z), context_norm(model.context_norm, m)
    for block in model.blocks:
        a = block(x, a)
    torch.testing.assert_close(model(z, m), a)
    fresh = SlotAbstractor(6, 2, 2).blocks
    assert all(torch.equal(block.rel_attn.wq.weight, block.rel_attn.wk.weight) for block in fresh)


@pytest.mark.parametrize("activation", ["softmax", "identity"])
@torch.no_grad()
def test_relations_of_pairs_by_hand(activation):
    model, z, m = float64(OCRA(6, 1, 2, 8, rel_activation=activation)), normal(2, 3, 6), normal(2, 3, 6)
    x, p = context_norm(model.context_norm, z), context_norm(model.context_norm, m)
    x, p = x @ model.wz.weight.T + model.wz.bias, p @ model.wm.weight.T + model.wm.bias
    tokens = []
    for b in range(2):
        rows = [model.cls_token[0, 0]]
        for i in range(3):
            related = torch.stack([x[b, i] @ x[b, j] for j in range(3)])
            related = related.exp() / related.exp().sum() if activation == "softmax" else related
            rows += [related[j] * model.wr.weight[:, 0] + model.wr.bias + p[b, i] + p[b, j] for j in range(i, 3)]
        tokens.append(torch.stack(rows))
    assert tokens[0].shape == (7, 6)
    torch.testing.assert_close(model(z, m), model.blocks[0](torch.stack(tokens))[:, 0])


@given(st.sampled_from(sorted(KINDS)), st.lists(st.booleans(), min_size=4, max_size=4))
def test_padding_anywhere_is_as_if_it_were_not_there(name, real):
    model, z, m = KINDS[name](), normal(2, 4, 6), normal(2, 4, 6)
    mask = torch.tensor(real)
    got, wanted = model(z, m, padding_mask=mask.expand(2, 4)), model(z[:, mask], m[:, mask])
    torch.testing.assert_close(got[:, mask] if got.dim() == 3 else got, wanted)


@pytest.mark.parametrize("name", KINDS)
def test_order_of_objects_does_not_matter_and_a_shift_of_all_features_is_not_seen(name):
    model, z, m = KINDS[name](), normal(2, 5, 6), normal(2, 5, 6)
    torch.testing.assert_close(model(z + normal(2, 1, 6), m), model(z, m))
    if name != "ocra":  # whose softmax depends on which object of a pair is the first
        turned = torch.randperm(5)
        again = model(z[:, turned], m[:, turned])
        torch.testing.assert_close(again, model(z, m)[:, turned] if again.dim() == 3 else model(z, m))


test_bad_input = pytest.mark.parametrize("name", KINDS)(refused(
    (lambda model, z: model(z, z[:, :3]), "positions: expected one for each of 4 objects, got 3"),
    (lambda model, z: model(z, z[:1]), r"positions: expected shape \(2, length, 6\)"),
    (lambda model, z: model(z, z, padding_mask=z[..., 0]), TypeError, "padding_mask: expected a boolean"),
    by=lambda call, *, name: call(KINDS[name](), normal(2, 4, 6)),
))  # fmt: skip


test_bad_constructors = refused(
    (lambda: OCRA(6, 1, 2, rel_activation="sofmax"), "rel_activation"),
    *((lambda kind=kind: kind(6, 0, 2), "n_layers: expected a positive") for kind in (OCRA, SlotAbstractor)),
)
