import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.functional import RelativeSymbols
from dual_attention.positional_encoding import RelativePositionalEncoding, RotaryPositionalEncoding
from dual_attention.relational_attention import (
    DisentangledRelationalCrossAttention,
    RelationalAttention,
    RelationalCrossAttention,
)
from dual_attention.symbol_retrieval import PositionRelativeSymbolRetriever, SymbolicAttention
from tests.lab.estimate.measuring import peak
from tests.support.combinations import pairwise
from tests.support.refusals import refused
from tests.support.tensors import float64, normal

LAYERS = [RelationalAttention, RelationalCrossAttention, DisentangledRelationalCrossAttention]


def by_hand(layer, x, y, s):
    """Algorithm 1, one number at a time, for one example and ungrouped heads."""
    heads, width, n_relations = layer.wr.shape
    out = torch.zeros(len(x), heads, width, dtype=torch.float64)
    for h in range(heads):
        key = slice(h * layer.key_dim, (h + 1) * layer.key_dim)
        w_q, w_k = layer.wq_attn.weight[key], layer.wk_attn.weight[key]
        w_s = layer.wv.weight[h * width : (h + 1) * width]
        for i in range(len(x)):
            scores = torch.stack([(w_q @ x[i]) @ (w_k @ y[j]) for j in range(len(y))]) / math.sqrt(layer.key_dim)
            alpha = torch.softmax(scores, dim=0)
            for j in range(len(y)):
                r = torch.zeros(n_relations, dtype=torch.float64)
                for ell in range(n_relations):
                    rows = slice(ell * layer.rel_proj_dim, (ell + 1) * layer.rel_proj_dim)
                    u, w = layer.wq_rel.weight[rows] @ x[i], layer.wk_rel.weight[rows] @ y[j]
                    r[ell] = u @ w
                    if layer.rel_score == "squared_distance":
                        r[ell] = -(u - w).square().sum() * torch.log1p(layer.raw_rel_strength[ell].exp())
                symbol = s[i, j] if layer.use_relative_positional_symbols else s[j]
                out[i, h] += alpha[j] * (layer.wr[h] @ (r / math.sqrt(layer.rel_proj_dim)) + w_s @ symbol)
    return layer.wo(out.flatten(1))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("rel_score", ["dot", "squared_distance"])
def test_is_algorithm_1_with_senders_other_than_receivers(symmetric, relative, rel_score):
    layer = float64(
        RelationalAttention(
            8,
            2,
            n_relations=3,
            rel_proj_dim=5,
            key_dim=3,
            symmetric_rels=symmetric,
            use_relative_positional_symbols=relative,
            rel_score=rel_score,
        )
    )
    if layer.raw_rel_strength is not None:
        layer.raw_rel_strength.data = normal(3)
    x, y = normal(1, 3, 8), normal(1, 4, 8)
    s = normal(3, 4, 8) if relative else normal(1, 4, 8)
    wanted = by_hand(layer, x[0], y[0], s if relative else s[0])
    torch.testing.assert_close(layer(x, s, y=y).output[0], wanted)
    torch.testing.assert_close(layer(x, s, y=y, need_weights=True).output[0], wanted)


@given(
    n_heads=st.sampled_from([1, 2, 4]),
    other_heads=st.sampled_from([0, 4]),
    options=st.fixed_dictionaries(
        {
            "n_kv_heads": st.sampled_from([None, 1]),
            "n_relations": st.sampled_from([None, 1, 3]),
            "rel_proj_dim": st.sampled_from([None, 2, 5]),
            "key_dim": st.sampled_from([None, 6]),
            "add_bias_kv": st.booleans(),
            "add_bias_out": st.booleans(),
        }
    ),
    activation=st.sampled_from(["identity", "tanh", "relu"]),
    distances=st.booleans(),
    relative=st.booleans(),
    causal=st.booleans(),
    batch_as_long_as_sequence=st.booleans(),
)
def test_output_does_not_depend_on_asking_for_maps(
    n_heads, other_heads, options, activation, distances, relative, causal, batch_as_long_as_sequence
):
    total = n_heads + other_heads
    score = "squared_distance" if distances and activation != "relu" else "dot"
    options |= {"rel_activation": activation, "rel_score": score, "use_relative_positional_symbols": relative}
    width = 16 if 16 % total == 0 else 6 * total
    layer = float64(RelationalAttention(width, n_heads, total_n_heads=total, **options))
    batch, n, d = (4 if batch_as_long_as_sequence else 2), 4, layer.d_model
    x = normal(batch, n, d)
    s = normal(n, n, d) if relative else normal(batch, n, d)
    fast = layer(x, s, is_causal=causal)
    full = layer(x, s, is_causal=causal, need_weights=True)
    assert fast.weights is None and fast.relations is None
    torch.testing.assert_close(fast.output, full.output)
    assert full.output.shape == (batch, n, n_heads * layer.head_dim)
    assert full.weights.shape == (batch, n_heads, n, n) and full.relations.shape == (batch, n, n, layer.n_relations)
    torch.testing.assert_close(full.weights.sum(-1), torch.ones(batch, n_heads, n, dtype=torch.float64))
    torch.testing.assert_close(full.relations, layer.relations(x))


OPTIONS = {
    "symbols": ["shared", "offsets", "pairs"],
    "rel_activation": ["identity", "softmax", "tanh"],
    "window": [None, 2, 4],
    "is_causal": [True, False],
    "symmetric_rels": [False, True],
    "rel_score": ["dot", "squared_distance"],
    "n_kv_heads": [None, 1],
    "shaw_max_rel_pos": [None, 1],
}


@pytest.mark.parametrize("options", pairwise(OPTIONS), ids=str)
def test_packed_behind_padding_and_step_by_step_is_each_sequence_alone(options):
    """With every pair of options."""
    options = dict(options)
    symbols, is_causal = options.pop("symbols"), options.pop("is_causal")
    layer = float64(RelationalAttention(8, 2, use_relative_positional_symbols=symbols != "shared", **options))
    retriever = float64(SymbolicAttention(8, 2, 5) if symbols == "shared" else PositionRelativeSymbolRetriever(8, 1))

    def run(x, caches=(None, None), **masks):
        names = retriever(x, cache=caches[0])
        names = names.dense() if symbols == "pairs" else names
        return layer(x, names, is_causal=is_causal, cache=caches[1], **masks).output

    x, real = normal(2, 9, 8), torch.arange(9) >= torch.tensor([[2], [0]])
    segments = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1, 1]])
    together = run(x, padding_mask=real, segments=segments)
    for row, places in ((0, slice(2, 4)), (0, slice(4, 9)), (1, slice(0, 3)), (1, slice(3, 9))):
        part = x[row : row + 1, places]
        alone = run(part)
        torch.testing.assert_close(together[row : row + 1, places], alone)
        if is_causal:
            caches = retriever.new_cache(), layer.new_cache()
            with torch.no_grad():
                steps = [run(chunk, caches) for chunk in part.split(2, dim=1)]
            torch.testing.assert_close(torch.cat(steps, dim=1), alone)


def test_symmetric_relations_are_symmetric_and_share_one_projection():
    layer = float64(RelationalAttention(8, 2, symmetric_rels=True))
    r = layer.relations(normal(2, 5, 8))
    torch.testing.assert_close(r, r.transpose(1, 2))
    assert layer.wk_rel is layer.wq_rel
    assert {"wq_rel.weight", "wk_rel.weight"} <= set(layer.state_dict())
    free = float64(RelationalAttention(8, 2)).relations(normal(2, 5, 8))
    assert not torch.allclose(free, free.transpose(1, 2))


def projected(linear, call):
    """Shapes of what passes through a projection during a call."""
    shapes = []
    hook = linear.register_forward_hook(lambda _, inputs, __: shapes.append(tuple(inputs[0].shape)))
    call()
    hook.remove()
    return shapes


def test_symmetric_relations_of_self_attention_are_projected_once():
    layer = float64(RelationalAttention(8, 2, symmetric_rels=True))
    x, y, symbols = normal(3, 5, 8), normal(3, 5, 8), normal(3, 5, 8)
    assert projected(layer.wq_rel, lambda: layer(x, symbols)) == [(3, 5, 8)]
    assert projected(layer.wq_rel, lambda: layer(x, symbols, y=y)) == [(3, 5, 8), (3, 5, 8)]
    torch.testing.assert_close(layer(x, symbols).output, layer(x, symbols, y=x.clone()).output)


@pytest.mark.parametrize("layer", [kind(8, 2, n_kv_heads=1) for kind in LAYERS])
def test_symbols_that_examples_share_are_projected_once(layer):
    layer, x, symbols = float64(layer), normal(3, 5, 8), normal(1, 5, 8)
    assert projected(layer.wv, lambda: layer(x, symbols.expand(3, 5, 8))) == [(1, 5, 8)]
    symbols.requires_grad_()
    assert projected(layer.wv, lambda: layer(x, symbols)) == [(1, 5, 8)]
    once, each = layer(x, symbols)[0], layer(x, symbols.repeat(3, 1, 1))[0]
    torch.testing.assert_close(once, each)
    of_once, of_each = (torch.autograd.grad(out.square().sum(), symbols)[0] for out in (once, each))
    torch.testing.assert_close(of_once, of_each)


@pytest.mark.parametrize("layer", [kind(8, 2, n_kv_heads=1) for kind in LAYERS])
def test_gradients_of_symbols_are_those_of_each_example(layer):
    """Also where the symbols of all examples lie in the same memory."""
    layer, x, symbols = float64(layer), normal(3, 5, 8), normal(1, 5, 8)
    found = []
    for same in (symbols.expand(3, 5, 8), symbols.repeat(3, 1, 1)):
        leaf = same.detach().requires_grad_()
        (of_leaf,) = torch.autograd.grad(layer(x, leaf)[0].square().sum(), leaf)
        found.append((of_leaf, torch.func.grad(lambda s: layer(x, s)[0].square().sum())(same)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("symmetric, n_relations", [(False, 2), (True, 7)])
def test_relation_width_needs_no_product_constraint(symmetric, n_relations):
    """The published runs with one relation of width d_model could not be built by the published package."""
    layer = RelationalAttention(
        128, 1, n_relations=n_relations, rel_proj_dim=128, total_n_heads=2, symmetric_rels=symmetric
    )
    assert layer.wq_rel.weight.shape == (n_relations * 128, 128)
    assert layer(torch.randn(1, 3, 128), torch.randn(1, 3, 128)).output.shape == (1, 3, 64)


@pytest.mark.parametrize("wr_init, bound", [("published", 1 / math.sqrt(16 * 4)), ("large", 1 / math.sqrt(4))])
def test_initial_scale_of_w_r(wr_init, bound):
    layer = RelationalAttention(64, 4, n_relations=4, wr_init=wr_init)
    assert 0.9 * bound < layer.wr.abs().max() <= bound
    torch.testing.assert_close(layer.wr.std(), torch.tensor(bound / math.sqrt(3)), rtol=0.2, atol=0)


@pytest.mark.parametrize("cls", LAYERS)
def test_rope_turns_the_attention_not_the_relations(cls):
    layer = float64(cls(8, 2))
    x, s = normal(2, 5, 8), normal(2, 5, 8)
    tables = RotaryPositionalEncoding(4, 5).tables(5)
    plain, turned = layer(x, s, need_weights=True), layer(x, s, *tables, need_weights=True)
    assert not torch.allclose(plain[1], turned[1])
    if len(plain) == 3:
        assert torch.equal(plain[2], turned[2])


def test_shaw_positions_change_the_attention():
    layer = float64(RelationalAttention(8, 2, shaw_max_rel_pos=2))
    x = normal(1, 4, 8)
    q, k = layer.wq_attn(x).unflatten(-1, (2, 4)), layer.wk_attn(x).unflatten(-1, (2, 4))
    keys = k[:, None] + layer.rel_pos_keys(4)[None, :, :, None]
    wanted = torch.softmax(torch.einsum("bnhd,bnmhd->bhnm", q, keys) / 2.0, dim=-1)
    torch.testing.assert_close(layer(x, normal(1, 4, 8), need_weights=True).weights, wanted)


@pytest.mark.parametrize("activation", ["softmax", "identity", "relu", "sigmoid"])
def test_rca_by_hand(activation):
    layer = float64(RelationalCrossAttention(8, 2, activation=activation))
    x, s = normal(2, 4, 8), normal(2, 4, 8)
    q, k, v = (w(z).unflatten(-1, (2, 4)) for w, z in ((layer.wq, x), (layer.wk, x), (layer.wv, s)))
    scores = torch.einsum("bnhd,bmhd->bhnm", q, k) / 2.0
    allowed = torch.ones(4, 4, dtype=torch.bool).tril()
    if activation == "softmax":
        weights = torch.softmax(scores.masked_fill(~allowed, -torch.inf), dim=-1)
    else:
        functions = {"identity": lambda t: t, "relu": torch.relu, "sigmoid": torch.sigmoid}
        weights = functions[activation](scores) * allowed
    out, returned = layer(x, s, is_causal=True, need_weights=True)
    torch.testing.assert_close(returned, weights)
    torch.testing.assert_close(out, layer.wo(torch.einsum("bhnm,bmhd->bnhd", weights, v).flatten(2)))
    assert layer(x, s).weights is None


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_disentangled_rca_by_hand_with_grouped_heads(n_kv_heads):
    layer = float64(DisentangledRelationalCrossAttention(16, 4, n_kv_heads=n_kv_heads, rel_activation="tanh"))
    x, y, s = normal(2, 3, 16), normal(2, 5, 16), normal(2, 5, 16)

    def heads(projected):
        split = projected.unflatten(-1, (-1, 4))
        return split.repeat_interleave(4 // split.shape[2], dim=2)

    alpha = torch.softmax(torch.einsum("bnhd,bmhd->bhnm", heads(layer.wq_attn(x)), heads(layer.wk_attn(y))) / 2, -1)
    r = torch.tanh(torch.einsum("bnhd,bmhd->bhnm", heads(layer.wq_rel(x)), heads(layer.wk_rel(y))) / 2)
    out, weights, relations = layer(x, s, y=y, need_weights=True)
    torch.testing.assert_close(weights, alpha)
    torch.testing.assert_close(relations, r)
    attended = torch.einsum("bhnm,bmhd->bnhd", alpha * r, heads(layer.wv(s)))
    torch.testing.assert_close(out, layer.wo(attended.flatten(2)))


@pytest.mark.parametrize("cls", LAYERS)
def test_kinds_of_symbols_are_never_guessed_from_a_shape(cls):
    """With as many examples as senders the shapes of the two kinds agree: only the argument tells them apart."""
    x, s = normal(4, 4, 8), normal(4, 4, 8)
    shared, relative = float64(cls(8, 2)), float64(cls(8, 2, use_relative_positional_symbols=True))
    relative.load_state_dict(shared.state_dict())
    assert not torch.allclose(shared(x, s)[0], relative(x, s)[0])
    torch.testing.assert_close(relative(x, s)[0], relative(x, RelativeSymbols.from_dense(s))[0])


def relative(cls):
    return cls(8, 2, use_relative_positional_symbols=True)


# Other bad inputs are those of test_bad_inputs
test_bad_input = pytest.mark.parametrize("cls", LAYERS)(refused(
    (lambda cls, x: cls(8, 2)(x, x, y=x[:1]), r"y: .*got \(1, 3, 8\)"),
    (lambda cls, x: cls(8, 2)(x, RelativeSymbols.from_dense(x)), TypeError, "use_relative_positional_symbols=True"),
    (lambda cls, x: relative(cls)(x, torch.zeros(2, 4, 8)), r"symbols: expected relative ones \(N, M, d\)"),
    by=lambda call, *, cls: call(cls, torch.zeros(3, 3, 8)),
))  # fmt: skip


test_bad_constructions_are_refused = refused(
    ({"n_relations": 100}, "rel_proj_dim"),
    ({"rel_activation": "swish"}, "activation: .*'swish'"),
    ({"wr_init": "huge"}, "wr_init: .*'huge'"),
    ({"rel_score": "squared_distance", "rel_activation": "relu"}, "rel_activation: .*negative.*got 'relu'"),
    ({"rel_score": "cosine"}, "rel_score: expected 'dot' or 'squared_distance', got 'cosine'"),
    ({"n_kv_heads": 3}, "n_kv_heads: .*3"),
    by=lambda arguments: RelationalAttention(8, 2, **arguments),
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_low_precision_is_near_float64(dtype, autocast):
    layer = RelationalAttention(16, 4, n_relations=2).eval()
    x, s = torch.randn(2, 6, 16), torch.randn(2, 6, 16)
    exact = float64(layer)
    wanted = exact(x.double(), s.double(), is_causal=True).output
    if autocast:
        layer = layer.float()
        with torch.autocast("cpu", dtype=dtype):
            out = layer(x, s, is_causal=True).output
    else:
        out = layer.to(dtype)(x.to(dtype), s.to(dtype), is_causal=True).output
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), wanted, atol=0.05, rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("relative", [False, True])
def test_compiles_as_one_graph(relative):
    layer = RelationalAttention(8, 2, n_relations=3, use_relative_positional_symbols=relative).eval()
    x, s = torch.randn(2, 4, 8), torch.randn(4, 4, 8) if relative else torch.randn(2, 4, 8)
    compiled = torch.compile(lambda x, s: layer(x, s, is_causal=True).output, fullgraph=True)
    torch.testing.assert_close(compiled(x, s), layer(x, s, is_causal=True).output)


def test_exports():
    layer = RelationalAttention(8, 2).eval()
    x, s = torch.randn(2, 4, 8), torch.randn(2, 4, 8)
    exported = torch.export.export(layer, (x, s), {"is_causal": True})
    torch.testing.assert_close(exported.module()(x, s, is_causal=True)[0], layer(x, s, is_causal=True)[0])


@pytest.mark.parametrize("symbols", ["shared", "relative"])
@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_long_sequences_take_the_linear_path_to_the_same_output(symbols, activation):
    relative = symbols == "relative"
    layer = float64(
        RelationalAttention(8, 2, rel_activation=activation, use_relative_positional_symbols=relative, n_kv_heads=1)
    )
    n = 300  # more pairs than the dense path takes by itself
    x, s = normal(1, n, 8), normal(1, n, 8)
    if relative:
        table = RelativePositionalEncoding(8, 20).double()
        s = RelativeSymbols(table.rel_pos_embeddings, table.index(n))
    fast, full = layer(x, s, is_causal=True), layer(x, s, is_causal=True, need_weights=True)
    torch.testing.assert_close(fast.output, full.output)
    parameters, cotangent = list(layer.parameters()), normal(1, n, 8)
    gradients = [torch.autograd.grad(out, parameters, cotangent) for out in (fast.output, full.output)]
    torch.testing.assert_close(*gradients)


@pytest.mark.slow
def test_long_sequences_compile_as_one_graph_and_export():
    layer = RelationalAttention(8, 2, n_relations=3).eval()
    x, s = torch.randn(1, 300, 8), torch.randn(1, 300, 8)
    wanted = layer(x, s, is_causal=True).output
    compiled = torch.compile(lambda x, s: layer(x, s, is_causal=True).output, fullgraph=True)
    out = compiled(x, s)
    torch.testing.assert_close(out, wanted)
    out.sum().backward()
    exported = torch.export.export(layer, (x, s), {"is_causal": True})
    torch.testing.assert_close(exported.module()(x, s, is_causal=True)[0], wanted)


@pytest.mark.parametrize("relative", [False, True])
def test_long_sequences_build_neither_weights_nor_relations(relative: bool):
    """By default, forward and backward, workspace included: less than the weights of all pairs would take."""
    n, heads, relations = 1500, 8, 8
    layer = RelationalAttention(16, heads, relations, use_relative_positional_symbols=relative)
    x = torch.randn(1, n, 16, requires_grad=True)
    symbols = PositionRelativeSymbolRetriever(16, 20)(x) if relative else torch.randn(1, n, 16)
    taken = peak(lambda: layer(x, symbols).output.sum().backward())
    assert taken < 4 * heads * n * n / 2
    with torch.no_grad():
        maps = peak(lambda: layer(x, symbols, need_weights=True))
    assert maps > 4 * (heads + relations) * n * n  # what is measured
