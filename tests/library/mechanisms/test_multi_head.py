"""Heads: against torch's, and what they add."""

import pytest
import torch
from torch import nn

from dual_attention.attention import Attention
from dual_attention.functional import apply_rotary, rotary_tables
from dual_attention.mechanisms import (
    Dot,
    Elementwise,
    Entmax,
    FeatureMessage,
    General,
    GeneralAttention,
    KeyOnly,
    LearnedQuery,
    MultiHead,
    MultiToken,
    Relation,
    RelationalMessage,
    Sigmoid,
    Sparsemax,
    recipes,
)
from tests.support.refusals import refused
from tests.support.tensors import close, float64, normal

B, L, S, D, H = 2, 4, 5, 8, 2
DOT, X = GeneralAttention(Dot()), torch.randn(B, S, 8)


@pytest.mark.parametrize("n_kv_heads", [None, 1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_is_the_layer(n_kv_heads, causal):
    layer = float64(Attention(D, 4, n_kv_heads=n_kv_heads))
    ours = MultiHead(GeneralAttention(Dot()), D, 4, n_kv_heads=n_kv_heads).double()
    state = layer.state_dict()
    state["features.wv.weight"] = state.pop("wv.weight")
    ours.load_state_dict(state)
    x = normal(B, L, D)
    mask = torch.rand(B, 1, L, L) < 0.6
    mask[0, :, 1] = False
    arguments = {"attn_mask": mask, "padding_mask": torch.rand(B, L) < 0.7, "is_causal": causal}
    wanted = layer(x, x, x, **arguments, need_weights=True)
    for need_weights in (False, True):
        got = ours(x, **arguments, attn_bias=None, need_weights=need_weights)
        close(got.context, wanted.output)
    close(got.weights, wanted.weights)


@pytest.mark.parametrize("align", [Sparsemax, Entmax, lambda: Entmax(learned=True, heads=H)])
def test_heads_are_attentions_side_by_side(align):
    heads = float64(MultiHead(GeneralAttention(General(D // H, D // H, heads=H), align()), D, H, out_proj=False))
    x = normal(B, L, D)
    output = heads(x, need_weights=True)
    q, k, v = (linear(x).unflatten(-1, (H, -1)) for linear in (heads.wq, heads.wk, heads.features.wv))
    for h in range(H):
        one = GeneralAttention(General(D // H, D // H), Entmax() if align is not Sparsemax else Sparsemax()).double()
        with torch.no_grad():
            one.score.weight.copy_(heads.attention.score.weight[h])
        raw = getattr(heads.attention.align, "raw_alpha", None)
        if raw is not None:
            one.align.alpha = 1 + torch.sigmoid(raw[h, 0, 0])
        single = one(q[:, :, h], k[:, :, h], v[:, :, h], need_weights=True)
        close(output.weights[:, h], single.weights, atol=1e-10)
        close(output.context.unflatten(-1, (H, -1))[:, :, h], single.context, atol=1e-10)


def test_qk_norm():
    heads = float64(MultiHead(GeneralAttention(Dot(scale=1.0)), D, H, qk_norm=True))
    x = normal(B, L, D)
    context = heads(x, x, x, need_weights=True).context
    q = heads.q_norm(heads.wq(x).unflatten(-1, (H, -1))).transpose(1, 2)
    k = heads.k_norm(heads.wk(x).unflatten(-1, (H, -1))).transpose(1, 2)
    unit = heads.wq(x).unflatten(-1, (H, -1))
    unit = unit / (unit.square().mean(-1, keepdim=True) + torch.finfo(torch.float64).eps).sqrt()
    close(q, (unit * heads.q_norm.weight).transpose(1, 2))
    weights = (q @ k.transpose(-2, -1)).softmax(-1)
    v = heads.features.wv(x).unflatten(-1, (H, -1)).transpose(1, 2)
    close(context, heads.wo((weights @ v).transpose(1, 2).flatten(2)))
    close(heads(10 * x, 10 * x, x).context, context, atol=1e-9)  # the size of queries and keys does not matter


def test_gate():
    gated = float64(recipes.gated_self_attention(D, H))
    plain = recipes.self_attention(D, H).double().eval()
    state = gated.state_dict()
    wg = state.pop("wg.weight")
    plain.load_state_dict(state)
    x = normal(B, L, D)
    plain.wo = nn.Identity()
    wanted = gated.wo(plain(x).context * torch.sigmoid(x @ wg.T))
    close(gated(x).context, wanted)
    y = normal(B, S, D)
    close(gated(x, y).context, gated.wo(plain(x, y).context * torch.sigmoid(x @ wg.T)))
    zero = float64(recipes.gated_self_attention(D, H))
    torch.nn.init.zeros_(zero.wg.weight)
    plain.load_state_dict({k: v for k, v in zero.state_dict().items() if k not in ("wg.weight", "wo.weight")})
    close(zero(x).context, zero.wo(plain(x).context) / 2)


def test_widths():
    heads = MultiHead(
        GeneralAttention(Dot()), 6, 2, d_key=5, d_value=3, key_dim=4, head_dim=7, d_out=9, out_dropout=0.1
    )
    assert heads(torch.randn(B, L, 6), torch.randn(B, S, 5), torch.randn(B, S, 3)).context.shape == (B, L, 9)
    bare = MultiHead(GeneralAttention(Dot()), 6, 2, out_proj=False)
    assert bare.wo is None and bare(torch.randn(B, L, 6)).context.shape == (B, L, 6)


def test_rotary_positions_can_be_given_by_a_score():
    """A user's score of one class and one method."""

    class RotaryDot(Dot):
        def forward(self, query, key):
            tables = [t.double() for t in rotary_tables(key.shape[-1], 32)]
            return super().forward(apply_rotary(query, *tables), apply_rotary(key, *tables))

    heads = float64(MultiHead(GeneralAttention(RotaryDot()), D, H))
    layer = Attention(D, H).double().eval()
    state = heads.state_dict()
    state["wv.weight"] = state.pop("features.wv.weight")
    layer.load_state_dict(state)
    x = normal(B, L, D)
    cos, sin = (t.double() for t in rotary_tables(D // H, 32))
    close(heads(x).context, layer(x, x, x, cos, sin).output)


RELATIONAL = GeneralAttention(Dot(), message=RelationalMessage(Relation(D, 2), D // H, heads=H, d_symbol=D))


@pytest.mark.parametrize("attention", [DOT, GeneralAttention(Dot(), Sigmoid()), RELATIONAL])
@pytest.mark.parametrize("need_weights", [False, True])
def test_nan_at_padding_is_not_seen(attention, need_weights):
    x, real = torch.randn(B, S, D), torch.arange(S) < torch.tensor([[S], [3]])
    x[~real] = torch.nan
    context = MultiHead(attention, D, H)(x, value=x, padding_mask=real, need_weights=need_weights).context
    assert context[real].isfinite().all()


test_bad_heads = refused(
    (lambda: MultiHead(DOT, 7, 2), "d_model: 7"),
    (lambda: MultiHead(DOT, 8, 4, n_kv_heads=3), "n_kv_heads"),
    (lambda: MultiHead(GeneralAttention(General(4, 4, heads=3)), 8, 2), "3 heads"),
    (lambda: MultiHead(GeneralAttention(Dot(), Entmax(learned=True, heads=3)), 8, 2), "alignment has 3 heads"),
    (lambda: MultiHead(GeneralAttention(Dot(), MultiToken(3)), 8, 2), "alignment has 3 heads"),
    (lambda: MultiHead(GeneralAttention(Dot(), message=FeatureMessage(8, 2, 3)), 8, 2), "width 3, expected head_dim=4"),
    (lambda: MultiHead(RELATIONAL, 8, 2, head_dim=3), "width 4, expected head_dim=3"),
    (lambda: MultiHead(GeneralAttention(Dot(), query=LearnedQuery(2, 4)), 8, 2), "query of its own"),
    (lambda: MultiHead(GeneralAttention(KeyOnly(4)), 8, 2, gate="sigmoid"), "gate"),
    (lambda: MultiHead(DOT, 8, 2, out_proj=False, d_out=3), "d_out"),
    (lambda: Elementwise("softmax"), "softmax"),
    (lambda: MultiHead(DOT, 8, 2)(), "key"),
    (lambda: MultiHead(DOT, 8, 2)(None, X), "query"),
    (lambda: MultiHead(DOT, 8, 2)(X[..., :7], X), "query"),
    (lambda: MultiHead(DOT, 8, 2)(X[0]), "key"),
    (lambda: MultiHead(DOT, 8, 2)(X, value=X[..., :7]), "value"),
)
