"""The closed formulas against counts of pairs and against PyTorch's counter running over the plain products."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from dat.estimate import counter_formulas, register_flop_formulas
from dat.estimate.flops import RelationalSizes, block_pairs, fused_attention, pairs
from dual_attention.functional import MaskPattern, OffsetSymbols, RelativeSymbols, attention
from dual_attention.functional.relational import linear, operation, pair_symbols
from dual_attention.functional.relational.blocks import LinearArguments
from dual_attention.functional.relational.tiles import prefers_tiles
from tests.lab.estimate.measuring import in_pairs


@given(st.integers(1, 9), st.booleans(), st.none() | st.integers(1, 12))
def test_pairs_are_those_of_the_mask(n: int, causal: bool, window: int | None):
    mask = MaskPattern(n, n, causal=causal, window=window).dense(None)
    assert pairs(n, n, causal=causal, window=window) == (n * n if mask is None else int(mask.sum()))


def test_pairs_of_two_sequences():
    assert pairs(3, 5) == 15


@given(st.integers(1, 20), st.integers(1, 7), st.booleans(), st.none() | st.integers(1, 25), st.integers(0, 3))
def test_block_pairs_hold_all_pairs(n: int, block: int, causal: bool, window: int | None, offset: int):
    m = n + offset if causal or window is not None else n
    offset = m - n
    pattern = MaskPattern(n, m, causal=causal, window=window, offset=offset)
    mask = pattern.dense(None)
    allowed = torch.ones(n, m, dtype=torch.bool) if mask is None else mask[0, 0].expand(n, m)
    # What a block computes: the smallest range of senders that holds all pairs of its receivers.
    expected = 0
    for rows in allowed.split(block):
        seen = rows.any(dim=0).nonzero()
        expected += len(rows) * (int(seen.max()) - int(seen.min()) + 1)
    assert block_pairs(n, m, block, causal=causal, window=window, offset=offset) == expected


@pytest.mark.sweep(4)
@in_pairs(
    kind=["shared", "one for all", "offsets", "index", "few rows"],
    causal=[False, True],
    window=[None, 40],
    tiles=[False, True],
)
def test_the_operation_counts_as_its_products(monkeypatch, causal: bool, window: int | None, kind: str, tiles: bool):
    """PyTorch's counter sees our operation through its formula, and its blocks product by product: the same."""
    batch, heads, groups, n, width, head_width, relations = 2, 8, 2, 300, 6, 8, 3
    p = 9 if tiles else 5
    assert prefers_tiles(heads, p) == tiles
    monkeypatch.setattr(pair_symbols, "SHARING", 1)
    if kind == "few rows":  # so many pairs that weights of the same symbol are summed
        monkeypatch.setattr(pair_symbols, "LARGEST_PAIRS", 1000)

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, requires_grad=True)

    q, k = leaf(batch, heads, n, width), leaf(batch, groups, n, width)
    u, w = leaf(batch, n, relations, p), leaf(batch, n, relations, p)
    if kind in ("shared", "one for all"):
        symbols = leaf(batch if kind == "shared" else 1, groups, n, head_width)
    elif kind in ("offsets", "few rows"):
        symbols = OffsetSymbols(leaf(9, groups, head_width), n, n)
    else:
        symbols = RelativeSymbols(leaf(7, groups, head_width), torch.randint(7, (n, n)))
    relative = isinstance(symbols, RelativeSymbols)
    tensors = (q, k, u, w, symbols.library if relative else symbols, symbols.index if relative else None)
    numbers = (*[None] * 6, causal, window, 0, 1.0, 1.0, 0.0, linear.BLOCK)
    with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as counter:
        outputs = torch.ops.dual_attention.linear_relational_attention(*tensors, *numbers)
        forward = counter.get_total_flops()
        sum(output.sum() for output in outputs).backward()
        backward = counter.get_total_flops() - forward

    # By PyTorch's operations; the counter knows only baddbmm.
    within = {torch.ops.aten.baddbmm_: lambda total, a, b, **_: 2 * a[0] * a[1] * a[2] * b[2]}
    with FlopCounterMode(display=False, custom_mapping=within) as plain, torch.no_grad():
        arguments = LinearArguments(*tensors, *numbers)
        outputs = operation._empty_results(arguments)
        linear._forward(arguments, *outputs)
        plain_forward = plain.get_total_flops()
        ones = (torch.ones_like(output) for output in outputs)
        linear._backward(arguments, *ones, operation._empty_gradients(arguments))
        plain_backward = plain.get_total_flops() - plain_forward
    assert (forward, backward) == (plain_forward, plain_backward)
    assert forward > 0


def test_the_counter_knows_fused_attention_on_a_cpu():
    q, k, v = (torch.randn(2, heads, 7, 8, requires_grad=True) for heads in (4, 2, 2))
    with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as counter:
        attention(q, k, v, scale=1.0)[0].sum().backward()
    expected = fused_attention(2, 4, 7 * 7, 8, 8)
    assert counter.get_total_flops() == expected.forward + expected.backward


def test_registering_makes_every_counter_count(monkeypatch):
    for counted in counter_formulas():  # undone after the test
        monkeypatch.setitem(flop_registry, counted, None)
        monkeypatch.delitem(flop_registry, counted)
    register_flop_formulas()
    register_flop_formulas()  # changes nothing
    q, k, u, w = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4), torch.randn(1, 5, 3, 2), torch.randn(1, 5, 3, 2)
    with FlopCounterMode(display=False) as counter:
        tensors = (q, k, u, w, torch.randn(1, 2, 5, 4), *[None] * 7)
        torch.ops.dual_attention.linear_relational_attention(*tensors, False, None, 0, 1.0, 1.0, 0.0, linear.BLOCK)
    assert counter.get_total_flops() == RelationalSizes(1, 2, 25, 25, 4, 4, 3, 2).linear(tiles=False).forward


def test_what_the_library_counts_already_is_left_alone(monkeypatch):
    operation = next(iter(counter_formulas()))
    marker = object()
    monkeypatch.setitem(flop_registry, operation, marker)
    for other in list(counter_formulas())[1:]:
        monkeypatch.setitem(flop_registry, other, marker)
    register_flop_formulas()
    assert flop_registry[operation] is marker


def test_the_forms_of_relational_attention():
    sizes = RelationalSizes(2, 8, 1000, 1000, key_width=64, head_width=64, relations=64, p=8)
    tiled, keyed, fused = sizes.linear(tiles=True), sizes.linear(tiles=False), sizes.fused()
    assert keyed.forward == fused.forward == 2 * 2 * 8 * 1000 * (64 + 64 + 512)
    assert tiled.forward == 2 * 2 * 1000 * (8 * 128 + 512 + 8 * 64) == sizes.least()
    assert tiled.backward < keyed.backward < fused.backward
    one_head = RelationalSizes(1, 1, 10, 10, 4, 4, 2, 4)  # as one attention it is the cheaper
    assert one_head.least() == one_head.fused().forward < one_head.linear(tiles=True).forward
