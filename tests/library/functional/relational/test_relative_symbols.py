"""Relative symbols under weights: sums in float32, indices that are checked, no symbol for every pair."""

from __future__ import annotations

import pytest
import torch

from dual_attention.functional import (
    OffsetSymbols,
    RelativeSymbols,
    disentangled_relational_cross_attention,
    reference,
    relational_attention,
    relational_cross,
    relational_cross_attention,
)
from dual_attention.functional.relational.relative_symbols import (
    attend_to_symbols,
    has_symbol_per_pair,
    summed_by_symbol,
)
from tests.support.tensors import normal


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_many_small_weights_of_one_symbol_are_not_lost(dtype):
    """Summed in bfloat16, equal weights stop growing at 256 times one of them."""
    alpha = torch.full((1, 1, 1, 4096), 2.0**-12, dtype=dtype)
    beta = summed_by_symbol(alpha, torch.zeros(1, 4096, dtype=torch.long), 1)
    assert beta.dtype == dtype and beta.item() == 1.0


@pytest.mark.parametrize("impl", ["dense", "linear"])
@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_clipped_offsets_of_a_long_sequence_in_bfloat16(impl, activation):
    m = 1024
    q, k, relations = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, m, 2), torch.zeros(1, m, 1, 1)
    low = [x.bfloat16() for x in (q, k, relations[:, :1], relations)]
    table = torch.ones(3, 1, 4).bfloat16().requires_grad_()
    w_r = torch.zeros(1, 4, 1).bfloat16()
    arguments = {"scale": 1.0, "rel_scale": 1.0, "rel_activation": activation, "impl": impl}
    output = relational_attention(*low, OffsetSymbols(table, 1, m), w_r, **arguments).output
    torch.testing.assert_close(output.float(), torch.ones(1, 1, 1, 4), atol=0.01, rtol=0)
    (grad,) = torch.autograd.grad(output.sum(), table)
    torch.testing.assert_close(grad.float().sum(0), torch.ones(1, 4), atol=0.01, rtol=0)


@pytest.mark.parametrize("symbol_per_pair", [None, False, True])
@pytest.mark.parametrize("integers", [torch.int64, torch.int32])
def test_summed_or_written_out_is_the_same(symbol_per_pair, integers):
    alpha, table = normal(2, 4, 5, 6), normal(3, 2, 4)
    symbols = RelativeSymbols(table, torch.randint(3, (5, 6), dtype=integers))
    ours = attend_to_symbols(alpha, symbols, symbol_per_pair=symbol_per_pair)
    torch.testing.assert_close(ours, reference.attend_to_symbols(alpha, symbols))


def test_symbols_of_pairs_are_told_by_their_number():
    assert has_symbol_per_pair(RelativeSymbols.from_dense(normal(7, 8, 2)), 7, 8)
    assert not has_symbol_per_pair(OffsetSymbols(normal(61, 2), 15, 16), 15, 16)
    assert not has_symbol_per_pair(normal(1, 2, 8, 3), 7, 8)


@pytest.mark.parametrize("operation", ["ra", "rca", "disrca"])
@pytest.mark.parametrize(
    "index, message",
    [
        (torch.full((4, 4), 3), r"^symbols.index: expected 0 to 2, rows of the library, got 3 to 3"),
        (torch.arange(-1, 15).view(4, 4) % 4 - 1, r"^symbols.index: expected 0 to 2"),
        (torch.zeros(4, 4, dtype=torch.long, device="meta"), "^symbols.index: expected a tensor on cpu"),
    ],
)
def test_indices_outside_the_library_are_refused(operation, index, message):
    q, symbols = normal(1, 1, 4, 2), RelativeSymbols(normal(3, 1, 2), index)
    with pytest.raises(ValueError, match=message):
        if operation == "ra":
            u = normal(1, 4, 1, 1)
            relational_attention(q, q, u, u, symbols, normal(1, 2, 1), scale=1.0, rel_scale=1.0)
        elif operation == "rca":
            relational_cross_attention(q, q, symbols, scale=1.0)
        else:
            disentangled_relational_cross_attention(q, q, q, q, symbols, scale=1.0)


@pytest.mark.parametrize("largest", [0, 10_000])
def test_rca_writes_no_has_symbol_per_pair(largest, monkeypatch):
    """Nothing larger than weights is kept, however wide symbols are."""
    monkeypatch.setattr(relational_cross, "LARGEST_WHOLE", largest)
    n, width = 16, 64
    q, table = normal(1, 1, n, width).requires_grad_(), normal(5, 1, width).requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        output, _ = relational_cross_attention(q, q, OffsetSymbols(table, n, n), scale=1.0, activation="tanh")
        disentangled_relational_cross_attention(q, q, q, q, OffsetSymbols(table, n, n), scale=1.0)
    assert output.shape == q.shape and max(kept) <= n * width < n * n * width


class OfLength(torch.nn.Module):
    """Both forms of relational cross-attention of a sequence with itself, of tensors that its length decides."""

    def __init__(self, relative):
        super().__init__()
        self.relative = relative

    def forward(self, x):
        x, n = x[:, None], x.shape[1]
        symbols = x
        if self.relative:
            symbols = OffsetSymbols(torch.linspace(0, 1, 4 * 19, dtype=x.dtype).view(19, 1, 4), n, n)
        ours, _ = relational_cross_attention(x, x, symbols, scale=0.5, activation="tanh")
        return ours + disentangled_relational_cross_attention(x, x, x, x, symbols, scale=0.5)[0]


@pytest.mark.parametrize("relative", [False, True])
def test_export_with_a_length_left_open(relative, monkeypatch):
    """One graph for lengths at which different ways would be taken."""
    monkeypatch.setattr(relational_cross, "LARGEST_WHOLE", 64)
    module = OfLength(relative)
    shapes = {"x": {1: torch.export.Dim("length", min=2, max=4096)}}
    exported = torch.export.export(module, (normal(2, 7, 4),), dynamic_shapes=shapes, strict=False).module()
    for n in (3, 20):
        x = normal(2, n, 4)
        torch.testing.assert_close(exported(x), module(x))
