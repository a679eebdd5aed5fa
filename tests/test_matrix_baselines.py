"""Models of progressive matrices against their equations."""

from __future__ import annotations

import torch

from studies.matrices.baselines import ScatteringLearner, WReN
from tests.support.tensors import float64, normal


def test_pairs_by_hand():
    model, x = float64(WReN(6, 4, 5)), normal(2, 4, 6)
    tags = torch.eye(4).double()
    wanted = []
    for b in range(2):
        rows = [torch.cat((x[b, i], tags[i])) for i in range(4)]
        pairs = [model.pair(torch.cat((first, second))) for first in rows for second in rows]
        wanted.append(model.whole(torch.relu(torch.stack(pairs)).sum(0)))
    torch.testing.assert_close(model(x), torch.stack(wanted))


def test_places_are_told_by_tags_only():
    model, x = float64(WReN(6, 4, 5)), normal(2, 4, 6)
    order = torch.tensor([2, 0, 3, 1])
    assert not torch.allclose(model(x), model(x[:, order]))
    model.places = model.places * 0
    torch.testing.assert_close(model(x), model(x[:, order]))


def test_parts_by_hand():
    model, x = float64(ScatteringLearner(6, 4, 7, n_groups=3, n_relations=2)), normal(2, 4, 6)
    wanted = []
    for b in range(2):
        y = [x[b, n] + model.object(x[b, n]) for n in range(4)]
        for k in range(3):
            z = [part + model.attribute(part) for part in (row[2 * k : 2 * k + 2] for row in y)]
            wanted.append(model.relation(torch.cat(z)))
    torch.testing.assert_close(model(x), torch.stack(wanted).view(2, 6))


def test_groups_share_their_networks():
    """Once objects are told apart, groups in another order give their relations in that order."""
    model, x = float64(ScatteringLearner(6, 4, 7, n_groups=3, n_relations=2)), normal(2, 4, 6)
    for parameter in model.object.parameters():
        parameter.data.zero_()
    turned = x.unflatten(-1, (3, 2)).roll(1, 2).flatten(2)
    torch.testing.assert_close(model(turned).view(2, 3, 2), model(x).view(2, 3, 2).roll(1, 1))
