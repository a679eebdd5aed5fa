"""Long vectors in float16: their product overflows, their scaled product does not."""

import copy
import itertools
import math

import pytest
import torch

from dual_attention import functional
from dual_attention.attention import Attention
from dual_attention.baselines import ESBN
from dual_attention.functional.relational.head_products import add_head_products
from dual_attention.mechanisms import Dot, General, GeneralAttention, Relation, Sparsemax
from dual_attention.symbol_retrieval import RelationalSymbolicAttention

B, N, M, WIDTH = 2, 5, 6, 128
SCALE = 1 / math.sqrt(WIDTH)


def large(*shape):
    """Numbers near 30: the product of two such vectors is near 115,000, where float16 ends at 65,504."""
    x = 30 + torch.rand(*shape, generator=torch.Generator().manual_seed(0))
    return x.half().requires_grad_()


def small(*shape):
    return (1e-3 * torch.rand(*shape, generator=torch.Generator().manual_seed(1))).half().requires_grad_()


def assert_finite(results, inputs):
    results = [x for x in results if x is not None]
    assert all(x.isfinite().all() for x in results)
    loss = 1e-2 * results[0].float().sum()  # the gradient of W_r adds relations, each some 10,000, up
    for grad in torch.autograd.grad(loss, inputs, allow_unused=True):
        assert grad is None or grad.isfinite().all()


def test_the_product_overflows():
    q, k = large(1, WIDTH), large(1, WIDTH)
    assert (q @ k.T).isinf().all()
    wanted = SCALE * (q.double() @ k.double().T)
    torch.testing.assert_close(functional.reference.inner_products(q, k, SCALE).double(), wanted, rtol=2e-3, atol=0)
    assert functional.reference.inner_products(100 * q, k / 100, 1e3).isinf().all()  # as it should be
    q = torch.tensor([[4e4]], dtype=torch.float16)
    assert functional.reference.inner_products(q, 1e-4 * torch.ones_like(q), 8.0).isfinite().all()


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(need_weights, causal):
    q, k, v = large(B, 2, N, WIDTH), large(B, 1, N, WIDTH), large(B, 1, N, 4)
    mask = torch.ones(1, 1, N, N, dtype=torch.bool).tril() if causal else None
    assert_finite(functional.attention(q, k, v, scale=SCALE, mask=mask, need_weights=need_weights), (q, k, v))


@pytest.mark.parametrize(
    ("impl", "activation"),
    [
        *itertools.product(["reference", "dense", "linear", "blockwise"], ["identity", "tanh", "softmax"]),
        ("sdpa", "identity"),  # SDPA takes no activated relations
    ],
)
def test_relational_attention(impl, activation):
    heads = large(B, 2, N, WIDTH), large(B, 2, M, WIDTH)
    inputs = (*heads, large(B, N, 3, WIDTH), large(B, M, 3, WIDTH), small(B, 2, M, 4), small(2, 4, 3))
    how = {"scale": SCALE, "rel_scale": SCALE, "rel_activation": activation, "impl": impl}
    for need_weights in {False, impl in ("reference", "dense")}:
        assert_finite(functional.relational_attention(*inputs, **how, need_weights=need_weights), inputs)


@pytest.mark.parametrize("activation", ["softmax", "relu", "tanh"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_relational_cross_attention(activation, need_weights):
    q, k, symbols = large(B, 2, N, WIDTH), large(B, 2, M, WIDTH), small(B, 2, M, 4)
    how = {"scale": SCALE, "need_weights": need_weights}
    inputs = (q, k, symbols)
    assert_finite(functional.relational_cross_attention(*inputs, activation=activation, **how), inputs)
    inputs = (q, k, q, k, symbols)
    assert_finite(functional.disentangled_relational_cross_attention(*inputs, rel_activation=activation, **how), inputs)


@pytest.mark.parametrize("heads", [2, 16])
@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_relations_beyond_float16(heads, activation):
    """A relation may lie beyond if its mean over senders does not. All implementations sum such relations alike."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(B, heads, 60, 8)] * 2 + [(B, 60, 3, 16)] * 2 + [(B, heads, 60, 8), (heads, 8, 3)]
    sizes = 1.0, 1.0, 120.0, 120.0, 1.0, 1e-3
    leaves = [(a * torch.randn(s, generator=generator)).half() for a, s in zip(sizes, shapes, strict=True)]
    how = {"scale": 0.3, "rel_scale": 1.0, "rel_activation": activation}
    exact = [x.double().requires_grad_() for x in leaves]
    r = functional.reference.relations(exact[2], exact[3], scale=1.0)
    assert (r.abs() > 65_504).double().mean() > 0.1
    wanted = functional.relational_attention(*exact, **how, impl="reference").output
    wanted = [wanted, *torch.autograd.grad(wanted.sum(), exact)]
    impls = ["reference", "dense", "linear", "blockwise"] + ["sdpa"] * (activation == "identity")
    for impl in impls:
        low = [x.clone().requires_grad_() for x in leaves]
        out = functional.relational_attention(*low, **how, impl=impl).output
        for ours, theirs in zip([out, *torch.autograd.grad(out.sum(), low)], wanted, strict=True):
            error = (ours.double() - theirs).abs().max() / theirs.abs().max()
            assert error < 2e-2 or theirs.abs().max() > 65_504, impl


def scored_beyond_float16():
    """Queries and keys whose scores, some 110,000 under a scale of 0.35, lie apart by many units."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.full((B, 2, N, 8), 200.0), 200 - torch.randint(4, (B, 2, M, 8), generator=generator)
    return q.half(), k.half()


ATTENDING = {
    **{
        f"{impl} {activation}": lambda q, k, u, w, s, w_r, impl=impl, activation=activation: (
            functional.relational_attention(
                q, k, u, w, s, w_r, scale=0.35, rel_scale=0.5, impl=impl, rel_activation=activation
            ).output
        )
        for impl, activation in itertools.product(
            ["reference", "dense", "linear", "blockwise", "auto"], ["identity", "softmax"]
        )
    },
    "sdpa": lambda q, k, u, w, s, w_r: (
        functional.relational_attention(q, k, u, w, s, w_r, scale=0.35, rel_scale=0.5, impl="sdpa").output
    ),
    "attention": lambda q, k, u, w, s, w_r: functional.attention(q, k, s, scale=0.35)[0],
    "weights": lambda q, k, u, w, s, w_r: functional.attention(q, k, s, scale=0.35, need_weights=True)[1],
    "relations": lambda q, k, u, w, s, w_r: functional.reference.relations(
        q.transpose(1, 2), k.transpose(1, 2), scale=0.35, activation="softmax"
    ),
    "rca": lambda q, k, u, w, s, w_r: functional.relational_cross_attention(q, k, s, scale=0.35, need_weights=True)[0],
    "disrca": lambda q, k, u, w, s, w_r: functional.disentangled_relational_cross_attention(
        q, k, q, k, s, scale=0.35, rel_activation="softmax"
    )[0],
}


@pytest.mark.parametrize("name", ATTENDING)
def test_scores_beyond_float16(name):
    """As in float32, output and gradients."""
    generator = torch.Generator().manual_seed(1)
    shapes = (B, N, 3, 2), (B, M, 3, 2), (B, 2, M, 4), (2, 4, 3)
    low = [*scored_beyond_float16(), *(torch.randn(shape, generator=generator).half() for shape in shapes)]
    ours, wide = ([x.to(dtype).requires_grad_() for x in low] for dtype in (torch.float16, torch.float32))
    for a, b in zip(*(differentiated(ATTENDING[name], leaves) for leaves in (ours, wide)), strict=True):
        torch.testing.assert_close(a.float(), b, rtol=2e-2, atol=2e-2 * max(1.0, float(b.abs().max())))


def differentiated(call, leaves):
    """Output, and gradients of what it depends on."""
    out = call(*leaves)
    g = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out.dtype)
    grads = torch.autograd.grad(out, leaves, g, allow_unused=True)
    return [out.detach(), *(grad for grad in grads if grad is not None)]


def test_scores_of_mechanisms_baselines_and_symbols():
    with torch.no_grad():
        assert functional.dot_score(large(N, WIDTH), large(M, WIDTH)).isfinite().all()
        relation = Relation(WIDTH, 1).half()
        u = large(1, N, 1, WIDTH)
        assert relation.relate(u, u).isfinite().all()
        z = large(1, N, WIDTH)
        esbn = ESBN(WIDTH, 3, 3, scale=None, context_norm=False).half()
        assert all(x.isfinite().all() for x in esbn(z, need_weights=True))
        retriever = RelationalSymbolicAttention(WIDTH, 1, 1, 4, 2).half()
        assert projected(retriever, retriever.q_proj, retriever.k_proj)(z).isfinite().all()


def of_float16(make):
    """A layer in float16 beside a copy in float32."""
    low = make().half()
    return low, copy.deepcopy(low).float()


def projected(layer, *projections):
    """The layer, with projections that change nothing."""
    for projection in projections:
        torch.nn.init.eye_(projection.weight)
        torch.nn.init.zeros_(projection.bias)
    return layer


def neighbourhoods():
    layer = RelationalSymbolicAttention(8, 1, 1, 4, 2, rel_scale=0.35)
    return projected(layer, layer.q_proj, layer.k_proj)


def general():
    score = General(8, 8)
    torch.nn.init.eye_(score.weight).mul_(0.35)
    return GeneralAttention(score)


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (lambda: GeneralAttention(Dot(0.35)), lambda layer, q, k: layer(q, k, need_weights=True)[:2]),
        (lambda: GeneralAttention(Dot(0.35), Sparsemax(temperature=4.0)), lambda layer, q, k: layer(q, k)[:1]),
        (general, lambda layer, q, k: layer(q, k)[:1]),
        (lambda: Relation(8, 1, score=Dot(0.35), activation="softmax"), lambda layer, q,
         k: [layer.relate(q[:, :, None], k[:, :, None])]),
        (neighbourhoods, lambda layer, q, k: [layer(k)]),
        (lambda: ESBN(8, 3, 3, scale=0.35, context_norm=False), lambda layer, q, k: layer(k, need_weights=True)),
    ],
    ids=["Dot", "Sparsemax", "General", "Relation", "RelationalSymbolicAttention", "ESBN"],
)  # fmt: skip
@torch.no_grad()
def test_softmax_of_scores_beyond_float16(make, call):
    torch.manual_seed(0)
    q, k = (x[:, 0] for x in scored_beyond_float16())
    low, wide = of_float16(make)
    for ours, theirs in zip(call(low, q, k), call(wide, q.float(), k.float()), strict=True):
        assert ours.dtype == torch.float16
        torch.testing.assert_close(ours.float(), theirs, rtol=2e-2, atol=2e-2)


def test_positions_of_keys():
    layer = Attention(WIDTH, 1, shaw_max_rel_pos=2).half()
    with torch.no_grad():
        torch.nn.init.eye_(layer.wq.weight)
        layer.wk.weight.zero_()
        layer.rel_pos_keys.rel_pos_embeddings.fill_(30.0)
        x = large(1, N, WIDTH)
        for need_weights in (False, True):
            assert layer(x, x, x, need_weights=need_weights).output.isfinite().all()


def test_gradients_of_keys_are_scaled_before_they_are_rounded():
    a, b = large(1, 1, WIDTH, 2), large(1, 1, WIDTH, 3)
    for batch in (1, 2):
        a, b = a.expand(1, batch, -1, -1), b.expand(1, batch, -1, -1)
        total = torch.zeros(1, batch, 2, 3)
        add_head_products(a.detach(), b.detach(), total, SCALE)
        wanted = SCALE * (a.double().transpose(2, 3) @ b.double())
        torch.testing.assert_close(total.double(), wanted, rtol=2e-3, atol=0)
