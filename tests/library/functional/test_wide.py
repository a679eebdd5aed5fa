"""Products in float32 of tensors that are not copied, and what a decoded token is spared where launches are dear."""

from __future__ import annotations

import pytest
import torch
import torch.utils.flop_counter

from dual_attention import RelationalSymbolicAttention
from dual_attention.functional import reference, relational_attention, wide
from dual_attention.functional.reference import scores_for_softmax
from dual_attention.functional.relational import whole
from dual_attention.functional.wide import wide_products


@pytest.fixture
def on_a_gpu(monkeypatch):
    """As if tensors were on a GPU: this product exists there only."""
    multiply = torch.bmm
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch, "bmm", lambda a, b, out_dtype: multiply(a.to(out_dtype), b.to(out_dtype)))
    monkeypatch.setattr(wide, "WRITES_WIDE", True)


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [0.125, 0.3, 1.0])
def test_wide_scores_are_those_of_copies(dtype, scale):
    q, k = (30 * torch.randn(2, 3, n, 8).to(dtype) for n in (1, 5))
    found, expected = scores_for_softmax(q, k, scale), scale * (q.float() @ k.float().transpose(-2, -1))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)


def test_products_that_only_copies_give():
    a = torch.zeros(2, 3, 4, dtype=torch.bfloat16, device="meta")
    assert (wide_products(a, a.mT, 1.0) is not None) == wide.WRITES_WIDE
    here = torch.zeros(2, 3, 4).bfloat16()
    assert wide_products(here, here.mT, 1.0) is None
    assert wide_products(a[0], a[0].mT, 1.0) is None
    assert wide_products(a, a[:1].mT, 1.0) is None
    assert wide_products(a.clone().requires_grad_(), a.mT, 1.0) is None
    with torch.utils.flop_counter.FlopCounterMode(display=False):  # which knows no such product
        assert wide_products(a, a.mT, 1.0) is None


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("rel_scale", [1.0, 0.3])
def test_one_receiver_by_fewer_operations(monkeypatch, batch, rel_scale):
    alpha, u, w = torch.rand(batch, 4, 1, 9), torch.randn(batch, 1, 5, 2), torch.randn(batch, 9, 5, 2)
    symbols, w_r = torch.randn(batch, 4, 1, 6), torch.randn(4, 6, 5)
    results = []
    for spared in (False, True):
        monkeypatch.setattr(torch.Tensor, "is_cpu", not spared)
        relations = whole.attend_to_relations(alpha, u, w, rel_scale)
        results.append((relations, whole.messages(symbols, relations, w_r)))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("hooked", ["", "q_proj", "model_dim_proj"])
@pytest.mark.parametrize("options", [{}, {"include_self": True}, {"normalize_rels": False}])
def test_neighbours_in_a_row_are_those_by_their_places(monkeypatch, options, hooked):
    retriever, x = RelationalSymbolicAttention(16, 2, 2, 4, nbhd_delta=3, **options), torch.randn(2, 7, 16)
    if hooked:  # and so called, not joined with others or turned round
        retriever.get_submodule(hooked).register_forward_hook(lambda module, inputs, output: 2 * output)
    whole_text = retriever(x)
    monkeypatch.setattr("dual_attention.symbol_retrieval.saves_launches", lambda x: True)
    cache = retriever.new_cache()
    with torch.no_grad():
        symbols = torch.cat([retriever(token, cache=cache) for token in x.split(1, dim=1)], dim=1)
    torch.testing.assert_close(symbols, whole_text)


@pytest.mark.parametrize("splits", [1, 3, 4, 13])
@pytest.mark.parametrize(("groups", "width"), [(4, 6), (2, 3)])
def test_sums_in_splits_are_those_of_all_senders(splits, groups, width):
    weights, values = torch.rand(2, groups, 2, 9, dtype=torch.float64), torch.randn(2, groups, 9, width).double()
    torch.testing.assert_close(whole.sum_in_splits(weights, values, splits), weights @ values)


@pytest.mark.parametrize("groups", [1, 4])
def test_a_token_among_many_is_summed_in_splits(monkeypatch, groups):
    monkeypatch.setattr(whole, "SENDERS_OF_SPLIT", 4)
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    calls, split = [], whole.sum_in_splits
    monkeypatch.setattr(whole, "sum_in_splits", lambda *arguments: calls.append(arguments[2]) or split(*arguments))
    for n, m, expected in ((1, 12, [3, 3]), (1, 11, []), (1, 4, []), (2, 12, [])):
        calls.clear()
        alpha, symbols = torch.rand(2, 4, n, m).double(), torch.randn(2, groups, m, 6).double()
        u, w = torch.randn(2, n, 5, 2).double(), torch.randn(2, m, 5, 2).double()
        relations = reference.relations(u, w, scale=0.3)
        torch.testing.assert_close(
            whole.attend_to_relations(alpha, u, w, 0.3), torch.einsum("bhnm,bnmr->bhnr", alpha, relations)
        )
        torch.testing.assert_close(whole.attend_to_symbols(alpha, symbols), reference.attend_to_symbols(alpha, symbols))
        assert calls == expected


def test_a_token_is_hidden_from_by_a_sum(monkeypatch):
    """As by the reference, also where nothing may be attended."""
    q, k, u, w = (torch.randn(2, *shape).double() for shape in ((4, 1, 6), (4, 9, 6), (1, 5, 2), (9, 5, 2)))
    symbols, w_r = torch.randn(2, 4, 9, 6).double(), torch.randn(4, 6, 5).double()
    mask = torch.rand(2, 4, 1, 9) > 0.5
    mask[0, 1] = False
    options = {"scale": 0.3, "rel_scale": 0.7, "mask": mask}
    expected = relational_attention(q, k, u, w, symbols, w_r, **options, impl="reference").output
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    monkeypatch.setattr(whole.reference, "softmax_over_senders", lambda *_: pytest.fail("the longer way"))
    torch.testing.assert_close(relational_attention(q, k, u, w, symbols, w_r, **options, impl="dense").output, expected)
