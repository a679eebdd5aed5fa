"""The general module: the laws, gradients and types of compositions of a score and an alignment."""

import torch

from tests.support.combinations import sampled
from tests.support.tensors import close, normal

from .space import ALIGNMENTS, NORMALISED, SCORES, WIDTH, build

B, L, S = 2, 5, 6


@sampled(100, score=SCORES, align=ALIGNMENTS, heads=[None, 2, 1, 3], m=range(S, 0, -1), padding=[2, 1, 3])
def test_laws(score, align, heads, m, padding):
    attention = build(score, align, heads)
    width = WIDTH if heads is None else 3
    x, y = normal(B, L, width).requires_grad_(), normal(B, m, width).requires_grad_()
    v = normal(B, m, width).requires_grad_()
    mask = torch.rand(B, L, m) < 0.6
    mask[0, 0] = False
    padding_mask = torch.rand(B, m) < 0.8
    single_row = score == "features of keys"
    if single_row:
        mask = mask[:, :1]
    attn_mask = mask if heads is None else mask[:, None]
    reach = mask & padding_mask[:, None]

    output = attention(x, y, v, attn_mask=attn_mask, padding_mask=padding_mask, need_weights=True)
    weights = output.weights
    hidden = ~(reach if heads is None else reach[:, None].expand(-1, heads, -1, -1))
    assert (weights[hidden] == 0.0).all()  # M1
    assert (output.context[0, 0] == 0.0).all() and output.context.isfinite().all()  # M2
    assert output.context.dtype == v.dtype and output.context.shape == (B, *reach.shape[1:2], output.context.shape[-1])
    fast = attention(x, y, v, attn_mask=attn_mask, padding_mask=padding_mask)
    assert fast.weights is None
    close(fast.context, output.context)

    cotangent = torch.randn_like(output.context)
    inputs = [x, y, v, *(p for p in attention.parameters() if p.requires_grad)]
    gradients = torch.autograd.grad((output.context * cotangent).sum(), inputs, allow_unused=True)  # M3
    assert all(g is None or g.isfinite().all() for g in gradients)
    unseen = ~reach.any(1)
    for gradient in gradients[1:3]:
        assert gradient is None or (gradient[unseen] == 0).all()

    def longer(z):  # M4
        return torch.cat([z, 9 * normal(B, padding, z.shape[-1])], 1)

    no = torch.zeros(B, padding, dtype=torch.bool)
    more = torch.cat([attn_mask, no.new_ones(*attn_mask.shape[:-1], padding)], -1)
    padded = attention(x, longer(y), longer(v), attn_mask=more, padding_mask=torch.cat([padding_mask, no], 1))
    close(padded.context, output.context)

    nothing = attention(x, y[:, :0], v[:, :0])  # M5
    assert nothing.context.shape == output.context.shape and (nothing.context == 0).all()

    if align in NORMALISED:  # T-SUM
        total = weights.sum(-2 if weights.dim() > hidden.dim() else -1)
        some = ~hidden.all(-1)
        wanted = some.double()[..., None].expand(total.shape) if total.dim() > some.dim() else some.double()
        close(total, wanted, atol=1e-9)


@sampled(50, score=SCORES, align=ALIGNMENTS)
def test_permutations_and_batches(score, align):
    attention = build(score, align, None)
    x, y, v = normal(B, L, WIDTH), normal(B, S, WIDTH), normal(B, S, WIDTH)
    mask = torch.rand(B, S) < 0.7
    context = attention(x, y, v, padding_mask=mask).context
    order = torch.randperm(S)
    shuffled = attention(x, y[:, order], v[:, order], padding_mask=mask[:, order]).context
    if score == "location" or align == "stick-breaking":
        assert not torch.allclose(shuffled, context) or align == "uniform"
    else:
        close(shuffled, context)
    for b in range(B):
        close(context[b], attention(x[b], y[b], v[b], padding_mask=mask[b]).context)
    more = attention(*(t[:, None].expand(-1, 3, -1, -1) for t in (x, y, v)), padding_mask=mask[:, None]).context
    close(more[:, 1], context)
    close(attention(x, y, v, padding_mask=mask).context, context)  # deterministic in evaluation


@sampled(
    8,
    score=[name for name in SCORES if name != "euclidean"],
    align=["softmax", "sparsemax", "learned entmax", "sigmoid", "tanh"],
)
def test_gradients(score, align):
    attention = build(score, align, None)
    x, y, v = normal(1, 2, WIDTH), normal(1, 3, WIDTH), normal(1, 3, WIDTH)
    mask = torch.tensor([[[False, False, False], [True, True, False]]])
    if score in ("only keys", "features of keys"):
        mask = None

    def function(*inputs):
        return attention(*inputs, attn_mask=mask, need_weights=True).context

    assert torch.autograd.gradcheck(function, tuple(t.requires_grad_() for t in (x, y, v)))


@sampled(100, score=SCORES, align=ALIGNMENTS, dtype=[torch.float16, torch.bfloat16, torch.float32])
def test_lower_precision(score, align, dtype):
    attention = build(score, align, None).to(dtype)
    x, y, v = (0.5 * torch.randn(B, n, WIDTH).to(dtype) for n in (L, S, S))
    mask = torch.rand(B, S) < 0.7
    mask[1] = False
    got = attention(x, y, v, padding_mask=mask)
    assert got.context.dtype == dtype and got.context.isfinite().all() and (got.context[1] == 0).all()
    if align == "hard":
        return  # an argmax may fall either way
    wanted = attention.double()(x.double(), y.double(), v.double(), padding_mask=mask).context
    close(got.context.double(), wanted, atol=1e-5 if dtype == torch.float32 else 4e-2)
