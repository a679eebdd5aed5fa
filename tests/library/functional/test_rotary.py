import pytest
import torch

from dual_attention.functional import apply_rotary, rotary, rotary_tables
from dual_attention.functional.rotary import axial_rotary_tables
from tests.support.refusals import refused


def test_rotation_is_multiplication_by_a_unit_complex_number():
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    cos, sin = rotary_tables(8, 5)
    turn = torch.complex(cos.double(), sin.double())
    wanted = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)
    torch.testing.assert_close(apply_rotary(x, cos, sin), wanted, atol=1e-12, rtol=0)


def test_inner_products_depend_on_the_distance_alone():
    q, k = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    tables = rotary_tables(8, 12)
    rotated_q = apply_rotary(q.expand(1, 1, 12, 8), *tables)[0, 0]
    rotated_k = apply_rotary(k.expand(1, 1, 12, 8), *tables)[0, 0]
    products = rotated_q @ rotated_k.T
    for offset in range(-3, 4):
        diagonal = products.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-5, rtol=0)


def test_inner_products_in_a_grid_depend_on_rows_and_columns_apart():
    q, k = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    tables = axial_rotary_tables(8, 3, 4)
    rotated_q, rotated_k = (apply_rotary(x.expand(1, 1, 12, 8), *tables) for x in (q, k))
    products = (rotated_q @ rotated_k.mT).view(3, 4, 3, 4)
    torch.testing.assert_close(products[:2, :3, :2, :3], products[1:, 1:, 1:, 1:], atol=1e-6, rtol=0)
    assert products[0, 0].unique().numel() == 12


def test_half_precision_is_rotated_in_float32():
    x = torch.randn(1, 1, 300, 4)
    tables = rotary_tables(4, 300)
    assert torch.equal(apply_rotary(x.bfloat16(), *tables), apply_rotary(x.bfloat16().float(), *tables).bfloat16())


def test_longer_tables_serve_shorter_sequences():
    x = torch.randn(1, 2, 3, 4)
    assert torch.equal(apply_rotary(x, *rotary_tables(4, 9)), apply_rotary(x, *rotary_tables(4, 3)))


test_bad_tables_are_refused = refused(
    (lambda x: apply_rotary(x, *rotary_tables(4, 2)), "at least 3 rows"),
    (lambda x: apply_rotary(x, *rotary_tables(8, 3)), "2 columns"),
    (lambda x: apply_rotary(x[:, :, :2], *rotary_tables(4, 9), offset=8), "at least 10 rows"),
    (lambda x: apply_rotary(x, *torch.zeros(2, 3, 4, 2)), "each of 2 examples"),
    (lambda x: rotary_tables(3, 4), "even"),
    by=lambda call: call(torch.randn(2, 2, 3, 4)),
)


def test_later_tokens_continue_the_rotation():
    x, (cos, sin) = torch.randn(2, 3, 7, 4, dtype=torch.float64), rotary_tables(4, 9)
    torch.testing.assert_close(apply_rotary(x[:, :, 5:], cos, sin, offset=5), apply_rotary(x, cos, sin)[:, :, 5:])


def test_tables_for_each_example():
    x, (cos, sin) = torch.randn(2, 3, 4, 4, dtype=torch.float64), rotary_tables(4, 9)
    positions = torch.tensor([[0, 1, 2, 3], [5, 0, 8, 8]])
    turned = apply_rotary(x, cos[positions], sin[positions])
    for row in range(2):
        wanted = apply_rotary(x[row : row + 1], cos[positions[row]], sin[positions[row]])
        torch.testing.assert_close(turned[row : row + 1], wanted)
    later = apply_rotary(x[:, :, 1:], cos[positions], sin[positions], offset=1)
    torch.testing.assert_close(later, turned[:, :, 1:])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["rows", "heads side by side", "odd strides", "odd offset", "backwards"])
def test_pairs_as_complex_numbers(dtype, layout):
    cos, sin = (table[:5] for table in rotary_tables(6, 9))
    tensors = {
        "rows": lambda: torch.randn(2, 3, 5, 6, dtype=dtype),
        "heads side by side": lambda: torch.randn(2, 5, 3, 6, dtype=dtype).transpose(1, 2),
        "odd strides": lambda: torch.randn(2, 3, 5, 7, dtype=dtype)[..., 1:],
        "odd offset": lambda: torch.randn(181, dtype=dtype)[1:].view(2, 3, 5, 6),
        "backwards": lambda: torch.randn(2, 3, 6, 5, dtype=dtype).transpose(2, 3),
    }
    x, grad = tensors[layout]().requires_grad_(), torch.randn(2, 3, 5, 6, dtype=dtype)
    fast, by_parts = apply_rotary(x, cos, sin), rotary._turn_by_parts(x, cos, sin)
    torch.testing.assert_close(fast, by_parts)
    torch.testing.assert_close(torch.autograd.grad(fast, x, grad), torch.autograd.grad(by_parts, x, grad))


@pytest.mark.parametrize("of_tables", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("of_x", [torch.bfloat16, torch.float32])
def test_tables_of_another_type(of_tables, of_x):
    x, (cos, sin) = torch.randn(2, 3, 5, 6, dtype=of_x), (table.to(of_tables) for table in rotary_tables(6, 5))
    rotated = apply_rotary(x, cos, sin)
    assert rotated.dtype == of_x
    torch.testing.assert_close(rotated, rotary._turn_by_parts(x, cos, sin))


def test_derivatives_of_rotation():
    x = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    cos, sin = (table.double() for table in rotary_tables(4, 3))
    assert torch.autograd.gradcheck(lambda x: apply_rotary(x, cos, sin), x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x: apply_rotary(x, cos, sin), x)
    learned = cos.clone().requires_grad_()  # frequencies may learn, too
    assert torch.autograd.gradcheck(lambda cos: apply_rotary(x, cos, sin), learned)
    mapped = torch.func.vmap(lambda x: apply_rotary(x, cos, sin), in_dims=1)(x[None])
    torch.testing.assert_close(mapped, apply_rotary(x, cos, sin)[:, None])
