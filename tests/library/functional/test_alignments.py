"""Alignments: the laws of masks, types and axes over all of them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dual_attention.functional import combine, hard_alignment, masked_softmax, sigmoid_alignment, sparsemax
from tests.support.refusals import refused

from .attention_space import (
    ALIGNMENTS,
    MULTIDIM_SCORES,
    NORMALISED,
    SAMPLED,
    SCORES,
    UNNORMALISED,
    WIDTH,
    B,
    L,
    S,
    close,
    scores_and_mask,
)

EXACT = {**NORMALISED, **UNNORMALISED}


# The laws, over every score and alignment


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("score", SCORES)
def test_laws_of_masks(score, alignment):
    draw_and_check(score, alignment, L, S, 2)


@settings(max_examples=60)
@given(
    score=st.sampled_from(list(SCORES)),
    alignment=st.sampled_from(list(ALIGNMENTS)),
    seed=st.integers(0, 999),
    n=st.integers(1, 3),
    m=st.integers(1, 8),
    padding=st.integers(0, 3),
)
def test_laws_of_masks_in_drawn_shapes(score, alignment, seed, n, m, padding):
    torch.manual_seed(seed)
    draw_and_check(score, alignment, n, m, padding)


def draw_and_check(score, alignment, n, m, padding):
    q = torch.randn(B, n, WIDTH, dtype=torch.float64, requires_grad=True)
    k = torch.randn(B, m, WIDTH, dtype=torch.float64, requires_grad=True)
    v = torch.randn(B, m, 2, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(B, n, m) < 0.6
    mask[:, 0] = False
    check_laws(SCORES[score], ALIGNMENTS[alignment], q, k, v, mask, padding, sampled=alignment in SAMPLED)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("score", MULTIDIM_SCORES)
def test_laws_of_masks_for_each_feature(score, alignment):
    q = torch.randn(B, L, WIDTH, dtype=torch.float64, requires_grad=True)
    k = torch.randn(B, S, WIDTH, dtype=torch.float64, requires_grad=True)
    v = torch.randn(B, S, WIDTH, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(B, L, S) < 0.6
    mask[:, 0] = False
    function, align = MULTIDIM_SCORES[score], ALIGNMENTS[alignment]
    check_laws(function, align, q, k, v, mask, 2, sampled=alignment in SAMPLED, multidim=True)


def check_laws(score, align, q, k, v, mask, padding, *, sampled, multidim=False):
    def attend(q, k, v, mask):
        mask = mask[..., None] if multidim else mask
        weights = align(score(q, k), mask, dim=-2 if multidim else -1)
        return weights, combine(weights, v, multidim=multidim)

    weights, context = attend(q, k, v, mask)
    hidden = ~mask[..., None].expand(weights.shape) if multidim else ~mask
    assert (weights[hidden] == 0.0).all()  # M1
    assert (context[:, 0] == 0.0).all() and not context.isnan().any()  # M2

    weighted = (context * torch.randn_like(context)).sum() + (weights * torch.randn_like(weights)).sum()
    for gradient, tensor in zip(
        torch.autograd.grad(weighted, (q, k, v), allow_unused=True), (q, k, v), strict=True
    ):  # M3
        if gradient is None:  # one-hot weights, uniform weights, locations
            continue
        assert gradient.isfinite().all()
        if tensor is not q:
            assert (gradient[~mask.any(1)] == 0).all()

    def padded(x):
        return torch.cat([x, 9 * torch.randn(B, padding, x.shape[-1], dtype=x.dtype)], 1)

    longer = torch.cat([mask, torch.zeros(B, mask.shape[1], padding, dtype=torch.bool)], -1)
    if not sampled:  # noise is drawn for padding too  # M4
        weights_padded, context_padded = attend(q, padded(k), padded(v), longer)
        close(context_padded, context)
        real = k.shape[1]
        close(weights_padded[..., :real, :] if multidim else weights_padded[..., :real], weights)

    _, nothing = attend(q, k[:, :0], v[:, :0], mask[..., :0])  # M5
    assert nothing.shape == context.shape and (nothing == 0).all()


@pytest.mark.parametrize("name", EXACT)
def test_gradients(name):
    scores, mask = scores_and_mask()
    scores.requires_grad_()
    if EXACT[name](scores, mask).requires_grad:
        assert torch.autograd.gradcheck(lambda x: EXACT[name](x, mask), scores)


@pytest.mark.parametrize("name", ["sparsemax", "entmax 1.5", "entmax 1.25", "softmax"])
def test_second_derivatives(name):
    scores, mask = scores_and_mask()
    assert torch.autograd.gradgradcheck(lambda x: EXACT[name](x, mask), scores.requires_grad_())


@pytest.mark.parametrize("name", NORMALISED)
@settings(max_examples=20)
@given(seed=st.integers(0, 999), m=st.integers(1, 40), size=st.sampled_from([0.0, 0.1, 1.0, 30.0, 1000.0]))
def test_rows_sum_to_one(name, seed, m, size):
    scores = size * torch.randn(3, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weights = NORMALISED[name](scores)
    close(weights.sum(-1), torch.ones(3, dtype=torch.float64), atol=1e-10)
    assert (weights >= 0).all()


@pytest.mark.parametrize("name", EXACT)
def test_a_row_is_its_attendable_part(name):
    scores, mask = scores_and_mask(4, 7)
    weights = EXACT[name](scores, mask)
    for row in range(1, 4):
        close(weights[row][mask[row]], EXACT[name](scores[row][mask[row]]))


@pytest.mark.parametrize("name", EXACT)
def test_the_keys_may_be_on_any_axis(name):
    scores, mask = scores_and_mask()
    wanted = EXACT[name](scores, mask)
    moved = EXACT[name](scores.transpose(1, 2), mask.transpose(1, 2), dim=1)
    close(moved.transpose(1, 2), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EXACT)
def test_low_precision_is_aligned_in_float32(name, dtype):
    scores, mask = scores_and_mask(dtype=torch.float32)
    scores = scores.to(dtype)
    weights = EXACT[name](scores, mask)
    assert weights.dtype == dtype
    wanted = EXACT[name](scores.double(), mask)
    close(weights.double(), wanted, atol=2e-5 if dtype == torch.float32 else 1e-2)
    assert (weights[~mask] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ALIGNMENTS)
def test_fully_masked_rows_with_a_low_temperature_stay_zero(name, dtype):
    scores = torch.full((2, 4), 3e4, dtype=dtype, requires_grad=True)
    mask = torch.zeros(2, 4, dtype=torch.bool)
    weights = ALIGNMENTS[name](scores * 1.0, mask)
    assert (weights == 0).all()
    if weights.requires_grad:
        weights.float().sum().backward()
        assert (scores.grad == 0).all()
    cold = masked_softmax(scores, mask, temperature=1e-3)
    assert (cold == 0).all()


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_scores_of_minus_infinity_are_masked(name):
    scores, mask = scores_and_mask()
    filled = scores.masked_fill(~mask, -torch.inf).requires_grad_()
    weights = ALIGNMENTS[name](filled)
    close(weights, ALIGNMENTS[name](scores, mask))
    if weights.requires_grad:
        weights.square().sum().backward()
        assert filled.grad.isfinite().all()


@pytest.mark.parametrize("name", [*(name for name in NORMALISED if name != "cool softmax"), *SAMPLED])
def test_the_lowest_score_hides_nothing(name):
    """A row of it is a row of zeros: masked keys have no part in either."""
    _, mask = scores_and_mask()
    low = torch.full((B, L, S), torch.finfo(torch.float64).min, dtype=torch.float64, requires_grad=True)
    weights = ALIGNMENTS[name](low, mask)
    close(weights, ALIGNMENTS[name](torch.zeros_like(low), mask))
    if weights.requires_grad:
        (first,) = torch.autograd.grad(weights.square().sum(), low, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), low, materialize_grads=True)
        assert first.isfinite().all() and second.isfinite().all()


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "sigmoid", "tanh", "entmax 1.5", "argmax"])
def test_bias_is_added_before_masking(name):
    scores, mask = scores_and_mask()
    bias = torch.randn(L, S, dtype=torch.float64)
    bias[1, 2] = -torch.inf
    got = ALIGNMENTS[name](scores, mask, bias=bias)
    close(got, ALIGNMENTS[name](scores + bias, mask))
    assert (got[:, 1, 2] == 0).all()


test_bad_masks = pytest.mark.parametrize("name", ALIGNMENTS)(refused(
    (torch.ones(2, 3, 4), TypeError, "boolean"),
    *((torch.ones(shape) > 0, r"mask: .*broadcasts") for shape in ((2, 3, 5), (3, 3, 4), (1, 2, 3, 4))),
    by=lambda mask, *, name: ALIGNMENTS[name](torch.randn(2, 3, 4), mask),
))  # fmt: skip


NONE = (0.0, -1.0, math.nan)

test_bad_temperatures = refused(
    *((lambda t=t: masked_softmax(torch.zeros(3), temperature=t), "temperature") for t in NONE),
    *((lambda of=of, t=t: of(torch.zeros(2, 3), temperature=t), "^temperature: expected finite numbers above 0")
      for of in (masked_softmax, sparsemax, sigmoid_alignment, hard_alignment)
      for one in NONE for t in (torch.tensor(one), nn.Parameter(torch.tensor([[1.0], [one]])))),
    (lambda: masked_softmax(torch.zeros(3, dtype=torch.long)), TypeError, "floating-point"),
)  # fmt: skip
