import pytest
import torch

from dual_attention.functional import combine, masked_mean
from tests.support.refusals import refused

B, L, S, D = 2, 3, 4, 5


def test_the_four_combinations_agree_when_the_extra_axes_are_constant():
    weights = torch.rand(B, L, S, dtype=torch.float64)
    values = torch.randn(B, S, D, dtype=torch.float64)
    wide, pairs = weights[..., None].expand(-1, -1, -1, D), values[:, None].expand(-1, L, -1, -1)
    wanted = combine(weights, values)
    for got in (
        combine(weights, pairs, pairwise=True),
        combine(wide, values, multidim=True),
        combine(wide, pairs, multidim=True, pairwise=True),
    ):
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize("multidim", [False, True])
@pytest.mark.parametrize("pairwise", [False, True])
def test_formula_and_leading_axes(multidim, pairwise):
    weights = torch.rand(B, 1, L, S, *((D,) if multidim else ()), dtype=torch.float64)
    values = torch.randn(B, 6, *((L,) if pairwise else ()), S, D, dtype=torch.float64)
    context = combine(weights, values, multidim=multidim, pairwise=pairwise)
    assert context.shape == (B, 6, L, D)
    wanted = torch.zeros(L, D, dtype=torch.float64)
    for s in range(S):
        a, v = weights[1, 0, :, s], values[1, 4, ..., s, :]
        wanted += (a if multidim else a[:, None]) * v
    torch.testing.assert_close(context[1, 4], wanted, atol=1e-12, rtol=0)


def test_the_type_is_that_of_the_values():
    assert combine(torch.rand(2, 3), torch.randn(3, 4).half()).dtype == torch.float16


test_shapes_that_do_not_fit = refused(
    *((*row, "expected a shape that fits") for row in (
        ((B, L, S), (B, S + 1, D), {}),
        ((B, L, S), (B, S, D), {"pairwise": True}),
        ((B, L, S), (B, L + 1, S, D), {"pairwise": True}),
        ((B, L, S, D), (B, S, D + 1), {"multidim": True}),
        ((B, L, S, D), (B, L, S, D), {"multidim": True}),
    )),
    by=lambda weights, values, options: combine(torch.zeros(weights), torch.zeros(values), **options),
)  # fmt: skip


def test_masked_mean():
    x = torch.randn(3, S, D, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True] * 4, [True, False, True, False], [False] * 4])
    mean = masked_mean(x, mask)
    torch.testing.assert_close(mean[0], x[0].mean(0))
    torch.testing.assert_close(mean[1], x[1, ::2].mean(0))
    assert (mean[2] == 0).all()
    mean.sum().backward()
    assert (x.grad[~mask] == 0).all()
    torch.testing.assert_close(masked_mean(x), x.mean(1))
    large, shown = (
        torch.full((1, 2048, D), 40.0).half(),
        torch.ones(1, 2048, dtype=torch.bool),
    )  # summing beyond float16
    assert (masked_mean(large) == 40).all() and (masked_mean(large, shown) == 40).all()
    assert (masked_mean(x[:, :0]) == 0).all() and (masked_mean(x[:, :0], mask[:, :0]) == 0).all()


test_masks_of_a_mean = refused(
    (torch.ones(3, S), TypeError, "boolean"),
    (torch.ones(2, S) > 0, "mask"),
    by=lambda mask: masked_mean(torch.zeros(3, S, D), mask),
)
