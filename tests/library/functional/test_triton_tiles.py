"""The tiles that the fused kernels visit: receivers that continue after earlier senders, and packed segments."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from dual_attention import PositionRelativeSymbolRetriever, RelationalAttention
from dual_attention.functional import MaskPattern
from tests.support.combinations import examples, mostly_slow, pairwise

from .fused_problems import (  # noqa: F401 (the fixture is used by every test)
    DEVICE,
    Problem,
    assert_as_reference,
    launch,
    needs_kernels,
    tiny_tiles_and_poisoned_memory,
)

segments = pytest.importorskip("dual_attention.functional.triton.segments", reason="triton is not installed")

# Where NaN is meant to be seen, Triton's interpreter takes the largest of nothing but NaN.
pytestmark = [needs_kernels, pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning"), pytest.mark.sweep(3)]

CONTINUED = {"n": 18, "m": 37, "offset": 19}


CONTINUING = [
    {"n": 1, "m": 40, "offset": 39, "causal": True, "symbols": "offsets"},  # a step of decoding
    {"n": 3, "m": 40, "offset": 20, "causal": True},  # fewer receivers than senders that follow
    {"n": 20, "m": 18, "offset": -18, "causal": True, "symbols": "offsets"},  # receivers before all senders
    {"n": 20, "m": 20, "offset": 15, "window": 4, "symbols": "offsets"},  # receivers after all senders
    {"n": 19, "m": 20, "offset": -50, "causal": True},  # nobody sees anybody
    {"window": 2**40, "causal": True, "n": 3},
    {"causal": True},
    {"causal": True, "symbols": "offsets"},
    {"causal": True, "groups": 2, "rep": 2, "n_relations": 5, "p": 4, "n": 3, "m": 18, "offset": 15},
    {"window": 5, "symbols": "offsets"},
    {"causal": True, "window": 20},
    {"causal": True, "padded": True, "batch": 2, "n": 5, "m": 24},
    {"causal": True, "packed": True, "batch": 2, "n": 5, "m": 24, "symbols": "offsets"},
    {"window": 7, "packed": "in order"},
    {"n": 1, "m": 40, "offset": 39, "causal": True},
    {"n": 1, "m": 40, "offset": 39, "window": 3, "packed": "in order", "symbols": "offsets"},
    {"n": 25, "m": 18, "offset": -18, "window": 4},
    {"n": 19, "m": 20, "offset": 70, "window": 2, "symbols": "offsets"},
]


@pytest.mark.parametrize("arguments", mostly_slow(CONTINUING, quick=6), ids=str)
def test_receivers_that_continue_after_earlier_senders(arguments):
    assert_as_reference(Problem(**CONTINUED | arguments))


@pytest.mark.parametrize(
    "order, offset, symbol_offset, max_offset",
    [
        ({"causal": True}, 19, 0, 4),
        ({"causal": True}, 0, 19, 30),
        ({"window": 6}, 3, -7, 4),
        ({"window": 6}, -20, 20, 30),
    ],
)
def test_order_and_symbols_may_be_placed_differently(order, offset, symbol_offset, max_offset):
    places = {"offset": offset, "symbol_offset": symbol_offset, "max_offset": max_offset}
    assert_as_reference(Problem(symbols="offsets", n=18, m=37, **order, **places))


SIDES = [
    {"n": 17, "m": 32, "causal": True, "offset": 15},
    {"n": 31, "m": 17, "symbols": "offsets"},
    {"n": 32, "m": 32, "causal": True},
    {"n": 32, "m": 47, "causal": True, "offset": 15, "symbols": "offsets"},
    {"n": 33, "m": 49, "causal": True, "offset": 16},
    {"n": 17, "m": 49, "causal": True, "offset": 17, "groups": 2},
    {"n": 34, "m": 32, "causal": True, "offset": -1, "symbols": "offsets"},
    {"n": 31, "m": 17},
    {"n": 17, "m": 32, "symbols": "offsets"},
]


@pytest.mark.parametrize("sides", mostly_slow(SIDES, quick=2), ids=str)
def test_tiles_without_a_mask_are_as_under_one_that_hides_nothing(sides):
    """Such a mask is applied to every tile, while without it only the tiles at the diagonal and the ends need one."""
    problem = Problem(**sides)
    wanted = problem.results("triton")
    n, m = problem.pairs[:2]
    one_segment = torch.zeros(1, n, dtype=torch.long), torch.zeros(1, m, dtype=torch.long)
    order = {"causal": problem.pattern.causal, "offset": problem.pattern.offset}
    for mask in (
        {"window": n + m},
        {"padding": torch.ones(1, m, dtype=torch.bool, device=DEVICE)},
        dict(zip(("receiver_segments", "sender_segments"), (x.to(DEVICE) for x in one_segment), strict=True)),
    ):
        problem.pattern = MaskPattern(n, m, **order, **mask)
        for ours, theirs in zip(problem.results("triton"), wanted, strict=True):
            assert torch.equal(ours, theirs)


OPTIONS = {
    "layout": [{"batch": 2, "groups": 1, "rep": 1}, {"batch": 1, "groups": 2, "rep": 1},
        {"batch": 1, "groups": 1, "rep": 2}],
    "sides": [{"n": 20, "m": 7}, {"n": 5, "m": 18}, {"n": 1, "m": 33}],
    "symbols": ["shared", "one batch", "offsets"],
    "max_offset": [0, 4, 20],
    "causal": [False, True],
    "window": [None, 5, 18],
    "padded": [False, True],
    "packed": [False, True, "in order"],
    "offset": [0, 3, 19, -7],
    "symbol_offset": [None, -20, 3],
}  # fmt: skip


def as_arguments(layout, sides, **options):
    return {**layout, **sides, **options}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("arguments", [as_arguments(**options) for options in pairwise(OPTIONS)], ids=str)
def test_every_pair_of_options(arguments):
    assert_as_reference(Problem(**arguments))


@pytest.mark.slow
@examples(4, explore=100)
@given(st.data())
def test_any_combination(data):
    def one_of(*values):
        return data.draw(st.sampled_from(values))

    assert_as_reference(
        Problem(
            **one_of(*OPTIONS["layout"], {}, {"batch": 2, "groups": 2, "rep": 2}),
            n=data.draw(st.integers(1, 34)),
            m=data.draw(st.integers(1, 34)),
            symbols=one_of("shared", "one batch", "offsets"),
            max_offset=data.draw(st.integers(0, 20)),
            causal=one_of(False, True),
            window=one_of(None, 1, 5, 18),
            padded=one_of(False, True),
            packed=one_of(False, True, "in order"),
            offset=data.draw(st.integers(-45, 45)),
            symbol_offset=one_of(None, None, -20, 3),
        )
    )


def test_receivers_that_see_nothing_give_zeros_and_zero_gradients():
    out, dq, _, du, *_ = Problem(batch=2, n=20, m=20, offset=-6, causal=True).results("triton")
    for of_receivers in (out.transpose(1, 2), dq.transpose(1, 2), du):
        assert (of_receivers[:, :6] == 0).all() and (of_receivers[:, 6:] != 0).any()


@torch.no_grad()
@pytest.mark.parametrize(
    "relative, window, steps_too",
    [(False, None, False), (False, 5, True), (True, None, True), (True, 5, False)],  # every pair
)
def test_a_layer_with_a_cache_uses_the_kernels(relative, window, steps_too, monkeypatch):
    """In chunks, as ``impl="auto"`` does on a GPU; and token by token, which it does not."""
    calls = []
    fused = launch.Call.forward
    monkeypatch.setattr("dual_attention.functional.relational.choice.prefers_fused", lambda q: True)
    if steps_too:
        monkeypatch.setattr("dual_attention.functional.triton.implementation.FEWEST_RECEIVERS", 0)
    monkeypatch.setattr(launch.Call, "forward", lambda call: calls.append(1) or fused(call))
    layer = RelationalAttention(8, 2, use_relative_positional_symbols=relative, n_kv_heads=1, window=window)
    layer = layer.to(DEVICE).eval()
    retriever = PositionRelativeSymbolRetriever(8, 3).to(DEVICE)
    x = torch.randn(2, 29, 8, device=DEVICE)
    cache, symbols_cache, outputs = layer.new_cache(), retriever.new_cache(), []
    for chunk in x.split([11, 1, 1, 16], dim=1):
        symbols = retriever(chunk, cache=symbols_cache) if relative else chunk
        outputs.append(layer(chunk, symbols, is_causal=True, cache=cache).output)
    assert len(calls) == (4 if steps_too else 2)
    monkeypatch.undo()
    whole = layer(x, retriever(x) if relative else x, is_causal=True).output
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole, atol=1e-5, rtol=1e-5)


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@examples(40)
@given(st.data())
def test_reach_of_segments(data):
    """The senders between the least and the greatest segment of a block, with any order of segments."""

    def ids(length, rows):
        dtype = data.draw(st.sampled_from(INTEGERS))
        low = 0 if dtype == torch.uint8 else -4
        numbers = data.draw(st.lists(st.integers(low, 6), min_size=rows * length, max_size=rows * length))
        x = torch.tensor(numbers, dtype=dtype).view(rows, length)
        return x.sort(dim=1).values if data.draw(st.booleans()) else x

    length, others = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 40))
    rows = data.draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2)]))
    own, other = ids(length, rows[0]), ids(others, rows[1])
    step = segments.STEP
    segments.STEP = data.draw(st.sampled_from([16, step]))
    try:
        found = segments.segment_reach(own.to(DEVICE), other.to(DEVICE), 16).cpu()
    finally:
        segments.STEP = step
    assert found.shape == (max(rows), (length + 15) // 16, 2) and found.dtype == torch.int32
    for example, bounds in enumerate(found.tolist()):
        mine, theirs = own[example % rows[0]].tolist(), other[example % rows[1]].tolist()
        for block, got in enumerate(bounds):
            block_ids = mine[block * 16 : block * 16 + 16]
            near = [j for j, segment in enumerate(theirs) if min(block_ids) <= segment <= max(block_ids)]
            assert got == ([near[0], near[-1] + 1] if near else [others, 0])


def test_reach_of_no_receivers_is_empty():
    nobody, someone = torch.zeros(1, 0, dtype=torch.long), torch.zeros(2, 5, dtype=torch.long)
    assert segments.segment_reach(nobody, someone, 16).shape == (2, 0, 2)


def everything(own, other, block):
    """A reach that skips nothing."""
    blocks = -(-own.shape[1] // block)
    whole = torch.tensor([0, other.shape[1]], dtype=torch.int32, device=own.device)
    return whole.expand(max(own.shape[0], other.shape[0]), blocks, 2).contiguous()


@pytest.mark.slow
@pytest.mark.parametrize("symbols, packed", [("shared", True), ("offsets", "in order")])
def test_skipping_changes_nothing(symbols, packed, monkeypatch):
    problem = Problem(symbols=symbols, packed=packed, n=40, max_offset=20)
    skipping = problem.results("triton")
    monkeypatch.setattr(launch, "segment_reach", everything)
    for ours, theirs in zip(skipping, problem.results("triton"), strict=True):
        assert torch.equal(ours, theirs)


def poisoned(problem, first):
    """Results after all that belongs to positions from ``first`` on has become NaN, receivers and senders."""
    q, k, u, w, s, _ = problem.leaves
    of_positions = [q[:, :, first:], k[:, :, first:], u[:, first:], w[:, first:], problem.cotangent[:, :, first:]]
    for x in of_positions if problem.relative else [*of_positions, s[:, :, first:]]:
        x.fill_(torch.nan)
    return problem.results("triton")


def before(results, first):
    """Results of positions before ``first``: outputs, and gradients of q, k, u, w and shared symbols."""
    out, dq, dk, du, dw, ds, _ = results
    return [out[:, :, :first], dq[:, :, :first], dk[:, :, :first], du[:, :first], dw[:, :first], ds[:, :, :first]]


@pytest.mark.parametrize("arguments", mostly_slow([{}, {"causal": True, "groups": 2}], quick=1), ids=str)
def test_tiles_in_which_no_pair_shares_a_segment_are_not_visited(arguments, monkeypatch):
    """A weight of zero times NaN is NaN, so a tile that is visited shows."""

    def problem():
        return Problem(n=48, packed="by 16", **arguments)

    clean = before(problem().results("triton"), 32)
    for a, b in zip(before(poisoned(problem(), 32), 32), clean, strict=True):
        assert torch.equal(a, b)
    monkeypatch.setattr(launch, "segment_reach", everything)
    visited = before(poisoned(problem(), 32), 32)
    assert all(x.isnan().any() for x in (visited if not arguments.get("causal") else visited[2:3]))


@pytest.mark.slow
def test_offsets_that_no_segment_reaches_are_not_visited(monkeypatch):
    """Rows of the table for offsets -40 to -25 while segments have 16 senders; the last row of a block, t = 15."""

    def rows_of_table():
        problem = Problem(symbols="offsets", max_offset=40, n=64, packed="by 16")
        return poisoned(problem, 48)[5][1:16]

    assert (rows_of_table() == 0).all()
    monkeypatch.setattr(launch, "segment_reach", everything)
    assert rows_of_table().isnan().any()


@pytest.mark.parametrize("order", [{"causal": True}, {"window": 2}, {"causal": True, "window": 40}], ids=str)
def test_tiles_that_order_hides_are_not_visited(order):
    """Receivers 16 to 31 of 64: senders from 48 on are hidden from all, and lie in tiles of their own."""

    def results(poison, **order):
        problem = Problem(n=16, m=64, offset=16, **order)
        _, k, _, w, s, _ = problem.leaves
        if poison:
            for x in (k[:, :, 48:], w[:, 48:], s[:, :, 48:]):
                x.fill_(torch.nan)
        return problem.results("triton")

    for a, b in zip(results(True, **order), results(False, **order), strict=True):
        assert torch.equal(a, b)
    assert all(x.isnan().any() for x in results(True))
