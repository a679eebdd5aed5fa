"""Products of heads against the sums they stand for."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dual_attention.functional.relational.head_products import add_head_products, multiply_heads
from dual_attention.functional.relational.whole import grouped_matmul

sizes = {"groups": st.integers(1, 3), "rep": st.integers(1, 3), "batch": st.integers(1, 3), "shared": st.booleans()}


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@settings(deadline=None)
@given(**sizes, n=st.integers(1, 6), k=st.integers(1, 6), m=st.integers(1, 6))
def test_products(groups, rep, batch, shared, n, k, m):
    # Views of what projections make: heads side by side.
    a = draw(batch, n, groups * rep, k).permute(2, 0, 1, 3)
    b = draw(1 if shared else batch, m, groups, k).permute(2, 0, 3, 1)
    into = torch.full((groups * rep, batch, n, m), torch.nan, dtype=torch.float64)
    found = multiply_heads(a, b, into, 0.3)
    assert found is into
    torch.testing.assert_close(found, 0.3 * a @ b.repeat_interleave(rep, 0))


@settings(deadline=None)
@given(**sizes, n=st.integers(0, 6), k=st.integers(1, 6), m=st.integers(1, 6))
def test_products_with_derivatives(groups, rep, batch, shared, n, k, m):
    a = draw(batch, n, groups * rep, k).transpose(1, 2).requires_grad_()
    b = draw(1 if shared else batch, m, groups, k).permute(0, 2, 3, 1).requires_grad_()
    found, expected = grouped_matmul(a, b), a @ b.repeat_interleave(rep, 1)
    torch.testing.assert_close(found, expected)
    grad = draw(*expected.shape)
    ours, theirs = (torch.autograd.grad(product, (a, b), grad) for product in (found, expected))
    torch.testing.assert_close(ours, theirs)


@settings(deadline=None)
@given(**sizes, n=st.integers(1, 6), k=st.integers(1, 6), m=st.integers(1, 6))
def test_sums_of_products(groups, rep, batch, shared, n, k, m):
    a = draw(batch, n, groups * rep, k).permute(2, 0, 1, 3)
    b = draw(batch, n, groups * rep, m).permute(2, 0, 1, 3)
    before = draw(1 if shared else batch, k, groups, m).permute(2, 0, 1, 3)
    into = before.clone()
    add_head_products(a, b, into, 0.3)
    added = (a.transpose(-2, -1) @ b).unflatten(0, (groups, rep)).sum(1)
    torch.testing.assert_close(into, before + 0.3 * (added.sum(1, keepdim=True) if shared else added))
