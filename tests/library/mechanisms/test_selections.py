"""Windows and drawn subsets."""

import pytest
import torch
import torch.nn.functional as F

from dual_attention.mechanisms import (
    Dot,
    General,
    GeneralAttention,
    MonotonicWindow,
    MultiHead,
    PredictiveWindow,
    ReinforcedSubset,
    SubsetSampler,
)
from tests.support.refusals import refused
from tests.support.tensors import close, float64, normal

from .space import WIDTH, longer_by_two

B, L, S = 2, 5, 6
SAMPLER, X = SubsetSampler(WIDTH), torch.randn(B, S, WIDTH)


@pytest.mark.parametrize("half_width", [S - 1, S, 50])
def test_a_wide_window_is_global(half_width):
    q, k = normal(B, L, WIDTH), normal(B, S, WIDTH)
    mask = torch.tensor([[True] * S, [True] * 3 + [False] * (S - 3)])
    wanted = GeneralAttention(Dot())(q, k, padding_mask=mask).context
    predicted = PredictiveWindow(WIDTH, half_width, gaussian=False, trainable=False).double()
    for select in (MonotonicWindow(half_width), predicted):
        close(GeneralAttention(Dot(), select=select)(q, k, padding_mask=mask).context, wanted)


def test_windows_follow_the_lengths_of_examples():
    q, k = normal(3, 4, WIDTH), normal(3, S, WIDTH)
    mask = torch.arange(S) < torch.tensor([S, 2, 0])[:, None]
    weights = GeneralAttention(Dot(), select=MonotonicWindow(0))(q, k, padding_mask=mask, need_weights=True).weights
    centres = [[0, 1, 2, 3], [0, 1, 1, 1]]
    for example, places in enumerate(centres):
        close(weights[example], F.one_hot(torch.tensor(places), S).double())
    assert (weights[2] == 0).all()
    padded_left = mask.flip(1)
    flipped = GeneralAttention(Dot(), select=MonotonicWindow(1))
    a = flipped(q, k, padding_mask=mask).context
    shift = torch.stack([k[0], k[1].roll(S - 2, 0), k[2]])
    close(flipped(q, shift, padding_mask=torch.stack([mask[0], padded_left[1], mask[2]])).context, a)


def test_predictive_window_at_the_edges():
    select = PredictiveWindow(WIDTH, 2).double()
    torch.nn.init.constant_(select.weight_p, 9.0)
    q = torch.stack([torch.ones(WIDTH), -torch.ones(WIDTH), torch.zeros(WIDTH)])[None].double()
    torch.nn.init.constant_(select.weight, 99.0)
    k = normal(1, S, WIDTH)
    mask = torch.tensor([[True] * 5 + [False]])
    selection = select(q, k, mask)
    close(selection.position, torch.tensor([[5.0, 0.0, 2.5]]).double())
    near = (selection.mask & mask[:, None])[0].int().tolist()
    assert near == [[0, 0, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]]
    output = GeneralAttention(Dot(), select=select)(q, k, padding_mask=mask, need_weights=True)
    assert (output.weights[..., 5] == 0).all() and (output.weights.sum(-1) < 1).all()
    softmax = GeneralAttention(Dot())(q, k, attn_mask=selection.mask, padding_mask=mask, need_weights=True).weights
    gaussian = torch.exp(-((torch.arange(S) - selection.position[..., None]) ** 2) / 2)
    close(output.weights, softmax * gaussian)
    again = PredictiveWindow(WIDTH, 2, renormalise=True).double()
    again.load_state_dict(select.state_dict())
    renormalised = GeneralAttention(Dot(), select=again)(q, k, padding_mask=mask, need_weights=True).weights
    close(renormalised, output.weights / output.weights.sum(-1, keepdim=True))
    close(GeneralAttention(Dot(), select=again)(q, k, padding_mask=mask).context, renormalised @ k)


def test_the_position_learns_through_the_gaussian_alone():
    q, k = normal(B, L, WIDTH), normal(B, S, WIDTH)
    select = PredictiveWindow(WIDTH, 2).double()
    GeneralAttention(Dot(), select=select)(q, k).context.sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in select.parameters())
    assert not any(p.requires_grad for p in PredictiveWindow(WIDTH, 0, gaussian=False, trainable=False).parameters())
    PredictiveWindow(WIDTH, 0, sigma=1.0)


def test_a_bias_hides_what_a_window_selects():
    q, k = normal(B, L, WIDTH), normal(B, S, WIDTH)
    mask = torch.rand(L, S) < 0.6
    bias = torch.zeros(L, S, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    for renormalise in (False, True):
        attention = GeneralAttention(Dot(), select=PredictiveWindow(WIDTH, 2, renormalise=renormalise)).double()
        close(attention(q, k, attn_bias=bias).context, attention(q, k, attn_mask=mask).context)


def test_selecting_everything_is_soft_attention():
    sampler = SubsetSampler(WIDTH).double().eval()
    torch.nn.init.constant_(sampler.logit.bias, 99.0)
    x = normal(B, S, WIDTH)
    mask = torch.rand(B, S) < 0.7
    mask[:, 0] = True
    for select in (ReinforcedSubset(sampler), ReinforcedSubset(sampler, sampler)):
        output = GeneralAttention(Dot(), select=select)(x, padding_mask=mask)
        wanted = GeneralAttention(Dot())(x, padding_mask=mask).context
        real = mask if select.queries is not None else torch.ones_like(mask)
        close(output.context[real], wanted[real])
        assert (output.selection.fraction == 1).all()
        close(output.selection.log_prob, torch.zeros(B).double(), atol=1e-9)


def test_drawn_subsets():
    sampler = SubsetSampler(WIDTH, generator=torch.Generator().manual_seed(0)).double()
    attention = GeneralAttention(Dot(), select=ReinforcedSubset(sampler))
    x = normal(B, S, WIDTH)
    mask = torch.rand(B, S) < 0.7
    output = attention(x, padding_mask=mask, need_weights=True)
    drawn = output.selection.mask
    assert (output.weights[~drawn.expand(B, S, S)] == 0).all() and not drawn[:, 0][~mask].any()
    output.selection.log_prob.sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.abs().sum() > 0 for p in sampler.parameters())
    torch.nn.init.constant_(sampler.logit.bias, -99.0)
    attention.eval()
    nothing = attention(x, padding_mask=mask)
    assert (nothing.context == 0).all() and (nothing.selection.fraction == 0).all()
    padded = longer_by_two(x)
    torch.nn.init.zeros_(sampler.logit.bias)
    longer = longer_by_two(mask)
    close(attention(x, padded, padding_mask=longer).context, attention(x, x, padding_mask=mask).context)


def test_one_padding_mask_for_all_examples():
    sampler = float64(SubsetSampler(WIDTH))
    x, mask = normal(B, S, WIDTH), torch.tensor([[True] * 4 + [False] * (S - 4)])
    for select in (ReinforcedSubset(sampler), ReinforcedSubset(sampler, sampler)):
        attention = GeneralAttention(Dot(), select=select)
        one, full = (attention(x, padding_mask=padding) for padding in (mask, mask.expand(B, S)))
        close(one.context, full.context)
        assert torch.equal(one.selection.mask, full.selection.mask)
        close(one.selection.log_prob, full.selection.log_prob)
        close(one.selection.fraction, full.selection.fraction)


@pytest.mark.parametrize("select", [lambda: MonotonicWindow(1), lambda: PredictiveWindow(WIDTH, 2)])
def test_heads_select(select):
    heads = float64(MultiHead(GeneralAttention(Dot(), select=select()), 8, 2, out_proj=False))
    x = normal(B, S, 8)
    mask = torch.tensor([[True] * S, [True] * 3 + [False] * (S - 3)])
    output = heads(x, padding_mask=mask, need_weights=True)
    q, k, v = (z(x).unflatten(-1, (2, WIDTH)) for z in (heads.wq, heads.wk, heads.features.wv))
    for h in range(2):
        one = heads.attention(q[:, :, h], k[:, :, h], v[:, :, h], padding_mask=mask, need_weights=True)
        close(output.weights[:, h], one.weights)
        close(output.context.unflatten(-1, (2, WIDTH))[:, :, h], one.context)


@pytest.mark.parametrize("select", [lambda: MonotonicWindow(1), lambda: PredictiveWindow(WIDTH, 1)])
def test_windows_without_keys(select):
    attention = GeneralAttention(General(WIDTH, WIDTH), select=select()).double()
    output = attention(normal(B, L, WIDTH), normal(B, 0, WIDTH))
    assert output.context.shape == (B, L, WIDTH) and (output.context == 0).all()
    none = torch.zeros(B, S, dtype=torch.bool)
    assert (attention(normal(B, L, WIDTH), normal(B, S, WIDTH), padding_mask=none).context == 0).all()


test_bad_input = refused(
    (lambda: PredictiveWindow(WIDTH, 2, gaussian=False), "gaussian: without it"),
    (lambda: PredictiveWindow(WIDTH, 0), "sigma"),
    (lambda: GeneralAttention(Dot(), select=ReinforcedSubset(SAMPLER, SAMPLER))(X, torch.randn(B, S + 2, WIDTH)),
     "query: expected as many as keys"),
    *(
        (lambda wrong=wrong: SAMPLER(X, torch.ones(wrong) > 0), r"^padding_mask: expected shape \(2, 6\), got")
        for wrong in ((B + 1, S), (1, 1), (S,))
    ),
    (lambda: SAMPLER(X, torch.ones(B, S)), TypeError, r"^padding_mask: expected a boolean"),
)  # fmt: skip
