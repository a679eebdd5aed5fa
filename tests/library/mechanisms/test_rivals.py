"""Rivals of relational attention: their formulas in plain PyTorch, and the laws that all of them keep."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from dual_attention.functional import directional_mask, stick_breaking
from dual_attention.mechanisms import (
    Cosine,
    DifferentialAttention,
    Dot,
    GeneralAttention,
    LatentAttention,
    MultiHead,
    MultiToken,
    Relation,
    SimplicialAttention,
    SlotPair,
    Sparsemax,
    StickBreaking,
    TensorProductProjection,
    TripleProduct,
    recipes,
)
from tests.support.refusals import refused
from tests.support.tensors import assert_later_tokens_do_not_matter, close, float64, normal

from .space import a_mask, longer_by_two
from .test_compile import check as check_compiled

B, N, D, H = 2, 5, 8, 2

RIVALS = {
    "differential": lambda: DifferentialAttention(D, H, layer=3),
    "2-simplicial": lambda: SimplicialAttention(D, H),
    "2-simplicial, volume": lambda: SimplicialAttention(D, H, form="volume"),
    "latent": lambda: LatentAttention(D, H, 3),
    "latent queries": lambda: LatentAttention(D, H, 3, 5),
    "tensor product": lambda: recipes.tensor_product_attention(D, H),
    "multi-token": lambda: recipes.multi_token_attention(D, H, query_kernel=3, key_kernel=5, group=2),
    "slot pairs": lambda: recipes.slot_pair_attention(D, 4),
    "stick-breaking": lambda: recipes.stick_breaking_attention(D, H),
    "value residual": lambda: recipes.value_residual_attention(D, H),
    "gated": lambda: recipes.gated_self_attention(D, H),
}
ORDERED = {"stick-breaking", "multi-token"}
"""Rivals to which the order of the senders matters."""


def of_heads(x, weight, heads=H):
    """A linear map, split into heads ``(B, heads, N, width)``."""
    return (x @ weight.T).unflatten(-1, (heads, -1)).transpose(1, 2)


def size(module):
    return sum(parameter.numel() for parameter in module.parameters())


def masked_softmax(scores, mask):
    """Softmax over the last axis by its definition; zeros where nothing may be attended."""
    exp = (scores - scores.amax(-1, keepdim=True)).exp() * mask
    return exp / exp.sum(-1, keepdim=True).clamp_min(1e-300)


@pytest.mark.parametrize("name", RIVALS)
def test_what_is_hidden_changes_nothing_and_learns_nothing(name):
    rival = float64(RIVALS[name]())
    x, y = normal(B, N, D).requires_grad_(), normal(B, N, D).requires_grad_()
    mask = a_mask(N)
    mask[..., 3] = False
    padding = torch.tensor([[True] * 4 + [False], [True] * 5])
    output = rival(x, y, attn_mask=mask, padding_mask=padding)
    assert (output.context[0, 1] == 0).all()
    inputs = (x, y, *rival.parameters())
    gradients = torch.autograd.grad(output.context.square().sum(), inputs)
    assert all(g.isfinite().all() for g in gradients)
    assert (gradients[1][:, 3] == 0).all() and (gradients[1][0, 4] == 0).all() and (gradients[1][1, 4] != 0).any()
    changed = y.detach().clone()
    changed[:, 3], changed[0, 4] = 9.0, -9.0
    close(rival(x, changed, attn_mask=mask, padding_mask=padding).context, output.context)
    longer = rival(x, longer_by_two(y), attn_mask=F.pad(mask, (0, 2), value=True), padding_mask=longer_by_two(padding))
    close(longer.context, output.context)
    hidden = ~(mask & padding[:, None, None])
    weights = rival(x, y, attn_mask=mask, padding_mask=padding, need_weights=True).weights
    for of_senders in (weights,) if weights.dim() == 4 else (weights.sum(-1), weights.sum(-2)):
        assert (of_senders[hidden.expand(-1, weights.shape[1], -1, -1)] == 0).all()


@pytest.mark.parametrize("name", RIVALS)
def test_order(name):
    rival = float64(RIVALS[name]())
    x, order = normal(B, N, D), torch.tensor([3, 0, 4, 1, 2])
    shuffled, wanted = rival(x[:, order]).context, rival(x).context[:, order]
    assert torch.allclose(shuffled, wanted, atol=1e-12, rtol=0) == (name not in ORDERED)
    assert_later_tokens_do_not_matter(lambda x: rival(x, is_causal=True).context, x, 3)


@pytest.mark.parametrize("name", RIVALS)
def test_sizes_and_asking_for_weights(name):
    rival = float64(RIVALS[name]())
    x, y = normal(B, N, D), normal(B, 3, D)
    close(rival(x, y, need_weights=True).context, rival(x, y).context)
    assert rival(x, y).weights is None
    nothing = rival(x, y[:, :0], need_weights=True)
    assert nothing.context.shape == (B, N, D) and (nothing.context == 0).all()
    assert rival(x[:, :0], y).context.shape == (B, 0, D)
    for b in range(B):
        close(rival(x[b : b + 1], y[b : b + 1]).context[0], rival(x, y).context[b])
    again = RIVALS[name]().double().eval()
    again.load_state_dict(rival.state_dict())
    close(again(x, y).context, rival(x, y).context)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", RIVALS)
def test_lower_precision(name, dtype):
    rival = RIVALS[name]().to(dtype).eval()
    x = torch.randn(B, N, D).to(dtype)
    got = rival(x, is_causal=True).context
    assert got.dtype == dtype
    close(got.double(), rival.double()(x.double(), is_causal=True).context, 1e-5 if dtype == torch.float32 else 5e-2)


@pytest.mark.parametrize("name", RIVALS)
def test_scores_beyond_float16(name):
    rival = RIVALS[name]().half()
    with torch.no_grad():
        for parameter in (p for part, p in rival.named_parameters() if "wv" in part):
            parameter.mul_(0.01)  # contexts are within it
    size = 60 if name == "tensor product" else 400  # whose queries and keys are products themselves
    x = (size * torch.randn(B, N, D)).half().requires_grad_()
    context = rival(x, is_causal=True).context
    assert context.isfinite().all()
    (gradient,) = torch.autograd.grad(context.float().mean(), x)
    assert gradient.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVALS)
def test_compiles(name):
    check_compiled(float64(RIVALS[name]()), (normal(B, N, D),), {"attn_mask": a_mask(N)})


def test_differential_attention():
    """Ye et al. 2024, eqs. 1 to 3, written out."""
    rival = float64(DifferentialAttention(D, H, layer=3))
    x, mask = normal(B, N, D), a_mask(N)
    q, k = (of_heads(x, w.weight, 2 * H) for w in (rival.heads.wq, rival.heads.wk))
    v = of_heads(x, rival.heads.message.wv.weight)
    start = 0.8 - 0.6 * math.exp(-0.6)
    (q1, q2), (k1, k2) = rival.lambda_q, rival.lambda_k
    weight = torch.exp(q1 @ k1) - torch.exp(q2 @ k2) + start
    a = masked_softmax(q @ k.mT / math.sqrt(D / H / 2), mask)
    wanted = a[:, 0::2] - weight * a[:, 1::2]
    heads = wanted @ v
    heads = heads / (heads.square().mean(-1, keepdim=True) + 1e-5).sqrt() * rival.norm.weight * (1 - start)
    output = rival(x, attn_mask=mask, need_weights=True)
    close(output.weights, wanted)
    close(output.context, heads.transpose(1, 2).flatten(2) @ rival.wo.weight.T)


def test_differential_attention_starts_deeper_with_more_subtracted():
    starts = [DifferentialAttention(D, H, layer=layer).lambda_init for layer in (1, 2, 28)]
    assert starts[0] == pytest.approx(0.2) and starts == sorted(starts) and starts[2] == pytest.approx(0.8, abs=1e-3)
    assert size(DifferentialAttention(D, H)) == size(recipes.self_attention(D, 2 * H)) + 4 * (D // H // 2) + D // H
    sparse = float64(DifferentialAttention(D, H, align=Sparsemax()))
    assert (sparse(normal(B, N, D), need_weights=True).weights == 0).any()


def test_stick_breaking_attention():
    """Tan et al. 2024, by breaking the stick: a causal query goes from the nearest sender to the first."""
    rival = float64(recipes.stick_breaking_attention(D, H))
    x, mask = normal(B, N, D), directional_mask(N, "forward")
    q, k, v = (of_heads(x, w.weight) for w in (rival.wq, rival.wk, rival.message.wv))
    wanted = torch.zeros(B, H, N, N).double()
    for i in range(N):
        left = torch.ones(B, H).double()
        for j in reversed(range(i)):
            beta = torch.sigmoid((q[:, :, i] * k[:, :, j]).sum(-1) / math.sqrt(D / H))
            wanted[:, :, i, j] = beta * left
            left = left * (1 - beta)
    output = rival(x, attn_mask=mask, need_weights=True)
    close(output.weights, wanted)
    close(output.context, (wanted @ v).transpose(1, 2).flatten(2) @ rival.wo.weight.T)
    assert (output.weights.sum(-1) < 1).all()


def test_a_broken_stick_is_exact_where_scores_are_large():
    scores = torch.tensor([3.0, 1e6, -0.5, -1e6]).double()
    rest = 1 - torch.sigmoid(scores[2])
    close(stick_breaking(scores), torch.stack([0 * rest, rest, 1 - rest, 0 * rest]))
    close(stick_breaking(scores.float()).double(), stick_breaking(scores), 1e-6)
    two = stick_breaking(scores[None].expand(3, 4).T, dim=0)
    close(two, stick_breaking(scores)[:, None].expand(4, 3))


@pytest.mark.parametrize("form", ["product", "volume"])
def test_simplicial_attention(form):
    """Clift et al. 2019, eqs. 7, 10 and 11, and the form of Roy et al. 2025, triple by triple."""
    rival = float64(SimplicialAttention(D, H, form=form))
    x, mask = normal(B, N, D), a_mask(N)
    q, (k, other) = of_heads(x, rival.wq.weight), (of_heads(x, w) for w in rival.wk.weight.chunk(2))
    scores = torch.zeros(B, H, N, N, N).double()
    for i, j, third in itertools.product(range(N), repeat=3):
        a, b, c = q[:, :, i], k[:, :, j], other[:, :, third]
        if form == "product":
            scores[:, :, i, j, third] = (a * b * c).sum(-1) / math.sqrt(D / H)
        else:
            ab, ac, bc = ((u * w).sum(-1, keepdim=True) for u, w in ((a, b), (a, c), (b, c)))
            scores[:, :, i, j, third] = (ab * c - ac * b + bc * a).norm(dim=-1)
    both = (mask[..., :, None] & mask[..., None, :]).expand(-1, H, -1, -1, -1)
    wanted = masked_softmax(scores.flatten(-2), both.flatten(-2)).unflatten(-1, (N, N))
    if form == "product":
        v, w = (of_heads(x, w) for w in rival.wv.weight.chunk(2))
        pairs = v[:, :, :, None] * w[:, :, None]
    else:
        v = of_heads(x, rival.wv.weight)
        pairs = torch.stack([F.bilinear(v[:, :, j, None].expand_as(v), v, rival.bilinear) for j in range(N)], 2)
    heads = (wanted[..., None] * pairs[:, :, None]).sum((3, 4)).transpose(1, 2).flatten(2)
    if form == "volume":
        heads = F.layer_norm(heads, (D,), rival.gain)
    output = rival(x, attn_mask=mask, need_weights=True)
    close(output.weights, wanted)
    close(output.context, heads @ rival.wo.weight.T)


def test_triple_product_of_three_dimensions():
    """It is zero for orthogonal vectors, largest for dependent ones, and rotations leave it as it is."""
    score, axes = TripleProduct(), torch.eye(3).double()
    close(score(axes[:1], torch.cat([axes[1:2], axes[2:]], -1)), torch.zeros(1, 1).double(), 1e-15)
    close(score(axes[:1], torch.cat([axes[:1], axes[:1]], -1)), torch.ones(1, 1).double())
    q, k, other = normal(4, 3), normal(5, 3), normal(5, 3)
    turn = torch.linalg.qr(normal(3, 3)).Q
    close(score(q @ turn, torch.cat([k @ turn, other @ turn], -1)), score(q, torch.cat([k, other], -1)), 1e-9)
    zero = torch.zeros(1, 3).double().requires_grad_()
    assert (torch.autograd.grad(score(zero, torch.cat([k, other], -1)).sum(), zero)[0] == 0).all()


test_bad_input_of_all = pytest.mark.parametrize("name", RIVALS)(refused(
    (lambda rival, x: rival(normal(B, N, D + 1)), "^(query|key): expected"),
    (lambda rival, x: rival(x, normal(B, N, D + 1)), "^key: expected"),
    (lambda rival, x: rival(x.float()), TypeError, "^(query|key): expected"),
    (lambda rival, x: rival(x, padding_mask=torch.ones(B, N)), TypeError, "boolean"),
    (lambda rival, x: rival(x, padding_mask=torch.ones(B, 2, dtype=torch.bool)), "^padding_mask: expected"),
    (lambda rival, x: rival(x, normal(B, 3, D), is_causal=True), "^(is_causal|causal)"),
    by=lambda call, *, name: call(float64(RIVALS[name]()), normal(B, N, D)),
))  # fmt: skip


MANY = torch.randn(2, 4000, 64, device="meta")

test_bad_input = refused(
    (lambda x: DifferentialAttention(8, 3), "^d_model: expected a multiple of 2 n_heads = 6"),
    (lambda x: DifferentialAttention(D, H, layer=0), "^layer: expected a positive number"),
    (lambda x: TripleProduct()(normal(4, 3), normal(5, 3)), "^key: expected two of width 3 side by side"),
    (lambda x: SimplicialAttention(D, H, form="cube"), "^form: expected 'product' or 'volume'"),
    (lambda x: SimplicialAttention(7, H), "^d_model: 7 is not divisible"),
    (lambda x: SimplicialAttention(D, 0), "^n_heads: expected a positive number"),
    (lambda x: SimplicialAttention(D, H, max_gib=0), "^max_gib: expected a positive number"),
    (lambda x: LatentAttention(D, 3, 3), "^d_model: 8 is not divisible"),
    (lambda x: LatentAttention(D, H, 0), "^d_latent: expected a positive number"),
    (lambda x: LatentAttention(D, H, 3, 0), "^d_query_latent: expected a positive number"),
    (lambda x: LatentAttention(D, H, 3)(torch.randn(3, N, D), x), r"^query: expected shape \(2, length, 8\)"),
    (lambda x: TensorProductProjection(D, H, 4, 0), "^rank: expected a positive number"),
    (lambda x: MultiToken(H, key_kernel=4), "^key_kernel: expected an odd number"),
    (lambda x: MultiToken(H, group=3), "^group: expected a divisor of heads=2, got 3"),
    (lambda x: GeneralAttention(Dot(), MultiToken(H), block=8), "^block: MultiToken aligns all queries"),
    (lambda x: MultiToken(H)(normal(B, 3, N, N)), "^scores: expected one number"),
    (lambda x: MultiHead(GeneralAttention(Dot(), MultiToken(4)), D, H), "^attention: its alignment has 4 heads"),
    (lambda x: SlotPair(3)(*normal(2, B, 4, N, 2)), r"^key: expected slots \(\.\.\., 3, length, width\)"),
    (lambda x: SlotPair(4)(*normal(2, N, 2)), "^key: expected slots"),
    (lambda x: SlotPair(4, shift=-1), "^shift: expected zero or more"),
    (lambda x: recipes.value_residual_attention(D, H)(x, x, x[:, :2]), "^value: expected"),
    (lambda x: recipes.value_residual_attention(D, H)(x, x, x[..., :4]), "^value: expected"),
    *((lambda _, of=of, more=more: SimplicialAttention(64, 4, **of).to("meta")(MANY, **more),
       rf"^key: pairs of 4,000 keys take {gib} GiB, [0-9,]+ bytes each, more") for of, more, gib in (
        ({}, {}, "15.3"),
        ({}, {"need_weights": True}, "5,737.3"),
        ({}, {"is_causal": True}, "372.9"),
        ({"form": "volume"}, {}, "5,744.9"),
      )),
    by=lambda call: call(torch.randn(B, N, D)),
)  # fmt: skip


def test_as_many_keys_as_fit_are_taken():
    rival = SimplicialAttention(64, 4, max_gib=0.001)
    assert rival(torch.randn(2, 32, 64)).context.shape == (2, 32, 64)
    with pytest.raises(ValueError, match=r"more than max_gib=0\.001; expected at most 32 keys"):
        rival(torch.randn(2, 33, 64))


@pytest.mark.parametrize("queries", [None, 5])
def test_latent_attention(queries):
    """DeepSeek-AI 2024, eqs. 9 to 13, written out; keys and values together have the rank of the latent vector."""
    rival = float64(LatentAttention(D, H, 3, queries))
    x, y, mask = normal(B, N, D), normal(B, N, D), a_mask(N)

    def latent(x, down, norm):
        narrow = x @ down.weight.T
        return narrow / (narrow.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight

    c = latent(y, rival.compress, rival.norm)
    asked = x if queries is None else latent(x, rival.compress_query, rival.query_norm)
    q, k, v = (
        of_heads(x, w.weight) for x, w in ((asked, rival.heads.wq), (c, rival.heads.wk), (c, rival.heads.message.wv))
    )
    wanted = masked_softmax(q @ k.mT / math.sqrt(D / H), mask)
    output = rival(x, y, attn_mask=mask, need_weights=True)
    close(output.weights, wanted)
    close(output.context, (wanted @ v).transpose(1, 2).flatten(2) @ rival.heads.wo.weight.T)
    both = torch.cat([k, v], 1).transpose(1, 2).flatten(2).flatten(0, 1)  # (B N, 2 H d)
    assert torch.linalg.matrix_rank(both) == 3


def test_latent_attention_by_other_scores():
    rival = float64(LatentAttention(D, H, 3, score=Cosine(learned=True, heads=H)))
    x = normal(B, N, D)
    assert not torch.allclose(rival(x, is_causal=True).context, rival(x).context)


def test_tensor_product_attention():
    """Zhang et al. 2025, section 3.1: Q = A^T B / R for every object, and likewise keys and values."""
    rival = float64(recipes.tensor_product_attention(D, H, query_rank=3, rank=1))
    x, mask = normal(B, N, D), a_mask(N)

    def heads(projection, rank):
        a, b = (x @ projection.weight.T).split([rank * H, rank * D // H], -1)
        a, b = a.unflatten(-1, (rank, H)), b.unflatten(-1, (rank, D // H))
        return sum(a[:, :, r, :, None] * b[:, :, r, None] for r in range(rank)).transpose(1, 2) / rank

    q, k, v = heads(rival.wq, 3), heads(rival.wk, 1), heads(rival.message.wv, 1)
    wanted = masked_softmax(q @ k.mT / math.sqrt(D / H), mask)
    output = rival(x, attn_mask=mask, need_weights=True)
    close(output.weights, wanted)
    close(output.context, (wanted @ v).transpose(1, 2).flatten(2) @ rival.wo.weight.T)
    assert torch.linalg.matrix_rank(rival.wk(x).unflatten(-1, (H, -1))).eq(1).all()


def test_tensor_products_stay_where_float16_squares_do_not():
    projection = TensorProductProjection(1, 2, 3, 1).half()
    torch.nn.init.constant_(projection.weight, 1.0)
    x = torch.full((1, 1), 200.0).half()
    assert (projection(x) == 40_000).all() and projection(x).dtype == torch.float16
    several = TensorProductProjection(1, 2, 3, 2)
    torch.nn.init.constant_(several.weight, 1.0)
    with torch.autocast("cpu", torch.float16):
        assert (several(x.float()) == 40_000).all() and several(x.float()).dtype == torch.float16


def test_multi_token_attention():
    """Golovneva et al. 2025, section 3, number by number."""
    rival = float64(recipes.multi_token_attention(D, H, query_kernel=3, key_kernel=5, group=2))
    x, mask = normal(B, N, D), a_mask(N)
    q, k, v = (of_heads(x, w.weight) for w in (rival.wq, rival.wk, rival.message.wv))
    scores = (q @ k.mT / math.sqrt(D / H)) * mask
    align = rival.attention.align
    mixed = torch.zeros_like(scores)
    for i, j, back, aside in itertools.product(range(N), range(N), range(3), range(-2, 3)):
        if i - back >= 0 and 0 <= j - aside < N:
            mixed[:, :, i, j] += align.kernel[:, 2 - back, 2 - aside] * scores[:, :, i - back, j - aside]
    a = masked_softmax(mixed, mask)
    wanted = torch.stack([sum(align.mix[0, g, h] * a[:, g] for g in range(H)) for h in range(H)], 1)
    output = rival(x, attn_mask=mask, need_weights=True)
    close(output.weights, wanted)
    close(output.context, (wanted @ v).transpose(1, 2).flatten(2) @ rival.wo.weight.T)


def test_multi_token_attention_starts_as_self_attention_and_is_whole():
    rival, plain = recipes.multi_token_attention(D, H, group=2).double(), recipes.self_attention(D, H).double()
    plain.load_state_dict({name: w for name, w in rival.state_dict().items() if "align" not in name})
    x = normal(1, 300, D)
    close(rival(x, is_causal=True).context, plain(x, is_causal=True).context)
    rival = float64(rival)
    close(rival(x, is_causal=True).context[:, :20], rival(x[:, :20], is_causal=True).context)
    late = rival(x, is_causal=True).context[:, 250:260]  # beyond a block of 128 queries
    close(late, rival(x, is_causal=True, need_weights=True).context[:, 250:260])
    close(late, rival(x[:, :260], is_causal=True).context[:, 250:])


def test_slot_pair_attention():
    """Head r: softmax(a_i^(r) a_j^(r+1) / sqrt(d)), with the slots a of one projection for receivers and senders."""
    rival = float64(recipes.slot_pair_attention(D, 4))
    x, mask = normal(B, N, D), a_mask(N)
    slots, v = of_heads(x, rival.wq.weight, 4), of_heads(x, rival.message.wv.weight, 4)
    scores = torch.stack([slots[:, r] @ slots[:, (r + 1) % 4].mT for r in range(4)], 1) / math.sqrt(D / 4)
    wanted = masked_softmax(scores, mask)
    output = rival(x, attn_mask=mask, need_weights=True)
    close(output.weights, wanted)
    close(output.context, (wanted @ v).transpose(1, 2).flatten(2) @ rival.wo.weight.T)
    assert size(rival) == 3 * D * D and size(recipes.slot_pair_attention(D, 4, gate="sigmoid")) == 4 * D * D


def test_slot_pairs_are_relations_too():
    relation = float64(Relation(D, 4, score=SlotPair(4, shift=2)))
    x = normal(B, N, D)
    q, k = of_heads(x, relation.wq.weight, 4), of_heads(x, relation.wk.weight, 4)
    wanted = torch.stack([(q[:, r] @ k[:, (r + 2) % 4].mT) for r in range(4)], -1) / math.sqrt(D / 4)
    close(relation(x), wanted)
    heads = float64(recipes.relational_heads(D, H, 4, relation=SlotPair(4), symbols=False))
    close(heads(x).context, heads(x, need_weights=True).context)
    q, k = normal(B, 4, N, 2), normal(B, 4, N, 2)
    close(SlotPair(4, shift=0)(q, k), Dot()(q, k))


@pytest.mark.parametrize("align", [StickBreaking, lambda: MultiToken(H, query_kernel=3, key_kernel=5)])
def test_their_alignments_select_for_relations_too(align):
    heads = float64(recipes.relational_heads(D, H, 4, align=align()))
    x, symbols = normal(B, N, D), normal(1, N, D)
    output = heads(x, x, symbols, is_causal=True, need_weights=True)
    q, k = (of_heads(x, w.weight) for w in (heads.wq, heads.wk))
    mask = torch.ones(N, N, dtype=torch.bool).tril()
    wanted = heads.attention.align(q @ k.mT / math.sqrt(D / H), mask).weights
    close(output.weights, wanted)
    message = heads.message
    r = message.relation(x)
    carried = torch.einsum("bhij,bijr,hdr->bihd", wanted, r, message.wr) + (
        wanted @ of_heads(symbols, message.wv.weight)
    ).transpose(1, 2)
    close(output.context, carried.flatten(2) @ heads.wo.weight.T)
    close(heads(x, x, symbols, is_causal=True).context, output.context)


def test_value_residuals():
    """Zhou et al. 2024: the weights of this layer carry lambda_1 V_1 + lambda_2 V_n."""
    first, rival = float64(recipes.self_attention(D, H)), float64(recipes.value_residual_attention(D, H))
    x, hidden, mask = normal(B, N, D), normal(B, N, D), a_mask(N)
    v1 = first.message.wv(x)
    q, k, v = (of_heads(hidden, w.weight) for w in (rival.wq, rival.wk, rival.message.wv))
    a = masked_softmax(q @ k.mT / math.sqrt(D / H), mask)
    early, late = rival.message.mix
    wanted = a @ (early * of_heads(x, first.message.wv.weight) + late * v)
    output = rival(hidden, hidden, v1, attn_mask=mask)
    close(output.context, wanted.transpose(1, 2).flatten(2) @ rival.wo.weight.T)
    plain = recipes.self_attention(D, H).double()
    fresh = recipes.value_residual_attention(D, H).double()
    assert fresh.message.mix.tolist() == [0.5, 0.5]
    names = {name: w for name, w in fresh.state_dict().items() if not name.endswith("mix")}
    plain.load_state_dict({name.replace("attention.message", "features"): w for name, w in names.items()})
    close(fresh(x).context, plain(x).context)  # as the first layer
