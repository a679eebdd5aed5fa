import math

import pytest
import torch

from dual_attention.positional_encoding import (
    LearnedPositionalEmbeddings,
    RelativePositionalEncoding,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
    sinusoidal_table,
)
from tests.support.refusals import refused
from tests.support.tensors import normal


@pytest.mark.parametrize("dim", [6, 7])
def test_sinusoidal_table_is_the_formula_for_even_and_odd_widths(dim):
    table = sinusoidal_table(5, dim)
    for t in range(5):
        for feature in range(dim):
            angle = t / 10000 ** (2 * (feature // 2) / dim)
            wanted = math.sin(angle) if feature % 2 == 0 else math.cos(angle)
            assert table[t, feature] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("cls", [SinusoidalPositionalEncoding, LearnedPositionalEmbeddings])
def test_positions_are_added_to_the_scaled_input(cls):
    x = torch.randn(2, 4, 6)
    scaled, plain = cls(6, dropout=0.0, max_len=5), cls(6, scale=False, dropout=0.0, max_len=5)
    plain.load_state_dict(scaled.state_dict())
    torch.testing.assert_close(scaled(x) - math.sqrt(6) * x, plain(x) - x, atol=1e-5, rtol=0)
    positions = plain(x) - x
    torch.testing.assert_close(positions[0], positions[1])
    assert not torch.allclose(positions[0, 0], positions[0, 1])


test_bad_input = pytest.mark.parametrize("cls", [SinusoidalPositionalEncoding, LearnedPositionalEmbeddings])(refused(
    (lambda cls: cls(4, max_len=5)(torch.zeros(1, 6, 4)), "length 6 exceeds max_len=5"),
    *(
        (lambda cls, at=at: cls(4, max_len=5)(torch.zeros(1, 4, 4), torch.tensor(at)), "positions: expected")
        for at in ([[0, 1, 2, 5]], [[0, 1, 2, -1]], [0, 1, 2, 3], [[0.0, 1.0, 2.0, 3.0]])
    ),
    (lambda _: RotaryPositionalEncoding(4, 5)(torch.randn(1, 2, 6, 4)), "exceeds max_len=5"),
    (lambda _: RotaryPositionalEncoding(4, 5).tables_at(torch.tensor([[0, 5]])), r"positions: .*max_len=5\), got 0"),
    (lambda _: RotaryPositionalEncoding(4, 5).tables_at(torch.tensor([0, 4])), "positions: expected integers"),
    by=lambda call, *, cls: call(cls),
))  # fmt: skip


def test_relative_positions_are_clipped_offsets():
    table = RelativePositionalEncoding(3, 2)
    vectors = table(4, 5)
    assert vectors.shape == (4, 5, 3)
    for i in range(4):
        for j in range(5):
            assert torch.equal(vectors[i, j], table.rel_pos_embeddings[max(-2, min(2, j - i)) + 2])
    assert torch.equal(table(4), vectors[:, :4])


@pytest.mark.parametrize("most", [2, 3], ids=["by offset", "by pair"])
def test_scores_are_inner_products_with_the_vectors_of_the_pairs(most):
    """Gradients, too."""
    table, q = RelativePositionalEncoding(3, most).double(), normal(2, 4, 5, 3).requires_grad_()
    inputs, weights = (q, table.rel_pos_embeddings), normal(2, 4, 5, 6)
    found, expected = table.scores(q, 6), torch.einsum("bhnd,nmd->bhnm", q, table(5, 6))
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(scores, inputs, weights) for scores in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("cast", ["half", "bfloat16", "double", "float"])
def test_rope_tables_stay_float32_and_exact(cast):
    exact = RotaryPositionalEncoding(8, 3000)
    cosines = exact.freqs_cos.clone()
    module = torch.nn.Sequential(exact, torch.nn.Linear(2, 2))
    getattr(module, cast)()
    assert module[1].weight.dtype != torch.float32 or cast == "float"
    assert exact.freqs_cos.dtype == exact.freqs_sin.dtype == torch.float32
    assert torch.equal(exact.freqs_cos, cosines)
    assert not exact.state_dict()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sinusoidal_positions_are_there_after_to_empty_from_meta(dtype):
    with torch.device("meta"):
        module = SinusoidalPositionalEncoding(6, max_len=5).to(dtype)
    assert torch.equal(module.to_empty(device="cpu").pe, sinusoidal_table(5, 6).to(dtype))


def test_rope_tables_move_with_the_module():
    module = RotaryPositionalEncoding(8, 4).to("meta")
    assert module.freqs_cos.device.type == "meta"


def test_rope_turns_its_input():
    rope, x = RotaryPositionalEncoding(4, 5), torch.randn(1, 2, 5, 4)
    torch.testing.assert_close(rope(x).norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(rope(x)[:, :, 0], x[:, :, 0])


@pytest.mark.parametrize("cls", [SinusoidalPositionalEncoding, LearnedPositionalEmbeddings])
def test_positions_can_be_given(cls):
    encode, x = cls(6, dropout=0.0, max_len=5), torch.randn(2, 4, 6)
    whole, positions = encode(x), torch.arange(4)
    assert torch.equal(encode(x, positions[None]), whole)
    assert torch.equal(encode(x[:, 2:], positions[None, 2:]), whole[:, 2:])
    own = encode(x, torch.stack([positions, positions.flip(0)]))
    assert torch.equal(own[0], whole[0]) and torch.equal(own[1], encode(x.flip(1))[1].flip(0))


def test_relative_positions_of_later_receivers():
    table, q = RelativePositionalEncoding(3, 2).double(), normal(2, 4, 5, 3)
    assert torch.equal(table(2, 5, offset=3), table(5)[3:])
    assert torch.equal(table(2, offset=3), table(5)[3:])
    torch.testing.assert_close(table.scores(q[:, :, 3:], 5, offset=3), table.scores(q, 5)[:, :, 3:])


def test_rope_tables_at_positions():
    rope, positions = RotaryPositionalEncoding(4, 5), torch.tensor([[0, 4], [3, 3]])
    for at, whole in zip(rope.tables_at(positions), rope.tables(5), strict=True):
        assert at.shape == (2, 2, 2) and torch.equal(at, whole[positions])


def test_indices_of_relative_positions_are_made_where_the_parameters_are():
    """The published package makes them on the CPU."""
    assert RelativePositionalEncoding(3, 2).to("meta").index(4).device.type == "meta"
