import importlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.functional import MaskPattern, attention, causal_mask, reference
from tests.lab.estimate.measuring import peak
from tests.support.refusals import refused

attention_module = importlib.import_module("dual_attention.functional.attention")  # its name is also the function's


def draw_inputs(seed, batch, heads, groups, n, m, key_dim, width):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    q, k, v = normal(batch, heads, n, key_dim), normal(batch, groups, m, key_dim), normal(batch, groups, m, width)
    mask = torch.rand(batch, heads, n, m, generator=generator) < 0.6
    mask[0, 0, 0] = False  # a receiver with nothing to attend
    bias = torch.randn(1, heads, n, m, generator=generator, dtype=torch.float64)
    bias[..., 0] = -torch.inf
    return (q, k, v), mask, bias


@given(
    seed=st.integers(0, 99),
    batch=st.integers(1, 3),
    groups=st.integers(1, 2),
    repeat=st.integers(1, 3),
    n=st.integers(1, 5),
    m=st.integers(1, 5),
    key_dim=st.sampled_from([2, 4]),
    width=st.sampled_from([2, 3, 4]),
    with_mask=st.booleans(),
    with_bias=st.booleans(),
)
def test_fused_is_the_reference(seed, batch, groups, repeat, n, m, key_dim, width, with_mask, with_bias):
    inputs, mask, bias = draw_inputs(seed, batch, groups * repeat, groups, n, m, key_dim, width)
    arguments = {"scale": 0.7, "mask": mask if with_mask else None, "bias": bias if with_bias else None}
    wanted, _ = reference.attention(*inputs, **arguments)
    fused, weights = attention(*inputs, **arguments)
    assert weights is None
    torch.testing.assert_close(fused, wanted, atol=1e-12, rtol=1e-12)
    cotangent = torch.randn_like(wanted)
    gradients = [torch.autograd.grad(x, inputs, cotangent) for x in (fused, wanted)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("need_weights", [False, True])
def test_a_row_with_nothing_to_attend_is_zero_and_so_are_its_gradients(dtype, need_weights):
    q, k, v = (torch.randn(2, 2, 4, 8, dtype=dtype, requires_grad=True) for _ in range(3))
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    mask[1, :, 2] = False
    out, _ = attention(q, k, v, scale=0.3, mask=mask, need_weights=need_weights)
    assert (out[1, :, 2] == 0).all() and (out[0] != 0).all()
    out.float().sum().backward()
    for x in (q, k, v):
        assert x.grad is not None and x.grad.isfinite().all()
    assert q.grad is not None and (q.grad[1, :, 2] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_lowest_number_as_a_bias_hides_nothing(dtype):
    """As transformers write masks: where it biases all that a receiver may attend, it is a constant."""
    q, k, v = (4 * torch.randn(2, 2, 4, 8, dtype=dtype) for _ in range(3))
    bias = torch.zeros(1, 1, 1, 4, dtype=dtype)
    bias[..., :2] = torch.finfo(dtype).min
    leaves = [x.requires_grad_() for x in (q, k, v, bias)]
    mask = causal_mask(4)
    out, weights = attention(q, k, v, scale=0.3, mask=mask, bias=bias, need_weights=True)
    assert weights is not None and (weights.triu(1) == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), atol=1e-2, rtol=0)
    assert (weights[..., 2:, :2] == 0).all()
    if dtype.itemsize >= 4:  # lower ones round the scores of such a row away
        torch.testing.assert_close(out, attention(q, k, v, scale=0.3, mask=mask, bias=bias)[0])
    (first,) = torch.autograd.grad(out.float().square().mean(), q, create_graph=True)
    for gradient in torch.autograd.grad(first.float().square().mean(), leaves):
        assert gradient.isfinite().all()


def test_scores_below_the_lowest_number_hide_nothing():
    q, lowest = torch.full((1, 1, 2, 1), 1e19), torch.full((1, 1, 2, 2), torch.finfo(torch.float32).min)
    _, weights = attention(q, -q, q, scale=1.0, bias=lowest, need_weights=True)
    assert weights is not None and (weights == 0.5).all()


def test_causal_flag_is_the_causal_mask():
    q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.float64) for _ in range(3))
    wanted, weights = attention(q, k, v, scale=0.5, mask=causal_mask(5)[None, None], need_weights=True)
    pattern = MaskPattern(5, 5, causal=True)
    torch.testing.assert_close(attention(q, k, v, scale=0.5, mask=pattern)[0], wanted)
    flagged, flagged_weights = attention(q, k, v, scale=0.5, mask=pattern, need_weights=True)
    torch.testing.assert_close(flagged, wanted)
    assert weights is not None and flagged_weights is not None
    assert torch.equal(flagged_weights, weights) and (weights.triu(1) == 0).all()


def test_reference_gradients():
    inputs, mask, bias = draw_inputs(0, 2, 4, 2, 3, 4, 2, 3)
    assert torch.autograd.gradcheck(
        lambda *x: reference.attention(*x, scale=0.7, mask=mask, bias=bias.clamp(min=-9))[0], inputs
    )


@given(
    seed=st.integers(0, 99),
    n=st.integers(1, 9),
    block=st.integers(1, 4),
    causal=st.booleans(),
    window=st.sampled_from([None, 2]),
    with_mask=st.booleans(),
    with_bias=st.booleans(),
    padded=st.booleans(),
    packed=st.booleans(),
    earlier=st.sampled_from([0, 0, 3]),
)
def test_blocks_of_long_sequences_are_the_reference(
    seed, n, block, causal, window, with_mask, with_bias, padded, packed, earlier
):
    m = n + earlier
    inputs, mask, bias = draw_inputs(seed, 2, 4, 2, n, m, 2, 3)
    real, segments = mask[:, 1, 0], mask[:, 1, 0].long().cumsum(-1) // 2
    parts = {"padding": real} if padded else {}
    if packed:
        parts |= {"receiver_segments": segments[:, earlier:], "sender_segments": segments}
    pattern = MaskPattern(n, m, mask if with_mask else None, **parts, causal=causal, window=window, offset=earlier)
    arguments = {"scale": 0.7, "bias": bias if with_bias else None}
    wanted, _ = reference.attention(*inputs, mask=pattern.dense(None), **arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_module, "LARGEST_MASK", 0)
        patch.setattr(attention_module, "BLOCK", block)
        ours, _ = attention(*inputs, mask=pattern, **arguments)
        with torch.no_grad():
            assert torch.equal(attention(*inputs, mask=pattern, **arguments)[0], ours)
    torch.testing.assert_close(ours, wanted, atol=1e-12, rtol=1e-12)
    cotangent = torch.randn_like(wanted)
    gradients = [torch.autograd.grad(x, inputs, cotangent) for x in (ours, wanted)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-12)


@pytest.mark.slow
def test_padding_and_packing_need_memory_for_lengths():
    n = 4096
    q, k, v = (torch.randn(2, 4, n, 64, requires_grad=True) for _ in range(3))
    real, segments = torch.arange(n) < torch.tensor([[n], [n // 3]]), torch.arange(n)[None] // 700

    def taken(**parts):
        pattern = MaskPattern(n, n, causal=True, **parts)
        return peak(lambda: torch.autograd.grad(attention(q, k, v, scale=0.1, mask=pattern)[0].sum(), (q, k, v)))

    # Behind zeros for padding, whose copies are as large as the keys and values.
    without = taken(padding=torch.ones_like(real[:1]))
    assert taken(padding=real) <= 1.1 * without
    assert taken(receiver_segments=segments, sender_segments=segments) <= 1.1 * without


@pytest.mark.parametrize("order", [{}, {"causal": True}, {"causal": True, "window": 9}], ids=str)
@pytest.mark.parametrize(("largest", "need_weights"), [(0, False), (10_000, False), (0, True)])
def test_dropout_whatever_computes(order, largest, need_weights, monkeypatch):
    """Values that name their senders show the weights: dropped or made larger, alike in both passes and the maps."""
    monkeypatch.setattr(attention_module, "LARGEST_MASK", largest)
    monkeypatch.setattr(attention_module, "BLOCK", 5)
    none, names = torch.zeros(2, 2, 32, 4).double(), torch.eye(32).double().repeat(2, 2, 1, 1).requires_grad_()
    arguments = {"scale": 1.0, "mask": MaskPattern(32, 32, **order), "need_weights": need_weights}
    whole, _ = attention(none, none, names, **arguments)
    weights, maps = attention(none, none, names, dropout=0.3, **arguments)
    share = (weights / whole)[whole > 0]
    assert abs((share == 0).double().mean() - 0.3) < 0.05
    torch.testing.assert_close(share[share > 0], torch.full_like(share, 1 / 0.7)[share > 0])
    assert len(weights.flatten(0, 1).unique(dim=0)) == 4
    cotangent = torch.randn_like(weights)
    torch.testing.assert_close(torch.autograd.grad(weights, names, cotangent)[0], weights.mT @ cotangent)
    assert maps is None or torch.equal(maps, weights)


@pytest.mark.parametrize("largest", [0, 10_000])
@pytest.mark.parametrize("shape", [(1, 1, 4, 1), (2, 4, 4, 5)], ids=str)
def test_minus_infinity_hides_as_a_mask_does(shape, largest, monkeypatch):
    """Receivers from which a bias hides all senders, alone or with a mask, get zeros."""
    monkeypatch.setattr(attention_module, "LARGEST_MASK", largest)
    monkeypatch.setattr(attention_module, "BLOCK", 3)
    inputs, mask, _ = draw_inputs(0, 2, 4, 2, 4, 5, 2, 3)
    bias = torch.randn(shape, dtype=torch.float64).masked_fill(torch.rand(shape) < 0.3, -torch.inf)
    bias[:, :, 1] = -torch.inf
    mask[:, :, 2] = (bias == -torch.inf).expand_as(mask)[:, :, 2]
    leaves, finite = (*inputs, bias.requires_grad_()), bias.where(bias != -torch.inf, 0.0)
    ours, _ = attention(*inputs, scale=0.7, mask=mask, bias=bias)
    assert (ours[:, :, 1:3] == 0).all()
    wanted, _ = reference.attention(*inputs, scale=0.7, mask=mask & (bias != -torch.inf), bias=finite)
    torch.testing.assert_close(ours, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(x.square().sum(), leaves) for x in (ours, wanted)))


def test_a_bias_below_the_range_of_the_type_masks():
    (q, k, v), _, _ = draw_inputs(0, 1, 2, 1, 3, 4, 4, 4)
    bias = torch.zeros(1, 1, 3, 4)
    bias[:, :, 0] = bias[..., 1] = -1e9
    inputs = [x.half() for x in (q, k, v)]
    for need_weights in (False, True):
        output, _ = attention(*inputs, scale=0.7, bias=bias, need_weights=need_weights)
        assert output.dtype == torch.float16 and (output[:, :, 0] == 0).all()
        wanted, _ = reference.attention(q, k, v, scale=0.7, bias=bias.masked_fill(bias < 0, -torch.inf))
        torch.testing.assert_close(output.double(), wanted, atol=1e-2, rtol=1e-2)


test_wrong_arguments_are_named = refused(
    ({"dropout": 1.0}, "^dropout: expected a rate"),
    ({"scale": None}, TypeError, "^scale: expected a number, got None"),
    ({"mask": torch.zeros(1, 1, 3, 4)}, TypeError, "^mask: expected a boolean tensor"),
    ({"mask": torch.ones(1, 1, 4, 4, dtype=torch.bool)}, "^mask: expected shape"),
    ({"bias": torch.ones(1, 1, 3, 4, dtype=torch.bool)}, TypeError, "^bias: expected a floating-point"),
    ({"k": torch.zeros(1, 1, 4, 4)}, TypeError, "^k: expected dtype torch.float64 as q"),
    ({"v": torch.zeros(1, 1, 4, 4, device="meta")}, "^v: expected a tensor on cpu as q"),
    ({"v": torch.zeros(1, 1, 5, 4, dtype=torch.float64)}, "^v: expected shape"),
    ({"q": torch.zeros(2, 3, 4, dtype=torch.float64)}, "^q: expected 4 axes"),
    by=lambda change: attention(
        **{**dict(zip("qkv", draw_inputs(0, 1, 2, 1, 3, 4, 4, 4)[0], strict=True)), "scale": 0.7, **change}
    ),
)


@pytest.mark.parametrize("need_weights", [False, True])
def test_autocast_takes_tensors_of_several_types(need_weights):
    (q, k, v), _, _ = draw_inputs(0, 1, 2, 1, 3, 4, 4, 4)
    wanted, _ = reference.attention(q, k, v, scale=0.7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = attention(q.bfloat16(), k.float(), v.float(), scale=0.7, need_weights=need_weights)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.double(), wanted, atol=0.05, rtol=0.05)
