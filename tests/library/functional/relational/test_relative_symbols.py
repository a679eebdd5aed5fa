"""Relative symbols under weights: sums in float32, indices that are checked, no symbol for every pair."""

import pytest
import torch

from dual_attention import functional
from dual_attention.functional.relational import linear
from dual_attention.functional.relational.whole import attend_to_symbols, has_symbol_per_pair, summed_by_symbol
from tests.support.combinations import mostly_slow
from tests.support.refusals import refusals
from tests.support.tensors import normal


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_many_small_weights_of_one_symbol_are_not_lost(dtype):
    """Summed in bfloat16, equal weights stop growing at 256 times one of them."""
    alpha = torch.full((1, 1, 1, 4096), 2.0**-12, dtype=dtype)
    beta = summed_by_symbol(alpha, torch.zeros(1, 4096, dtype=torch.long), 1)
    assert beta.dtype == dtype and beta.item() == 1.0


@pytest.mark.parametrize("impl", ["dense", "linear", "blockwise"])
@pytest.mark.parametrize("batch, n, m", [(1, 200, 1024), (600, 2, 4)])
def test_clipped_offsets_in_bfloat16_beside_float64(impl, batch, n, m, monkeypatch):
    """Sums over many senders; for the gradient over many blocks, or many examples of pairs that are written out."""
    monkeypatch.setattr(linear, "block_size", lambda heads, m: 2)
    monkeypatch.setattr(linear, "examples_at_a_time", lambda *_, **more: 1)
    shapes = (batch, 1, n, 2), (batch, 1, m, 2), (batch, n, 1, 1), (batch, m, 1, 1), (3, 1, 4), (1, 4, 1)
    low = [normal(*shape).bfloat16() for shape in shapes]

    def results(impl, *tensors):
        q, k, u, w, table, w_r = tensors
        symbols = functional.OffsetSymbols(table.abs().requires_grad_(), n, m)
        how = {"scale": 0.1, "rel_scale": 1.0, "impl": impl}
        output = functional.relational_attention(q, k, u, 0 * w, symbols, w_r, **how).output
        return output, *torch.autograd.grad(output.sum(), symbols.library)

    for ours, wanted in zip(results(impl, *low), results("reference", *(x.double() for x in low)), strict=True):
        torch.testing.assert_close(ours.double(), wanted, rtol=0.02, atol=0)


@pytest.mark.parametrize("symbol_per_pair", [None, False, True])
@pytest.mark.parametrize("integers", [torch.int64, torch.int32])
def test_summed_or_written_out_is_the_same(symbol_per_pair, integers):
    alpha, table = normal(2, 4, 5, 6), normal(3, 2, 4)
    symbols = functional.RelativeSymbols(table, torch.randint(3, (5, 6), dtype=integers))
    ours = attend_to_symbols(alpha, symbols, symbol_per_pair=symbol_per_pair)
    torch.testing.assert_close(ours, functional.reference.attend_to_symbols(alpha, symbols))


def test_symbols_of_pairs_are_told_by_their_number():
    assert has_symbol_per_pair(functional.RelativeSymbols.from_dense(normal(7, 8, 2)), 7, 8)
    assert not has_symbol_per_pair(functional.OffsetSymbols(normal(61, 2), 15, 16), 15, 16)
    assert not has_symbol_per_pair(normal(1, 2, 8, 3), 7, 8)


@pytest.mark.parametrize("operation", ["ra", "rca", "disrca"])
@refusals(
    (torch.full((4, 4), 3), r"^symbols.index: expected 0 to 2, rows of the library, got 3 to 3"),
    (torch.arange(-1, 15).view(4, 4) % 4 - 1, r"^symbols.index: expected 0 to 2"),
    (torch.zeros(4, 4, dtype=torch.long, device="meta"), "^symbols.index: expected a tensor on cpu"),
    of="index",
)
def test_indices_outside_the_library_are_refused(operation, index, error, message):
    q, symbols = normal(1, 1, 4, 2), functional.RelativeSymbols(normal(3, 1, 2), index)
    with pytest.raises(error, match=message):
        if operation == "ra":
            u = normal(1, 4, 1, 1)
            functional.relational_attention(q, q, u, u, symbols, normal(1, 2, 1), scale=1.0, rel_scale=1.0)
        elif operation == "rca":
            functional.relational_cross_attention(q, q, symbols, scale=1.0)
        else:
            functional.disentangled_relational_cross_attention(q, q, q, q, symbols, scale=1.0)


class Attends(torch.nn.Module):
    """Relational attention as a function of an index, for ``torch.export``."""

    def __init__(self, impl, rows, groups):
        super().__init__()
        self.impl = impl
        self.q, self.u = normal(2, 4, 6, 2), normal(2, 6, 1, 1)
        self.library, self.w_r = torch.nn.Parameter(normal(rows, groups, 3)), normal(4, 3, 1)

    def forward(self, index):
        k, symbols = self.q[:, : self.library.shape[1]], functional.RelativeSymbols(self.library, index)
        how = {"scale": 1.0, "rel_scale": 1.0, "impl": self.impl}
        return functional.relational_attention(self.q, k, self.u, self.u, symbols, self.w_r, **how).output


WAYS = {
    "parameter": lambda module, good: lambda index: module(torch.nn.Parameter(index, requires_grad=False)),
    "compiled": lambda module, good: torch.compile(module, backend="aot_eager", fullgraph=True),
    "exported": lambda module, good: torch.export.export(module, (good,)).module(),
}


LOOKUPS = [
    ("reference", 5, 1),
    ("dense", 5, 1),
    ("dense", 40, 1),  # as many as pairs, whose symbols are written out
    ("blockwise", 5, 1),
    ("linear", 5, 4),
    ("linear", 1, 1),  # so few that they are written out for all examples
]
OTHER_WAYS = [(*of, way) for place, way in enumerate(("compiled", "exported")) for of in LOOKUPS[place::2]]
OTHER_WAYS += [(*of, way) for place, way in enumerate(("exported", "compiled")) for of in LOOKUPS[place::2]]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "impl, rows, groups, way", mostly_slow([*((*of, "parameter") for of in LOOKUPS), *OTHER_WAYS], quick=12)
)
def test_indices_whose_values_are_not_looked_at_fail_in_the_lookup(impl, rows, groups, way):
    """Nor are negative ones counted from the end."""
    torch._dynamo.reset()
    module, good = Attends(impl, rows, groups), torch.zeros(6, 6, dtype=torch.long)
    call = WAYS[way](module, good)
    torch.testing.assert_close(call(good), module(good))
    for wrong in (-1, rows, 10**9):
        bad = good.clone()
        bad[4, 3] = wrong
        with pytest.raises((IndexError, RuntimeError), match=r"index|out of (range|bounds)"):
            call(bad)


@pytest.mark.parametrize("rows, groups", [(5, 4), (1, 1)])
def test_an_index_out_of_range_is_refused_in_the_backward_pass_of_linear(rows, groups):
    index = torch.zeros(6, 6, dtype=torch.long)
    out = Attends("linear", rows, groups)(torch.nn.Parameter(index, requires_grad=False))
    index.data[4, 3] = -1  # behind the back of autograd
    with pytest.raises((IndexError, RuntimeError), match=r"index|out of (range|bounds)"):
        out.sum().backward()


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("impl, rows", [("dense", 5), ("dense", 40), ("linear", 5)])
def test_compiled_kernels_refuse_an_index_out_of_range(impl, rows):
    torch._dynamo.reset()
    module, good = Attends(impl, rows, 4), torch.zeros(6, 6, dtype=torch.long)
    call = torch.compile(module, backend="inductor")
    torch.testing.assert_close(call(good), module(good))
    counted = () if torch.__version__ >= "2.13" else (-1,)  # by older compilers, from the end
    for wrong in {-1, rows, 10**9}.difference(counted):
        bad = good.clone()
        bad[4, 3] = wrong
        with pytest.raises((IndexError, RuntimeError), match=r"index|out of (range|bounds)"):
            call(bad)


@pytest.mark.parametrize("integers", [torch.int8, torch.int16, torch.int32, torch.uint8])
@pytest.mark.parametrize(
    "impl, rows, groups", [("reference", 5, 1), ("dense", 5, 1), ("dense", 40, 1), ("linear", 1, 1)]
)
def test_an_index_may_be_of_any_integers(impl, rows, groups, integers):
    module, index = Attends(impl, rows, groups), torch.randint(rows, (6, 6))
    assert torch.equal(module(index.to(integers)), module(index))


@pytest.mark.parametrize("largest", [0, 10_000])
def test_rca_writes_no_has_symbol_per_pair(largest, monkeypatch):
    """Nothing larger than weights is kept, however wide symbols are."""
    monkeypatch.setattr(functional.relational_cross, "LARGEST_WHOLE", largest)
    n, width = 16, 64
    q, table = normal(1, 1, n, width).requires_grad_(), normal(5, 1, width).requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        output, _ = functional.relational_cross_attention(
            q, q, functional.OffsetSymbols(table, n, n), scale=1.0, activation="tanh"
        )
        functional.disentangled_relational_cross_attention(q, q, q, q, functional.OffsetSymbols(table, n, n), scale=1.0)
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
            symbols = functional.OffsetSymbols(torch.linspace(0, 1, 4 * 19, dtype=x.dtype).view(19, 1, 4), n, n)
        ours, _ = functional.relational_cross_attention(x, x, symbols, scale=0.5, activation="tanh")
        return ours + functional.disentangled_relational_cross_attention(x, x, x, x, symbols, scale=0.5)[0]


@pytest.mark.parametrize("relative", [False, True])
def test_export_with_a_length_left_open(relative, monkeypatch):
    """One graph for lengths at which different ways would be taken."""
    monkeypatch.setattr(functional.relational_cross, "LARGEST_WHOLE", 64)
    module = OfLength(relative)
    shapes = {"x": {1: torch.export.Dim("length", min=2, max=4096)}}
    exported = torch.export.export(module, (normal(2, 7, 4),), dynamic_shapes=shapes, strict=False).module()
    for n in (3, 20):
        x = normal(2, n, 4)
        torch.testing.assert_close(exported(x), module(x))
