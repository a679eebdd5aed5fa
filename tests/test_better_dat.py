"""The changes of studies/better_dat: two begin as the DAT that they change, and each computes what it says."""

import pytest
import torch

from dat.experiments.relational_games.model import build_games_model
from dual_attention.relational_attention import RelationalAttention
from studies.better_dat.models import OF_GAMES
from studies.better_dat.parts import BoundAttention, BoundedDistance
from tests.support.tensors import close

IMAGES = torch.rand(3, 3, 36, 36, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["bound", "read"])
def test_it_begins_as_the_dat_and_learns_to_differ(name):
    dat, changed = (build_games_model(OF_GAMES[kind], 2, seed=1).eval() for kind in ("dat", name))
    close(changed(IMAGES), dat(IMAGES), atol=1e-6)
    changed(IMAGES).square().sum().backward()
    own = [x for key, x in changed.named_parameters() if key.endswith("gate") or "read." in key]
    assert own and all(x.grad is not None and x.grad.abs().max() > 0 for x in own)


def test_bound_messages_are_sums_of_pairs():
    torch.manual_seed(0)
    x, symbols = torch.randn(2, 4, 8), torch.randn(2, 4, 8)
    layer = RelationalAttention(8, n_heads=2, n_relations=3)
    plain, weights, relations = layer(x, symbols, need_weights=True)
    layer.__class__ = BoundAttention
    layer.gate = torch.nn.Parameter(torch.randn(2, 4))
    values = layer.wv(symbols).view(2, 4, 2, 4)
    added = torch.zeros(2, 4, 2, 4)
    for h in range(2):
        for j in range(4):
            told = relations[:, :, j] @ layer.wr[h].T
            added[:, :, h] += weights[:, h, :, j, None] * layer.gate[h] * told * values[:, None, j, h]
    close(layer(x, symbols).output, plain + added.flatten(2) @ layer.wo.weight.T, atol=1e-5)


def test_bounded_distances_know_directions_alone():
    torch.manual_seed(0)
    score, q, k = BoundedDistance(n_relations=3, d_q=64), torch.randn(2, 3, 5, 64), torch.randn(2, 3, 7, 64)
    found = score(q, k).detach()
    assert ((found > 0) & (found < 1)).all() and abs(float(found.mean()) - 0.5) < 0.05
    close(score(7 * q, k / 3), found, atol=1e-5)
    close(score(q, q).diagonal(dim1=-2, dim2=-1), torch.ones(2, 3, 5), atol=1e-5)
