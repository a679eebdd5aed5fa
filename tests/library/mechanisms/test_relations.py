"""The join: self-attention, relational cross-attention and relational attention as compositions, and new ones."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dual_attention.functional import RelativeSymbols
from dual_attention.mechanisms import (
    Additive,
    BiasedGeneral,
    Cosine,
    Dot,
    Euclidean,
    General,
    GeneralAttention,
    KeyOnly,
    MultiHead,
    Product,
    Relation,
    RelationalMessage,
    Sparsemax,
    Trilinear,
    recipes,
)
from dual_attention.relational_attention import RelationalAttention, RelationalCrossAttention
from dual_attention.symbol_retrieval import PositionRelativeSymbolRetriever
from tests.support.refusals import refused
from tests.support.tensors import close, float64, normal

from .space import a_mask

B, N, D, H, R = 2, 5, 8, 2, 4

NAMES = {
    "wq.weight": "wq_attn.weight",
    "wk.weight": "wk_attn.weight",
    "wo.weight": "wo.weight",
    "attention.message.wr": "wr",
    "attention.message.wv.weight": "wv.weight",
    "attention.message.relation.wq.weight": "wq_rel.weight",
    "attention.message.relation.wk.weight": "wk_rel.weight",
}


def copy_layer(layer, ours):
    """The weights of the library's layer in a composition."""
    state = layer.state_dict()
    ours.double().eval().load_state_dict({mine: state[theirs] for mine, theirs in NAMES.items()}, strict=True)


# The recipes are the layers


@settings(max_examples=30)
@given(
    seed=st.integers(0, 999),
    relations=st.sampled_from([1, 2, 4]),
    proj_dim=st.sampled_from([1, 3]),
    activation=st.sampled_from(["identity", "tanh", "softmax", "relu"]),
    symmetric=st.booleans(),
    relative=st.booleans(),
    causal=st.booleans(),
)
def test_relational_attention_is_the_layer(seed, relations, proj_dim, activation, symmetric, relative, causal):
    torch.manual_seed(seed)
    layer = float64(
        RelationalAttention(
            D,
            H,
            relations,
            rel_proj_dim=proj_dim,
            rel_activation=activation,
            symmetric_rels=symmetric,
            use_relative_positional_symbols=relative,
        )
    )
    ours = recipes.relational_heads(
        D,
        H,
        relations,
        rel_proj_dim=proj_dim,
        rel_activation=activation,
        symmetric_rels=symmetric,
        relative_symbols=relative,
    )
    copy_layer(layer, ours)
    x = normal(B, N, D).requires_grad_()
    symbols = PositionRelativeSymbolRetriever(D, 3).double()(x) if relative else normal(B, N, D)
    masks = {"attn_mask": a_mask(), "padding_mask": torch.rand(B, N) < 0.8, "is_causal": causal}
    wanted = layer(x, symbols, **masks, need_weights=True)
    cotangent = normal(B, N, D)
    (gradient,) = torch.autograd.grad(wanted.output, x, cotangent)
    for need_weights in (False, True):
        got = ours(x, x, symbols, **masks, need_weights=need_weights)
        close(got.context, wanted.output)
        close(torch.autograd.grad(got.context, x, cotangent)[0], gradient)
    close(got.weights, wanted.weights)


@pytest.mark.parametrize("activation", ["softmax", "sigmoid", "tanh", "identity"])
@pytest.mark.parametrize("relative", [False, True])
def test_relational_cross_attention_is_the_layer(activation, relative):
    layer = float64(RelationalCrossAttention(D, H, activation=activation, use_relative_positional_symbols=relative))
    ours = recipes.relational_cross_heads(D, H, activation).double().eval()
    state = layer.state_dict()
    state["features.wv.weight"] = state.pop("wv.weight")
    ours.load_state_dict(state)
    x, mask = normal(B, N, D), a_mask()
    s = PositionRelativeSymbolRetriever(D, 3).double()(x) if relative else normal(1, N, D)
    wanted = layer(x, s, attn_mask=mask, need_weights=True)
    for need_weights in (False, True):
        got = ours(x, x, s, attn_mask=mask, need_weights=need_weights)
        close(got.context, wanted.output)
    close(got.weights, wanted.weights)


# Hadamard relations, and the gate that is their control


def test_hadamard_attention_without_symbols_is_linearly_gated_attention():
    hadamard = float64(recipes.hadamard_attention(D, 1, D))
    gated = recipes.gated_self_attention(D, 1, gate="identity").double()
    with torch.no_grad():
        hadamard.message.wr.copy_(torch.eye(D)[None])
    state = hadamard.state_dict()
    shared = {name: state[name] for name in ("wq.weight", "wk.weight", "wo.weight")}
    relation = "attention.message.relation."
    shared["wg.weight"], shared["features.wv.weight"] = state[relation + "wq.weight"], state[relation + "wk.weight"]
    gated.load_state_dict(shared)
    x, mask = normal(B, N, D), a_mask()
    close(hadamard(x, attn_mask=mask).context, gated(x, attn_mask=mask).context)


def test_symbols_are_optional():
    with_none = float64(recipes.relational_heads(D, H, R, symbols=False))
    with_zero = recipes.relational_heads(D, H, R).double()
    state = with_none.state_dict()
    with_zero.load_state_dict({**state, "attention.message.wv.weight": torch.zeros(D, D)})
    x = normal(B, N, D)
    close(with_none(x).context, with_zero(x, x, normal(B, N, D)).context)


def test_qk_norm_of_relations():
    relation = float64(Relation(D, R, qk_norm=True))
    x = normal(B, N, D)
    close(relation(10 * x), relation(x), atol=1e-9)
    assert recipes.relational_heads(D, H, R, qk_norm=True)(x.float(), value=x.float()).context.shape == (B, N, D)


def test_symmetric_relations():
    for score, qk_norm in itertools.product((Dot(), Cosine(), Euclidean()), (False, True)):
        relation = Relation(D, R, score=score, symmetric=True, qk_norm=qk_norm).double()
        with torch.no_grad():
            for parameter in relation.parameters():
                parameter.normal_()
        r = relation(normal(B, N, D))
        close(r, r.transpose(1, 2), atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"align": Sparsemax}, {"relation": Cosine}])
def test_low_precision(dtype, options):
    heads = recipes.relational_heads(D, H, R, **{k: v() for k, v in options.items()}).to(dtype)
    x, s = torch.randn(B, N, D).to(dtype), torch.randn(B, N, D).to(dtype)
    got = heads(x, x, s).context
    assert got.dtype == dtype
    wanted = heads.double()(x.double(), x.double(), s.double()).context
    close(got.double(), wanted, atol=5e-2)


def test_autocast():
    own = (Product(D // R, D // R, heads=R), BiasedGeneral(D // R, D // R, heads=R), Trilinear(D // R, heads=R))
    others = ({}, {"align": Sparsemax()}, {"relation": Cosine()}, {"symbols": False})
    for options in (*others, *({"relation": relation} for relation in own)):
        heads = recipes.relational_heads(D, H, R, **options)
        x = torch.randn(B, N, D)
        symbols = None if "symbols" in options else x
        wanted = heads(x, x, symbols).context
        with torch.autocast("cpu", torch.bfloat16):
            got = heads(x, x, symbols).context
        close(got.float(), wanted, atol=5e-2)


@pytest.mark.parametrize("activation", ["identity", "tanh", "softmax"])
def test_inputs_that_the_fused_operation_does_not_take(activation):
    """Types that autocast makes differ, and one example of queries or keys for all."""
    attention = float64(GeneralAttention(Dot(), message=RelationalMessage(Relation(D, R, activation=activation), 3)))
    x = normal(B, N, D)
    for query, key in ((x[:1], x), (x, x[:1])):
        wanted = attention(query.expand_as(x), key.expand_as(x)).context
        for need_weights in (False, True):
            close(attention(query, key, need_weights=need_weights).context, wanted)
    wanted = attention(x).context
    with torch.autocast("cpu", torch.bfloat16):
        got = attention.float()(x.float()).context
    close(got.double(), wanted, atol=5e-2)


@pytest.mark.parametrize("wide", [False, True])
def test_squared_distances_under_autocast_are_those_of_float32(wide):
    """With vectors that autocast leaves wide, too, as those of norms on some devices."""

    class Widened(nn.Module):
        def forward(self, x):
            return x.float()

    relation = Relation(D, R, score=Euclidean(squared=True))
    if wide:
        relation.q_norm = relation.k_norm = Widened()
    x = 99 + torch.randn(B, N, D)
    with torch.autocast("cpu", torch.bfloat16):
        messages = RelationalMessage(relation, 3, heads=H)(x, x)
        found = messages.relations()
    u, w = (z.detach().float() for z in (messages.u, messages.w))
    wanted = -(u[:, :, None] - w[:, None]).square().sum(-1)
    assert u.shape == (B, N, R, D // R) and messages.u.dtype == (torch.float32 if wide else torch.bfloat16)
    torch.testing.assert_close(found, wanted.to(found.dtype), atol=1e-2, rtol=4e-3)


MESSAGE, PAIRS = RelationalMessage(Relation(D, R), 4), torch.randn(N, N, D)


test_bad_relations = refused(
    (lambda x: Relation(D, R, score=General(2, 2, heads=3)), r"heads=n_relations=4"),
    (lambda x: Relation(D, R, score=KeyOnly(2)), "score"),
    (lambda x: Relation(D, R, score=Additive(D, D, d_out=3))(x), "score: expected Additive to give"),
    (lambda x: Relation(D, R, activation="cosine"), "activation"),
    (lambda x: Relation(D, R, d_sender=3, symmetric=True), "symmetric"),
    (lambda x: Relation(D, R, proj_dim=1, qk_norm=True), "qk_norm"),
    (lambda x: Relation(D, R)(x, x[..., :3]), "key: expected shape"),
    (lambda x: RelationalMessage(Relation(D, R), 4, heads=4, n_kv_heads=3), "n_kv_heads"),
    (lambda x: RelationalMessage(Relation(D, R), 4, heads=4, relative=True), "relative"),
    (lambda x: MultiHead(GeneralAttention(Dot(), message=MESSAGE), D, H), "its message has None heads"),
    (lambda x: recipes.relational_heads(D, H, R)(x), "symbols"),
    (lambda x: recipes.relational_heads(D, H, R)(x, x, x[:, :2]), "symbols"),
    (lambda x: recipes.relational_heads(D, H, R)(x, x, RelativeSymbols.from_dense(PAIRS)), TypeError, "relative"),
    (lambda x: recipes.relational_heads(D, H, R, symbols=False)(x, x, x), "no symbols"),
    by=lambda call: call(torch.randn(B, N, D)),
)


@pytest.mark.parametrize("by_bias", [False, True])
def test_softmax_relations_leave_out_what_every_head_hides(by_bias):
    """Fused or built, masked or under a bias of minus infinity."""
    heads, x = float64(recipes.relational_heads(D, H, R, rel_activation="softmax")), normal(B, N, D)
    mask = torch.rand(B, H, N, N) < 0.6
    mask[..., 0] = False
    given = {"attn_bias": normal(1).masked_fill(~mask, -torch.inf)} if by_bias else {"attn_mask": mask}
    fused, built = (heads(x, x, x, **given, need_weights=need_weights).context for need_weights in (False, True))
    torch.testing.assert_close(fused, built)
    relations = heads.attention.message.relation(x, mask=mask)
    seen = mask.any(dim=1)[..., None].expand(relations.shape)
    assert (relations[~seen] == 0).all() and (relations[seen] > 0).all()
