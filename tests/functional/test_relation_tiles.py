"""Relations built in tiles against the sums that define them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dual_attention.functional import MaskPattern, relation_tiles
from dual_attention.functional.relation_tiles import RelationKeys, RelationTiles, even_part, parts
from dual_attention.functional.workspace import Workspace


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
    causal=st.booleans(),
)
def test_both_forms_give_the_sums_and_their_gradients(
    batch, heads, n_relations, width, rows, columns, tile, tiled, causal
):
    generator, scale = torch.Generator().manual_seed(0), 0.7

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    receivers, senders = slice(rows[0], sum(rows)), slice(columns[0], sum(columns))
    n, m = receivers.stop + 2, senders.stop + 2
    pattern = MaskPattern(n, m, causal=causal, offset=columns[0])
    u, w = draw(batch, n, n_relations, width).requires_grad_(), draw(batch, m, n_relations, width).requires_grad_()
    alpha = draw(heads, batch, rows[1], columns[1])
    allowed = pattern.block(receivers, senders, None)
    if allowed is not None:
        alpha *= allowed
    alpha.requires_grad_()
    grad = draw(batch, rows[1], heads, n_relations)
    expected = scale * torch.einsum("hbij,bilp,bjlp->bihl", alpha, u[:, receivers], w[:, senders])
    expected.backward(grad)
    assert alpha.grad is not None and u.grad is not None and w.grad is not None

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(relation_tiles, "TILE", tile)
        patch.setattr(relation_tiles, "prefers_tiles", lambda heads, p: tiled)
        relations = relation_tiles.relations_under_weights(heads, u, w, scale, pattern, Workspace(u))
        assert isinstance(relations, RelationTiles if tiled else RelationKeys)
        torch.testing.assert_close(relations.attend(alpha, receivers, senders), expected)
        before = draw(*alpha.shape)
        dalpha, du = before.clone(), torch.full_like(u[:, receivers], torch.nan)
        dw = relations.sum_of_keys()
        # Gradients of keys and weights are sums over calls.
        relations.backward_(grad, alpha, receivers, senders, dalpha, du, dw)
        relations.backward_(grad, alpha, receivers, senders, dalpha, du, dw)
    added = before + 2 * alpha.grad
    if allowed is not None:  # what masked weights would get does not matter
        added, dalpha = added.where(allowed, 0.0), dalpha.where(allowed, 0.0)
    torch.testing.assert_close(dalpha, added)
    torch.testing.assert_close(du, u.grad[:, receivers])
    torch.testing.assert_close(relations.gradient_of_keys(dw), 2 * w.grad)


def test_tiles_in_which_nothing_may_be_attended_are_left_out(monkeypatch):
    monkeypatch.setattr(relation_tiles, "TILE", 8 * 128)
    u = torch.randn(1, 256, 1, 4)
    tiles = RelationTiles(u, u, 1.0, MaskPattern(256, 256, causal=True, window=100), Workspace(u))
    pairs = torch.zeros(128, 256)
    rows = slice(128, 256)
    for _, i, senders in tiles.tiles(torch.Size((2, 1, 128, 256)), rows, slice(0, 256)):
        for j in senders:
            pairs[i, j] += 1
    allowed = tiles.pattern.block(rows, slice(0, 256), None)
    assert allowed is not None
    allowed = allowed[0, 0]
    assert (pairs[allowed] == 1).all()
    assert pairs.max() == 1
    assert pairs.sum() < 1.1 * allowed.sum()


@pytest.mark.parametrize(
    ("length", "most", "part"), [(10, 10, 10), (11, 10, 6), (9, 10, 9), (25, 10, 9), (1, 1, 1), (0, 3, 1)]
)
def test_parts_are_even(length: int, most: int, part: int):
    assert even_part(length, most) == part


@settings(deadline=None)
@given(st.integers(-3, 40), st.integers(-3, 40), st.integers(1, 50))
def test_parts_cover_a_range(start: int, stop: int, size: int):
    slices = parts(start, stop, size)
    assert [place for part in slices for place in range(part.start, part.stop)] == list(range(start, stop))
    assert all(part.stop - part.start <= size for part in slices)
