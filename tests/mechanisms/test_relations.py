"""The join: self-attention, relational cross-attention and relational attention as compositions, and new ones."""

import importlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dual_attention.functional import RelativeSymbols
from dual_attention.mechanisms import (
    Additive,
    Align,
    Cosine,
    Dot,
    Elementwise,
    Entmax,
    Euclidean,
    General,
    GeneralAttention,
    Hard,
    KeyOnly,
    MultiHead,
    Relation,
    RelationalMessage,
    Sigmoid,
    Softmax,
    Sparsemax,
    Trilinear,
    recipes,
)
from dual_attention.relational_attention import RelationalAttention, RelationalCrossAttention
from dual_attention.symbol_retrieval import PositionRelativeSymbolRetriever, SymbolicAttention

from .space import prepared

fused_module = importlib.import_module("dual_attention.mechanisms.fused")
general_module = importlib.import_module("dual_attention.mechanisms.general")

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


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


def copy_layer(layer, ours):
    """The weights of the library's layer in a composition."""
    state = layer.state_dict()
    ours.double().eval().load_state_dict({mine: state[theirs] for mine, theirs in NAMES.items()}, strict=True)


def a_mask(n=N, m=N):
    mask = torch.rand(B, 1, n, m) < 0.7
    mask[0, :, 1] = False
    return mask


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
    layer = prepared(
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
    ours = recipes.relational_attention(
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
    layer = prepared(RelationalCrossAttention(D, H, activation=activation, use_relative_positional_symbols=relative))
    ours = recipes.relational_cross_attention(D, H, activation).double().eval()
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


def test_relational_attention_without_relations_is_relational_cross_attention():
    ra, rca = prepared(recipes.relational_attention(D, H, R)), recipes.relational_cross_attention(D, H).double()
    torch.nn.init.zeros_(ra.message.wr)
    state = ra.state_dict()
    shared = {name: state[name] for name in ("wq.weight", "wk.weight", "wo.weight")}
    rca.load_state_dict({**shared, "features.wv.weight": state["attention.message.wv.weight"]})
    x, s, mask = normal(B, N, D), normal(B, N, D), a_mask()
    close(ra(x, x, s, attn_mask=mask).context, rca(x, x, s, attn_mask=mask).context)
    sa = recipes.self_attention(D, H).double()
    sa.load_state_dict(rca.state_dict())
    close(rca(x, x, x, attn_mask=mask).context, sa(x, attn_mask=mask).context)


def test_symbolic_attention_is_attention_to_a_library():
    layer = prepared(SymbolicAttention(D, H, 6))
    attention = GeneralAttention(Dot())
    x = normal(B, N, D)
    q, k, v = (
        t.unflatten(-1, (H, -1)).transpose(-2, -3)
        for t in (layer.q_proj(x), layer.template_features, layer.symbol_library)
    )
    close(attention(q, k, v).context.transpose(1, 2).flatten(2), layer(x))


# Any score relates, and any alignment selects

RELATIONS = {
    "dot": Dot,
    "cosine": lambda: Cosine(2.0, learned=True, heads=R),
    "euclidean": lambda: Euclidean(squared=True),
    "additive": lambda: Additive(2, 2, 3, heads=R),
    "general": lambda: General(2, 2, heads=R),
    "trilinear": lambda: Trilinear(2, heads=R),
    "features": lambda: Additive(2 * R, 2 * R, 3, d_out=R),
}
ALIGNMENTS: dict[str, type[Align] | object] = {
    "softmax": Softmax,
    "sparsemax": Sparsemax,
    "entmax": Entmax,
    "sigmoid": Sigmoid,
    "tanh": lambda: Elementwise("tanh"),
    "hard": Hard,
}


def by_definition(heads, x, symbols, mask, weights):
    """sum_j alpha_ij (W_r r_ij + W_s s_j), with every tensor built."""
    message = heads.message
    r = message.relation(x, mask=mask)
    carried = torch.einsum("bnmr,hdr->bhnmd", r, message.wr)
    if symbols is not None:
        carried = carried + message.wv(symbols).unflatten(-1, (H, -1)).transpose(1, 2)[:, :, None]
    weights = weights if weights.dim() == 5 else weights[..., None]
    return heads.wo((weights * carried).sum(-2).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("activation", ["identity", "tanh", "softmax"])
@pytest.mark.parametrize("with_symbols", [True, False])
@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_new_relational_mechanisms(relation, align, with_symbols, activation):
    heads = prepared(
        recipes.relational_attention(
            D,
            H,
            R,
            relation=RELATIONS[relation](),
            align=ALIGNMENTS[align](),
            rel_proj_dim=2,
            rel_activation=activation,
            symbols=with_symbols,
        )
    )
    x = normal(B, N, D).requires_grad_()
    symbols = normal(B, N, D) if with_symbols else None
    mask = a_mask()
    output = heads(x, x, symbols, attn_mask=mask, need_weights=True)
    close(output.context, by_definition(heads, x, symbols, mask, output.weights))
    assert (output.context[0, 1] == 0).all() and (output.weights[~mask.expand(-1, H, -1, -1)] == 0).all()
    fast = heads(x, x, symbols, attn_mask=mask)
    close(fast.context, output.context)
    cotangent = normal(B, N, D)
    inputs = [x, *heads.parameters()]
    wanted = torch.autograd.grad(output.context, inputs, cotangent, allow_unused=True)
    assert all(g is None or g.isfinite().all() for g in wanted)
    heads.attention.block = 2
    blocks = torch.autograd.grad(heads(x, x, symbols, attn_mask=mask).context, inputs, cotangent, allow_unused=True)
    for a, b in zip(blocks, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b, atol=1e-11)


@pytest.mark.parametrize(
    "score", [lambda: Additive(D // H, D // H, 3, heads=H), lambda: Additive(D // H, D // H, d_out=D // H, heads=H)]
)
@pytest.mark.parametrize("relative", [False, True])
def test_any_score_selects(score, relative):
    heads = prepared(recipes.relational_attention(D, H, R, score=score(), relative_symbols=relative))
    x = normal(B, N, D)
    symbols = RelativeSymbols.from_dense(normal(N, N, D)) if relative else normal(1, N, D)
    mask = a_mask()
    output = heads(x, x, symbols, attn_mask=mask, need_weights=True)
    assert output.weights.dim() == (5 if heads.attention.score.multidim else 4)
    if not relative:
        close(output.context, by_definition(heads, x, symbols, None, output.weights))
    else:
        carried = heads.message(x, x, symbols).dense()
        weights = output.weights if output.weights.dim() == 5 else output.weights[..., None]
        close(output.context, heads.wo((weights * carried).sum(-2).transpose(1, 2).flatten(2)))
    heads.attention.block = 2
    close(heads(x, x, symbols, attn_mask=mask).context, output.context)


def test_gradients_of_a_new_mechanism():
    heads = prepared(
        recipes.relational_attention(4, 2, 2, relation=Cosine(learned=True, heads=2), align=Sparsemax(), qk_norm=True)
    )
    x, s = normal(1, 3, 4).requires_grad_(), normal(1, 3, 4).requires_grad_()
    mask = torch.tensor([[[[True, True, False], [False] * 3, [True] * 3]]])
    assert torch.autograd.gradcheck(lambda x, s: heads(x, x, s, attn_mask=mask).context, (x, s))


def test_senders_of_another_width():
    relation = Relation(D, R, d_sender=6)
    message = RelationalMessage(relation, D // H, heads=H, d_symbol=3)
    heads = MultiHead(GeneralAttention(Dot(), message=message), D, H, d_key=6).double()
    x, y, s = normal(B, N, D), normal(B, 3, 6), normal(B, 3, 3)
    padding = torch.rand(B, 3) < 0.7
    output = heads(x, y, s, padding_mask=padding)
    assert output.context.shape == (B, N, D)
    longer = heads(
        x,
        torch.cat([y, normal(B, 2, 6)], 1),
        torch.cat([s, normal(B, 2, 3)], 1),
        padding_mask=torch.cat([padding, torch.zeros(B, 2, dtype=torch.bool)], 1),
    )
    close(longer.context, output.context)
    assert (heads(x, y[:, :0], s[:, :0]).context == 0).all()


@pytest.mark.parametrize("align", [Softmax, Sparsemax])
@pytest.mark.parametrize("activation", ["identity", "softmax"])
def test_messages_without_heads(align, activation):
    relation = Relation(D, R, activation=activation)
    attention = prepared(GeneralAttention(Dot(), align(), message=RelationalMessage(relation, 3, d_symbol=D)))
    x, s = normal(B, N, D), normal(B, N, D)
    mask = a_mask()[:, 0]
    output = attention(x, x, s, attn_mask=mask, need_weights=True)
    message = attention.message
    carried = torch.einsum("bnmr,dr->bnmd", relation(x, mask=mask[:, None]), message.wr[0]) + message.wv(s)[:, None]
    close(output.context, (output.weights[..., None] * carried).sum(-2))
    close(attention(x, x, s, attn_mask=mask).context, output.context)
    attention.block = 2
    close(attention(x, x, s, attn_mask=mask).context, output.context)


# Where it runs


def test_the_fast_path_is_taken_where_the_mathematics_allows(monkeypatch):
    seen = []
    operation = fused_module.relational_attention

    def watch(*arguments, **options):
        seen.append(options.get("rel_activation"))
        return operation(*arguments, **options)

    monkeypatch.setattr(fused_module, "relational_attention", watch)
    x, s = normal(B, N, D), normal(B, N, D)
    for activation in ("identity", "tanh"):
        recipes.relational_attention(D, H, R, rel_activation=activation).double()(x, x, s)
    recipes.hadamard_attention(D, H).double()(x)
    assert seen == ["identity", "tanh", "identity"]
    recipes.relational_attention(D, H, R, align=Sparsemax()).double()(x, x, s)
    recipes.relational_attention(D, H, R, relation=Cosine()).double()(x, x, s)
    assert len(seen) == 3


def test_masks_reach_the_operation_in_parts(monkeypatch):
    """As fused kernels want them, which read no tensor of pairs."""
    seen = []
    operation = fused_module.relational_attention

    def watch(*arguments, mask, **options):
        seen.append(mask)
        return operation(*arguments, mask=mask, **options)

    monkeypatch.setattr(fused_module, "relational_attention", watch)
    x, padding = normal(B, N, D), torch.rand(B, N) < 0.7
    recipes.hadamard_attention(D, H).double()(x, padding_mask=padding, is_causal=True)
    assert seen[0].attn_mask is None and seen[0].causal and seen[0].padding is padding


@pytest.mark.parametrize("options", [{}, {"align": Sparsemax}, {"relation": Cosine}])
def test_relations_are_never_built_whole(options, monkeypatch):
    """For a long sequence no tensor reaches the size of all relations, forward or backward."""
    n, r = 96, 16
    monkeypatch.setattr(general_module, "LARGEST_DENSE", 0)
    monkeypatch.setattr(general_module, "BLOCK", 8)
    heads = recipes.relational_attention(D, H, r, rel_proj_dim=2, **{k: v() for k, v in options.items()})
    x = torch.randn(1, n, D, requires_grad=True)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                largest = max(largest, result.numel())
            return result

    with Watch():
        heads(x, x, torch.randn(1, n, D)).context.sum().backward()
    assert largest < n * n * r
    if options:
        assert largest <= 8 * n * r * 2


# Hadamard relations, and the gate that is their control


def test_hadamard_relations_are_products_of_features():
    relation = prepared(Relation(D, 6, proj_dim=1))
    x, y = normal(B, N, D), normal(B, 3, D)
    close(relation(x, y), relation.wq(x)[:, :, None] * relation.wk(y)[:, None])


def test_hadamard_attention_without_symbols_is_linearly_gated_attention():
    hadamard = prepared(recipes.hadamard_attention(D, 1, D))
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
    with_none = prepared(recipes.relational_attention(D, H, R, symbols=False))
    with_zero = recipes.relational_attention(D, H, R).double()
    state = with_none.state_dict()
    with_zero.load_state_dict({**state, "attention.message.wv.weight": torch.zeros(D, D)})
    x = normal(B, N, D)
    close(with_none(x).context, with_zero(x, x, normal(B, N, D)).context)
    with pytest.raises(ValueError, match="no symbols"):
        with_none(x, x, normal(B, N, D))
    with pytest.raises(ValueError, match="symbols"):
        with_zero(x)


def test_qk_norm_of_relations():
    relation = prepared(Relation(D, R, qk_norm=True))
    x = normal(B, N, D)
    close(relation(10 * x), relation(x), atol=1e-9)
    with pytest.raises(ValueError, match="qk_norm"):
        Relation(D, R, proj_dim=1, qk_norm=True)
    assert recipes.relational_attention(D, H, R, qk_norm=True)(x.float(), value=x.float()).context.shape == (B, N, D)


def test_symmetric_relations():
    for score in (Dot(), Cosine(), Euclidean()):
        r = prepared(Relation(D, R, score=score, symmetric=True))(normal(B, N, D))
        close(r, r.transpose(1, 2), atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"align": Sparsemax}, {"relation": Cosine}])
def test_low_precision(dtype, options):
    heads = recipes.relational_attention(D, H, R, **{k: v() for k, v in options.items()}).to(dtype)
    x, s = torch.randn(B, N, D).to(dtype), torch.randn(B, N, D).to(dtype)
    got = heads(x, x, s).context
    assert got.dtype == dtype
    wanted = heads.double()(x.double(), x.double(), s.double()).context
    close(got.double(), wanted, atol=5e-2)


def test_autocast():
    for options in ({}, {"align": Sparsemax()}, {"relation": Cosine()}, {"symbols": False}):
        heads = recipes.relational_attention(D, H, R, **options)
        x = torch.randn(B, N, D)
        symbols = None if "symbols" in options else x
        wanted = heads(x, x, symbols).context
        with torch.autocast("cpu", torch.bfloat16):
            got = heads(x, x, symbols).context
        close(got.float(), wanted, atol=5e-2)


def test_bad_relations():
    x = torch.randn(B, N, D)
    with pytest.raises(ValueError, match=r"heads=n_relations=4"):
        Relation(D, R, score=General(2, 2, heads=3))
    with pytest.raises(ValueError, match="score"):
        Relation(D, R, score=KeyOnly(2))
    with pytest.raises(ValueError, match="expected 4 relations, got 3"):
        Relation(D, R, score=Additive(D, D, d_out=3))(x)
    with pytest.raises(ValueError, match="activation"):
        Relation(D, R, activation="cosine")
    with pytest.raises(ValueError, match="symmetric"):
        Relation(D, R, d_sender=3, symmetric=True)
    with pytest.raises(ValueError, match="key: expected shape"):
        Relation(D, R)(x, x[..., :3])
    with pytest.raises(ValueError, match="n_kv_heads"):
        RelationalMessage(Relation(D, R), 4, heads=4, n_kv_heads=3)
    with pytest.raises(ValueError, match="relative"):
        RelationalMessage(Relation(D, R), 4, heads=4, relative=True)
    with pytest.raises(ValueError, match="its message has None heads"):
        MultiHead(GeneralAttention(Dot(), message=RelationalMessage(Relation(D, R), 4)), D, H)
    heads = recipes.relational_attention(D, H, R)
    with pytest.raises(ValueError, match="symbols"):
        heads(x, x, x[:, :2])
    with pytest.raises(TypeError, match="relative"):
        heads(x, x, RelativeSymbols.from_dense(torch.randn(N, N, D)))
    softmax = recipes.relational_attention(D, H, R, rel_activation="softmax")
    per_head = torch.ones(B, H, N, N, dtype=torch.bool)
    with pytest.raises(ValueError, match="shared by all heads"):
        softmax(x, x, x, attn_mask=per_head, need_weights=True)
