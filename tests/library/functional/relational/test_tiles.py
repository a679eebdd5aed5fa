"""Relations built in tiles against the sums that define them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dual_attention.functional.relational import linear
from dual_attention.functional.relational import tiles as relation_tiles
from dual_attention.functional.relational.tiles import RelationKeys, RelationTiles, even_part, slices
from dual_attention.functional.relational.workspace import Workspace


@settings(deadline=None, max_examples=60)
@given(
    batch=st.integers(1, 4),
    heads=st.integers(1, 3),
    n_relations=st.integers(1, 5),
    width=st.integers(1, 4),
    rows=st.tuples(st.integers(0, 20), st.integers(1, 20)),
    columns=st.tuples(st.integers(0, 300), st.integers(1, 300)),
    tile=st.sampled_from([1, 64, 512, 4096, 2**20]),
    tiled=st.booleans(),
)
def test_both_forms_give_the_sums_and_their_gradients(batch, heads, n_relations, width, rows, columns, tile, tiled):
    generator, scale = torch.Generator().manual_seed(0), 0.7

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    receivers, senders = slice(rows[0], sum(rows)), slice(columns[0], sum(columns))
    u = draw(batch, receivers.stop + 2, n_relations, width).requires_grad_()
    w = draw(batch, senders.stop + 2, n_relations, width).requires_grad_()
    alpha = draw(heads, batch, rows[1], columns[1]).requires_grad_()
    grad = draw(batch, rows[1], heads, n_relations)
    expected = scale * torch.einsum("hbij,bilp,bjlp->bihl", alpha, u[:, receivers], w[:, senders])
    expected.backward(grad)
    assert alpha.grad is not None and u.grad is not None and w.grad is not None

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(relation_tiles, "TILE", tile)
        patch.setattr(relation_tiles, "prefers_tiles", lambda heads, p, **_: tiled)
        relations = relation_tiles.relations_under_weights(heads, u, w, scale, Workspace(u))
        assert isinstance(relations, RelationTiles if tiled else RelationKeys)
        torch.testing.assert_close(relations.attend(alpha, receivers, senders), expected)
        before = draw(*alpha.shape)
        dalpha, du = before.clone(), torch.full_like(u[:, receivers], torch.nan)
        dw = relations.sum_of_keys()
        # Gradients of keys and weights are sums over calls.
        relations.backward_(grad, alpha, receivers, senders, dalpha, du, dw)
        relations.backward_(grad, alpha, receivers, senders, dalpha, du, dw)
    torch.testing.assert_close(dalpha, before + 2 * alpha.grad)
    torch.testing.assert_close(du, u.grad[:, receivers])
    torch.testing.assert_close(relations.gradient_of_keys(dw), 2 * w.grad)


@pytest.mark.parametrize(
    ("length", "most", "part"), [(10, 10, 10), (11, 10, 6), (9, 10, 9), (25, 10, 9), (1, 1, 1), (0, 3, 1)]
)
def test_parts_are_even(length: int, most: int, part: int):
    assert even_part(length, most) == part


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(1, 50))
def test_parts_cover_a_length(length: int, size: int):
    cut = slices(length, size)
    assert [place for part in cut for place in range(part.start, part.stop)] == list(range(length))
    assert all(part.stop - part.start <= size for part in cut)


@pytest.mark.parametrize(
    ("batch", "n_relations", "rows", "m", "p", "examples"),
    [
        (128, 6, 65, 65, 32, 32),  # as many as have the weights of a block, evenly
        (8, 64, 64, 64, 8, 8),
        (8, 64, 128, 256, 8, 1),  # a tile has no room for two
        (8, 64, 128, 256, 1, 4),  # no tiles
        (2, 1, 0, 5, 8, 2),
    ],
)
def test_how_many_examples_are_taken_at_a_time(batch, n_relations, rows, m, p, examples):
    heads = 6 if p == 32 else 8
    assert linear.examples_at_a_time(batch, heads, rows, m, n_relations, p, on_cpu=True) == examples
    assert linear.examples_at_a_time(batch, heads, rows, m, n_relations, p, on_cpu=False) == batch


@pytest.mark.parametrize(("has", "dtype", "tiles"), [(True, torch.bfloat16, False), (False, torch.bfloat16, True)])
def test_large_products_in_bfloat16_where_the_processor_has_them(monkeypatch, has, dtype, tiles):
    monkeypatch.setattr(relation_tiles, "_HAS_BFLOAT16", has)
    u, w = torch.randn(1, 24, 64, 8, dtype=dtype), torch.randn(1, 40, 64, 8, dtype=dtype)
    for x, expected in ((u, tiles), (u.float(), True)):
        relations = relation_tiles.relations_under_weights(8, x, w.to(x.dtype), 1.0, Workspace(x))
        assert isinstance(relations, relation_tiles.RelationTiles) == expected
