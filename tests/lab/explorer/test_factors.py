"""Factors give the maps that the layers themselves build."""

import pytest
import torch

from dat.explorer.factors import ScoreFactors, Visible
from dat.explorer.packing import measured, pack
from dat.explorer.recording import record
from dual_attention import Attention
from dual_attention.functional import causal_mask
from dual_attention.model_analysis.capture import capture
from tests.lab.explorer.conftest import ACTIVATIONS
from tests.library.model_analysis.models import FAMILIES
from tests.support import language, seq2seq

N = 9
MODELS = FAMILIES | {
    f"language {name}": lambda name=name: language.lm("symbolic_attention", ra_kwargs={"rel_activation": name})
    for name in ACTIVATIONS
}


def one_call(name, model):
    """A call of a model of a family on one example, and the labels of its sequences."""
    if name.startswith("vision"):
        images = torch.randn(1, 1, 8, 8, dtype=torch.float64)
        return lambda: model(images), {"patches": [str(place) for place in range(5)]}
    if name.startswith("seq2seq"):
        source, target = (words[:1] for words in seq2seq.words())
        labels = {"source": ["s"] * source.shape[1], "target": ["t"] * target.shape[1]}
        return lambda: model(source, target, target), labels
    tokens = language.tokens(1, N)
    return lambda: model(tokens), {"tokens": [str(place) for place in range(N)]}


@pytest.mark.parametrize("name", MODELS)
def test_maps_of_factors_are_those_of_the_layers(name):
    model = MODELS[name]()
    call, labels = one_call(name, model)
    recording = record(model, call, labels)
    with torch.no_grad(), capture(model) as maps:
        call()
    found = maps.heads()
    assert [(heads.layer, heads.kind) for heads in recording.heads] == [(heads.layer, heads.kind) for heads in found]
    for heads, expected in zip(recording.heads, found, strict=True):
        n, m = expected.weights.shape[-2:]
        assert (len(labels[heads.receivers]), len(labels[heads.senders])) == (n, m)
        close = {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(heads.weights.values(0, n, heads.visible), expected.weights[0].float(), **close)
        visible = expected.visible.expand(1, 1, n, m)[0, 0]
        assert torch.equal(heads.visible.rows(0, n), visible)
        torch.testing.assert_close(
            heads.message_norms["all"].double(), expected.contribution[0].norm(dim=-1), rtol=1e-4, atol=1e-5
        )
        assert (heads.relations is None) == (expected.relations is None)
        if heads.relations is not None:
            relations = expected.relations[0].permute(2, 0, 1).float().masked_fill(~visible, 0)
            torch.testing.assert_close(heads.relations.values(0, n, heads.visible), relations, **close)
        if expected.assignment is not None:
            whole = Visible.whole(heads.assignment.receivers, heads.assignment.keys.shape[1])
            weights = heads.assignment.values(0, whole.receivers, whole)
            torch.testing.assert_close(weights.double(), expected.assignment[0], **close)


def test_contributions_add_up_to_the_message():
    """Weight × relation, sent through W_o W_r, is the relational message; so the lengths kept are of its parts."""
    model = FAMILIES["language grouped"]()
    call, labels = one_call("language", model)
    heads = next(heads for heads in record(model, call, labels).heads if heads.kind == "relational")
    site = model.layers.blocks[0].dual_attn.relational_attention
    d_h = site.head_dim
    through = torch.stack(
        [site.wo.weight[:, h * d_h : (h + 1) * d_h] @ site.wr[h] for h in range(site.n_heads)]
    )  # (H, d, R)
    products = torch.einsum("hdr,gdr->rhg", through, through)
    torch.testing.assert_close(heads.relation_products.double(), products, rtol=1e-5, atol=1e-6)
    alpha = heads.weights.values(0, N, heads.visible).double()
    r = heads.relations.values(0, N, heads.visible).double()
    message = torch.einsum("hnm,rnm,hdr->hnd", alpha, r, through)
    torch.testing.assert_close(heads.message_norms["relations"].double(), message.norm(dim=-1), rtol=1e-4, atol=1e-5)


def test_contributions_of_senders():
    """The first receiver of a causal model attends only itself: its message is the contribution of that one sender."""
    model = FAMILIES["language symbolic_attention"]()
    call, labels = one_call("language", model)
    for heads in record(model, call, labels).heads:
        message = heads.message_norms["all" if heads.kind == "sensory" else "symbols"]
        assert heads.visible.last[0] == 1
        torch.testing.assert_close(heads.sender_norms[:, 0], message[:, 0], rtol=1e-4, atol=1e-6)


def test_a_recording_in_a_notebook_is_short():
    model = language.lm("symbolic_attention")
    tokens = language.tokens(1, N)
    found = record(model, lambda: model(tokens), {"tokens": ["x"] * N}, title="a text")
    assert repr(found).startswith(f"Recording('a text': {N} tokens; blocks.0 sensory, blocks.0 relational")
    assert all("tensor(" not in repr(heads) and len(repr(heads)) < 1500 for heads in found.heads)


def test_visible_runs():
    mask = causal_mask(5)
    visible = Visible.of_mask(mask)
    assert visible.first.tolist() == [0] * 5 and visible.last.tolist() == [1, 2, 3, 4, 5]
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    assert Visible.of_mask(nothing).first.tolist() == Visible.of_mask(nothing).last.tolist()


def test_a_receiver_that_sees_nothing_has_zeros():
    factors = ScoreFactors(torch.randn(2, 3, 4), torch.randn(2, 3, 4), "softmax")
    visible = Visible(torch.tensor([0, 0, 1]), torch.tensor([0, 2, 3]), 3)
    values = factors.normalised(visible).values(0, 3, visible)
    assert torch.equal(values[:, 0], torch.zeros(2, 3))
    torch.testing.assert_close(values[:, 1:].sum(-1), torch.ones(2, 2))


def biased(_, tokens):
    layer, x = Attention(16, 2), torch.randn(1, N, 16)
    return record(layer, lambda: layer(x, x, x, attn_bias=torch.randn(N, N)), LABELS)


LABELS = {"tokens": ["x"] * N}
Q, SEEN = torch.randn(2, 3, 4), Visible(torch.zeros(3), torch.ones(3), 3)
HOLES = torch.tensor([[True, True, False], [True, False, True]])
REFUSED = [
    (lambda m, x: record(m, lambda: m(x), LABELS), ValueError, "call: expected one example, got a batch of 2"),
    (lambda m, x: record(m, lambda: None, LABELS), ValueError, "call: expected a call of the model"),
    (lambda m, x: record(m, lambda: (m(x[:1]), m(x[:1])), LABELS), ValueError, "call: expected one call .* got 2"),
    (lambda m, x: record(m, lambda: m(x[:1]), {"x": "xyz"}), ValueError, r"of the 9 receivers of blocks\.0, .* x 3"),
    (lambda m, x: record(m, lambda: m(x[:1]), ["x"] * 9), TypeError, "sequences: expected labels by name, .*got list"),
    (lambda m, x: record(m, lambda: m(x[:1]), {}), ValueError, "sequences: expected the labels"),
    (biased, ValueError, "attn_bias"),
    (lambda *_: Visible.of_mask(HOLES), ValueError, "attn_mask: receiver 1 .*hidden ones between"),
    (lambda *_: ScoreFactors(Q, Q, "softmax").values(0, 3, SEEN), ValueError, "normalisers: softmax needs them"),
    (
        lambda *_: ScoreFactors(Q, Q, "swish"),
        ValueError,
        "activation: the explorer computes identity, .*swish",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_refusals(call, error, message):
    model = language.lm("symbolic_attention")
    with pytest.raises(error, match=message):
        call(model, language.tokens(2, N))
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("shaw", [None, 2])
def test_relative_positions_of_shaw(shaw):
    layer = Attention(16, 2, shaw_max_rel_pos=shaw, window=3)
    if shaw:
        torch.nn.init.normal_(layer.rel_pos_keys.rel_pos_embeddings)
    x = torch.randn(1, 7, 16)
    heads = record(layer, lambda: layer(x, x, x), {"x": ["x"] * 7}).heads[0]
    weights = layer(x, x, x, need_weights=True).weights[0]
    torch.testing.assert_close(heads.weights.values(0, 7, heads.visible), weights, rtol=1e-4, atol=1e-6)
    assert (heads.weights.offsets is None) == (shaw is None)


def test_blocks_of_receivers_agree_with_all_at_once(monkeypatch):
    model = language.lm("symbolic_attention")
    tokens = language.tokens(1, N)
    whole = record(model, lambda: model(tokens), {"tokens": ["x"] * N})
    monkeypatch.setattr("dat.explorer.factors.BLOCK", 1)
    rows = record(model, lambda: model(tokens), {"tokens": ["x"] * N})
    for one, other in zip(whole.heads, rows.heads, strict=True):
        torch.testing.assert_close(one.weights.normalisers, other.weights.normalisers)
        (ours, error), (theirs, _) = (measured(heads, {"weights": heads.weights}) for heads in (one, other))
        torch.testing.assert_close(ours.weights, theirs.weights)
        assert error == 0
    assert pack(whole).json["sequences"] == {"tokens": ["x"] * N}
