"""New relational mechanisms: any score relates, any alignment selects, and where each of them runs."""

import importlib

import pytest
import torch

from dual_attention.functional import OffsetSymbols, RelativeSymbols
from dual_attention.mechanisms import (
    ActivatedGeneral,
    Additive,
    Align,
    BiasedGeneral,
    Cosine,
    Dot,
    Elementwise,
    Entmax,
    Euclidean,
    General,
    GeneralAttention,
    Hard,
    MultiHead,
    Product,
    Relation,
    RelationalMessage,
    Sigmoid,
    Softmax,
    Sparsemax,
    Trilinear,
    recipes,
)
from dual_attention.mechanisms.messages import rows_of
from dual_attention.part_trials import LargestTensor
from dual_attention.symbol_retrieval import PositionRelativeSymbolRetriever
from tests.support.combinations import sampled
from tests.support.tensors import close, float64, normal

from .space import a_mask, longer_by_two

fused_module = importlib.import_module("dual_attention.mechanisms.fused")
general_module = importlib.import_module("dual_attention.mechanisms.general")

B, N, D, H, R = 2, 5, 8, 2, 4


# Any score relates, and any alignment selects

RELATIONS = {
    "dot": Dot,
    "cosine": lambda: Cosine(2.0, learned=True, heads=R),
    "squared distance": lambda: Euclidean(squared=True, beta=0.7, learned=True, heads=R),
    "additive": lambda: Additive(2, 2, 3, heads=R),
    "distance": Euclidean,
    "general": lambda: General(2, 2, heads=R),
    "biased general": lambda: BiasedGeneral(2, 2, heads=R),
    "activated general": lambda: ActivatedGeneral(2, 2, heads=R),
    "product": lambda: Product(2, 2, 3, heads=R),
    "trilinear": lambda: Trilinear(2, heads=R),
    "features": lambda: Additive(2 * R, 2 * R, 3, d_out=R),
}
FACTORISED = ("dot", "cosine", "squared distance", "general", "biased general", "product", "trilinear")
"""Relations that are inner products, of these vectors or of others."""
OTHERS = tuple(name for name in RELATIONS if name not in FACTORISED)

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


@sampled(
    60,
    relation=RELATIONS,
    align=ALIGNMENTS,
    with_symbols=[True, True, False],
    activation=["identity", "tanh", "softmax", "identity"],
)
def test_new_relational_mechanisms(relation, align, with_symbols, activation):
    heads = float64(
        recipes.relational_heads(
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
    heads = float64(recipes.relational_heads(D, H, R, score=score(), relative_symbols=relative))
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
    heads = float64(
        recipes.relational_heads(4, 2, 2, relation=Cosine(learned=True, heads=2), align=Sparsemax(), qk_norm=True)
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
    longer = heads(x, longer_by_two(y), longer_by_two(s), padding_mask=longer_by_two(padding))
    close(longer.context, output.context)
    assert (heads(x, y[:, :0], s[:, :0]).context == 0).all()


@pytest.mark.parametrize("align", [Softmax, Sparsemax])
@pytest.mark.parametrize("activation", ["identity", "softmax"])
def test_messages_without_heads(align, activation):
    relation = Relation(D, R, activation=activation)
    attention = float64(GeneralAttention(Dot(), align(), message=RelationalMessage(relation, 3, d_symbol=D)))
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
        recipes.relational_heads(D, H, R, rel_activation=activation).double()(x, x, s)
    recipes.hadamard_attention(D, H).double()(x)
    assert seen == ["identity", "tanh", "identity"]
    for relation in (*FACTORISED, *OTHERS):
        recipes.relational_heads(D, H, R, relation=RELATIONS[relation](), rel_proj_dim=2).double()(x, x, s)
        assert len(seen) == (4 if relation in FACTORISED else 3), relation
        del seen[3:]
    recipes.relational_heads(D, H, R, align=Sparsemax()).double()(x, x, s)
    recipes.relational_heads(D, H, R, score=Additive(D // H, D // H, heads=H)).double()(x, x, s)
    assert len(seen) == 3


@pytest.mark.parametrize("relation", FACTORISED)
def test_factors_are_the_scores(relation):
    compare = float64(Relation(D, R, score=RELATIONS[relation](), proj_dim=2))
    u, w = compare.project(normal(B, N, D), normal(B, 3, D))
    q, k, scale = compare.factors(u, w)
    close(scale * torch.einsum("bnrp,bmrp->bnmr", q, k), compare.relate(u, w), atol=1e-9)
    single = float64(Relation(D, R, score=RELATIONS[relation](), proj_dim=2)).half()
    u, w = single.project(normal(B, N, D).half(), normal(B, 3, D).half())
    factors = single.factors(u, w)
    assert (factors is None) == (relation == "squared distance")
    assert factors is None or factors[0].dtype == factors[1].dtype == torch.float16


@pytest.mark.parametrize("relation", OTHERS)
def test_other_scores_have_no_factors(relation):
    compare = float64(Relation(D, R, score=RELATIONS[relation](), proj_dim=2))
    assert compare.factors(*compare.project(normal(B, N, D), normal(B, 3, D))) is None


def test_a_score_that_replaces_forward_has_no_factors_of_the_class_before():
    class Shifted(Dot):
        def forward(self, query, key):
            return super().forward(query, key) + 1.0

    class Named(Dot):
        pass

    assert not Shifted().factorises and not ActivatedGeneral(2, 2).factorises
    assert Named().factorises and BiasedGeneral(2, 2).factorises
    heads = float64(recipes.relational_heads(D, H, R, relation=Shifted()))
    x, s = normal(B, N, D), normal(B, N, D)
    close(heads(x, x, s).context, heads(x, x, s, need_weights=True).context)
    r = heads.message.relation(x)
    close(heads(x, x, s).context, by_definition(heads, x, s, None, heads(x, x, s, need_weights=True).weights))
    assert r.shape == (B, N, N, R)


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


@pytest.mark.parametrize(
    "rows", [slice(None), slice(2, 5), slice(3, None), slice(-2, None), slice(1, 6, 2), slice(4, 4), slice(2, 99)]
)
def test_symbols_of_some_receivers(rows):
    offsets = OffsetSymbols(torch.randn(5, 8), 6, 9, offset=3)
    for symbols in (offsets, RelativeSymbols(offsets.library, offsets.index)):
        some = rows_of(symbols, rows)
        assert torch.equal(some.index, offsets.index[rows]) and some.library is offsets.library


def test_the_index_of_relative_symbols_is_never_built_whole(monkeypatch):
    """For a long sequence no tensor reaches the size of all pairs, forward or backward, and nothing else changes."""
    n, heads = 96, float64(recipes.relational_heads(D, H, R, align=Sigmoid(), relative_symbols=True))
    x = normal(1, n, D).requires_grad_()
    symbols = PositionRelativeSymbolRetriever(D, 4).double()(x)
    wanted = heads(x, x, symbols).context
    (gradient,) = torch.autograd.grad(wanted.sin().sum(), x)
    monkeypatch.setattr(general_module, "LARGEST_DENSE", 0)
    monkeypatch.setattr(general_module, "BLOCK", 8)
    with LargestTensor() as largest:
        got = heads(x, x, symbols).context
        (ours,) = torch.autograd.grad(got.sin().sum(), x)
    assert largest.numel < n * n
    close(got, wanted)
    close(ours, gradient)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"relation": Cosine},
        {"relation": lambda: Euclidean(squared=True)},
        {"align": Sparsemax},
        {"align": Sparsemax, "relation": Cosine},
        {"relation": Euclidean},
        {"relation": lambda: Additive(2, 2, heads=16), "rel_activation": lambda: "relu"},
    ],
    ids=["dot", "cosine", "squared Euclidean", "sparsemax", "sparsemax of cosine", "Euclidean", "additive"],
)
def test_relations_are_never_built_whole(options, monkeypatch):
    """For a long sequence no tensor reaches the size of all relations, forward or backward."""
    n, r = 96, 16
    monkeypatch.setattr(general_module, "LARGEST_DENSE", 0)
    monkeypatch.setattr(general_module, "BLOCK", 8)
    heads = recipes.relational_heads(D, H, r, rel_proj_dim=2, **{k: v() for k, v in options.items()})
    x = torch.randn(1, n, D, requires_grad=True)
    with LargestTensor() as largest:
        heads(x, x, torch.randn(1, n, D)).context.sum().backward()
    assert largest.numel < n * n * r
    if "align" in options or options.get("relation") is Euclidean:
        assert largest.numel <= 8 * n * r * 2
