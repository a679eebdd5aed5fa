"""Models of the toolbox: controls and normalised relations, and the factors of CoRelNet."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dat.experiments.relational_games.config import GamesModelConfig
from dat.experiments.relational_games.model import build_games_model, empty_games_model
from dat.experiments.relational_games.presets import CONTROLS, CORELNETS, NORMALISED, PRESETS, dat, toolbox
from dat.experiments.relational_games.toolbox_config import ToolboxConfig
from dat.experiments.relational_games.toolbox_model import IdentityHeads
from dat.experiments.relational_games.toolbox_relations import DetachedRelation, RelationWithNorms, StandardisedRelation
from dat.training.experiment import count_parameters

SIZE = 421_474
IMAGES = torch.rand(3, 3, 36, 36, generator=torch.Generator().manual_seed(0))

NAMES = {
    "wq_attn": "wq",
    "wk_attn": "wk",
    "wv": "attention.message.wv",
    "wr": "attention.message.wr",
    "wq_rel": "attention.message.relation.wq",
    "wk_rel": "attention.message.relation.wk",
}
"""Parameters of relational heads, and those of the same heads of the toolbox."""


def from_dat(state):
    """The weights of a DAT under the names of a model of the toolbox."""
    renamed = {}
    for name, value in state.items():
        name = name.replace("dual_attn.relational_attention.", "heads.")
        prefix, _, rest = name.partition(".heads.")
        own, _, end = rest.partition(".")
        renamed[f"{prefix}.heads.{NAMES[own]}{'.' * bool(end)}{end}" if own in NAMES else name] = value
    return renamed


def same_as(dat_config: GamesModelConfig, toolbox_config: GamesModelConfig) -> None:
    theirs, ours = (build_games_model(config, 2, seed=0).eval() for config in (dat_config, toolbox_config))
    state = {name: value for name, value in from_dat(theirs.state_dict()).items() if "raw_rel_strength" not in name}
    strengths = {name: value for name, value in ours.state_dict().items() if name.endswith("raw_beta")}
    ours.load_state_dict(state | strengths)
    torch.testing.assert_close(ours(IMAGES), theirs(IMAGES), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("symmetric", [True, False])
def test_without_a_change_it_is_the_dat(symmetric):
    base = dat(0, 2, symmetric=symmetric)
    same_as(base, replace(base, architecture="toolbox", toolbox=ToolboxConfig()))


def test_softmax_of_relations_is_that_of_the_dat():
    same_as(PRESETS["dat-0+2-sym-softmax"], toolbox("dat", normalise="softmax"))


def test_squared_distances_start_as_those_of_the_dat():
    """The strength of the toolbox has 1/sqrt(p) in it, so that its parameter is another."""
    same_as(PRESETS["dat-0+2-sym-squared-distance"], PRESETS["squared-distance"])


def test_symbols_only_is_relational_cross_attention():
    rca = PRESETS["rca-0+2"]
    theirs = build_games_model(rca, 2, seed=0).eval()
    ours = build_games_model(
        replace(rca, architecture="toolbox", toolbox=ToolboxConfig(carries="symbols")), 2, seed=0
    ).eval()
    state = {k.replace("dual_attn.relational_attention.", "heads."): v for k, v in theirs.state_dict().items()}
    ours.load_state_dict({k.replace("heads.wv", "heads.features.wv"): v for k, v in state.items()})
    torch.testing.assert_close(ours(IMAGES), theirs(IMAGES), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", sorted({*CONTROLS, *NORMALISED}))
def test_controls_are_as_large_as_the_dat(name):
    assert abs(count_parameters(empty_games_model(PRESETS[name], "same")) / SIZE - 1) < 0.01


def test_the_initial_spread_of_wr_is_large():
    heads = build_games_model(PRESETS["hadamard"], 2, seed=0).encoder_blocks[0].heads
    assert heads.attention.message.wr.abs().max().item() == pytest.approx(64**-0.5, rel=0.01)


def relations(kind, **own):
    relation = kind(8, 2, proj_dim=4, symmetric=True, **own).eval()
    x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))
    pairs = torch.einsum("bnrp,bmrp->bnmr", *2 * [relation.wq(x).unflatten(-1, (2, 4))]) / 2
    return relation, x, pairs


def test_relations_of_the_receiver_or_sender_with_itself():
    relation, x, pairs = relations(DetachedRelation, of="receiver")
    own = pairs.diagonal(dim1=1, dim2=2).movedim(-1, 1)
    torch.testing.assert_close(relation(x), own[:, :, None].expand_as(pairs))
    relation.of = "sender"
    torch.testing.assert_close(relation(x), own[:, None].expand_as(pairs))
    relation.of = "pair"
    torch.testing.assert_close(relation(x), pairs)


def test_relations_with_a_random_sender():
    relation, x, pairs = relations(DetachedRelation, of="shuffled")
    found = relation(x)
    torch.testing.assert_close(found, relation(x))
    torch.testing.assert_close(found.sort(2).values, pairs.sort(2).values)
    assert not torch.allclose(found, pairs)
    relation.train()
    assert not torch.allclose(relation(x), relation(x))
    with pytest.raises(ValueError, match="key: expected as many senders as receivers, 5, got 4"):
        relation(x, x[:, 1:])


def test_norms_beside_relations_make_squared_distances():
    relation, x, pairs = relations(RelationWithNorms)
    products, of_receiver, of_sender = relation(x).split(2, -1)
    torch.testing.assert_close(products, pairs)
    u, w = (layer(x).unflatten(-1, (2, -1)) for layer in (relation.wq, relation.wk))
    distances = (u[:, :, None] - w[:, None]).square().sum(-1) / relation.proj_dim**0.5
    torch.testing.assert_close(of_receiver + of_sender - 2 * products, distances)


def test_standardised_relations():
    relation, x, _ = relations(StandardisedRelation)
    found = relation(x)
    torch.testing.assert_close(found.mean(2), torch.zeros(3, 5, 2), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.var(2, correction=0), torch.ones(3, 5, 2), atol=0.02, rtol=0)
    everything = torch.ones(5, 5, dtype=torch.bool)
    assert torch.equal(relation(x, x, everything), found)
    with pytest.raises(ValueError, match="mask: standardised relations see all senders"):
        relation(x, x, everything.tril())


def test_identities_in_each_head():
    heads = IdentityHeads(8, 2).double().eval()
    heads.compare.data, heads.copy.data = torch.tensor([0.5, -1.0]).double(), torch.tensor([2.0, 0.3]).double()
    x = torch.randn(3, 5, 8, dtype=torch.double)
    q, k, v = (layer.weight.view(2, 4, 8) for layer in (heads.wq, heads.wk, heads.wv))
    o = heads.wo.weight.view(8, 2, 4)
    expected = weights = torch.zeros_like(x)
    for h in range(2):
        weights = torch.softmax(x @ (q[h].T @ k[h] + heads.compare[h] * torch.eye(8)) @ x.mT / 2, -1)
        expected = expected + weights @ x @ (v[h].T @ o[:, h].T + heads.copy[h] * torch.eye(8))
    found = heads(x, need_weights=True)
    torch.testing.assert_close(found.context, expected)
    torch.testing.assert_close(found.weights[:, 1], weights)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"carries": "symbols", "relation": "cosine"}, "relation: expected 'dot' with model.toolbox.carries=symbols"),
        ({"carries": "objects", "normalise": "softmax"}, "normalise: expected 'none' with model.toolbox.carries=obj"),
        ({"of": "sender", "relation": "hadamard"}, "of: expected 'pair' with relation hadamard, got 'sender'"),
        ({"of": "sender", "normalise": "softmax"}, "normalise: expected 'none' unless the relation is of the pair"),
        ({"relation": "cosine", "sharpness": 2.0}, "sharpness: expected null with relation cosine"),
        ({"sharpness": 0.0}, "sharpness: expected a positive number or null"),
        ({"identities": True}, "identities: expected false unless heads carry objects, without a gate"),
    ],
)
def test_what_does_not_go_together(keys, message):
    with pytest.raises(ValueError, match=rf"model\.toolbox\.{message}"):
        ToolboxConfig(**keys)


def test_relative_symbols_are_refused():
    with pytest.raises(ValueError, match=r"model\.symbols: expected symbols .* in a model of the toolbox"):
        replace(PRESETS["cosine"], symbols="position_relative")


def test_the_eight_corelnets():
    forms = {(c.activation, c.readout, c.object_features > 0) for c in (PRESETS[n].corelnet for n in CORELNETS)}
    assert len(forms) == 8


def test_a_pooled_corelnet_without_objects_sees_relations_only():
    model = build_games_model(PRESETS["corelnet-softmax-pooled"], 2, seed=0).eval()
    objects = model.objects(IMAGES)
    assert model.describe is None
    torch.testing.assert_close(model.summary(objects), model.corelnet.relations(objects))
    kept = build_games_model(PRESETS["corelnet-softmax-pooled-objects"], 2, seed=0).eval()
    assert kept.summary(objects).shape == (3, 9, 18)


def test_another_readout_is_refused():
    from dual_attention.baselines import VisionCoRelNet

    with pytest.raises(ValueError, match="readout: expected 'flat' or 'pooled', got 'mean'"):
        VisionCoRelNet((3, 36, 36), (12, 12), 2, 8, readout="mean")
