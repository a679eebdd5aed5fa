"""Relations built in tiles against the sums that define them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dual_attention.functional import relation_tiles
from dual_attention.functional.relation_tiles import RelationKeys, RelationTiles, Workspace, even_part


@settings(deadline=None, max_examples=40)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    n_relations=st.integers(1, 5),
    width=st.integers(1, 4),
    rows=st.tuples(st.integers(0, 20), st.integers(1, 20)),
    columns=st.tuples(st.integers(0, 300), st.integers(1, 300)),
    tile=st.sampled_from([1, 512, 4096, 2**20]),
    form=st.sampled_from([RelationTiles, RelationKeys]),
)
def test_both_forms_give_the_sums_and_their_gradients(batch, heads, n_relations, width, rows, columns, tile, form):
    generator, scale = torch.Generator().manual_seed(0), 0.7

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    receivers, senders = slice(rows[0], sum(rows)), slice(columns[0], sum(columns))
    u = draw(batch, receivers.stop + 2, n_relations, width).requires_grad_()
    w = draw(batch, senders.stop + 2, n_relations, width).requires_grad_()
    alpha = draw(batch, heads, rows[1], columns[1]).requires_grad_()
    grad = draw(batch, rows[1], heads, n_relations)
    expected = scale * torch.einsum("bhij,bilp,bjlp->bihl", alpha, u[:, receivers], w[:, senders])
    expected.backward(grad)

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(relation_tiles, "TILE", tile)
        relations = form(u, w, scale, Workspace(u))
        torch.testing.assert_close(relations.attend(alpha, receivers, senders), expected)
        before = draw(*alpha.shape)
        dalpha = before.clone()
        dw = relations.sum_of_keys()
        # Gradients of keys and weights are sums over calls.
        relations.backward_(grad, alpha, receivers, senders, dalpha, dw)
        du = relations.backward_(grad, alpha, receivers, senders, dalpha, dw)
    torch.testing.assert_close(dalpha, before + 2 * alpha.grad)
    torch.testing.assert_close(du, u.grad[:, receivers])
    torch.testing.assert_close(relations.gradient_of_keys(dw), 2 * w.grad)


def test_a_workspace_gives_the_same_memory_again():
    workspace = Workspace(torch.zeros(1, dtype=torch.float64))
    first = workspace.tensor("a", 4, 5)
    assert first.dtype == torch.float64
    assert workspace.tensor("a", 2, 3).data_ptr() == first.data_ptr()
    assert workspace.tensor("b", 2, 3).data_ptr() != first.data_ptr()
    assert workspace.tensor("a", 100).shape == (100,)


@pytest.mark.parametrize(
    ("length", "most", "part"), [(10, 10, 10), (11, 10, 6), (9, 10, 9), (25, 10, 9), (1, 1, 1), (0, 3, 1)]
)
def test_parts_are_even(length: int, most: int, part: int):
    assert even_part(length, most) == part
