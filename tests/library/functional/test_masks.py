import itertools

import pytest
import torch

from dual_attention.functional import (
    MaskPattern,
    attention,
    causal_mask,
    combine_masks,
    directional_mask,
    mask_pattern,
    padding_mask,
    positions_from_padding,
    positions_from_segments,
    segments_from_cu_seqlens,
)
from dual_attention.functional.masks import check_bias
from tests.support.refusals import refused

SIZES = {"batch": 2, "heads": 3, "n": 4, "m": 4}


def test_causal_mask_lets_each_position_see_itself_and_the_past():
    mask = causal_mask(3)
    assert mask.tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_padding_mask_from_lengths():
    assert padding_mask(torch.tensor([1, 3])).tolist() == [[True, False, False], [True, True, True]]
    assert padding_mask(torch.tensor([1]), 2).tolist() == [[True, False]]


def test_a_bias_of_pairs_is_one_of_all_examples_and_heads():
    bias = check_bias(torch.zeros(4, 4), **SIZES)
    assert bias is not None and bias.shape == (1, 1, 4, 4)


def test_no_mask_is_none():
    assert combine_masks(**SIZES) is None


@pytest.mark.parametrize("shape", [(4, 4), (2, 1, 4, 4), (1, 3, 4, 4), (2, 3, 4, 4), (1, 1, 1, 4), (2, 3, 4, 1)])
def test_all_masks_must_allow_a_pair(shape):
    generator = torch.Generator().manual_seed(0)
    attn = torch.rand(shape, generator=generator) < 0.6
    padding = torch.tensor([[True, True, True, False], [True, True, False, False]])
    combined = combine_masks(attn, padding, True, **SIZES)
    assert combined is not None
    for b in range(2):
        for h in range(3):
            for i in range(4):
                for j in range(4):
                    wanted = attn.expand(2, 3, 4, 4)[b, h, i, j] and padding[b, j] and j <= i
                    assert combined.expand(2, 3, 4, 4)[b, h, i, j] == wanted


def test_two_dimensions_are_receivers_by_senders_even_if_the_batch_is_as_long():
    mask = causal_mask(4)
    combined = combine_masks(mask, batch=4, heads=4, n=4, m=4)
    assert combined is not None and torch.equal(combined.expand(4, 4, 4, 4)[3, 2], mask)


def test_window_and_segments():
    segments = torch.tensor([[0, 0, 1, 1]])
    combined = combine_masks(is_causal=True, window=2, segments=segments, batch=2, heads=3, n=4, m=4)
    assert combined is not None
    wanted = [[j <= i and i - j < 2 and (i < 2) == (j < 2) for j in range(4)] for i in range(4)]
    assert combined.expand(2, 3, 4, 4)[1, 2].tolist() == wanted


def test_what_comes_with_a_pattern_narrows_it():
    left, right = (torch.tensor([row] * 2) for row in ([False, True, True, True], [True, True, True, False]))
    parts = [{"padding_mask": left}, {"padding_mask": right}, {"is_causal": True}, {"window": 1}, {"window": 2}, {}]
    parts.append({"segments": (torch.tensor([[0, 0, 1, 1]]), torch.tensor([[1, 0, 0, 1]]))})
    for first, second in itertools.permutations(parts, 2):
        narrowed = mask_pattern(mask_pattern(**first, **SIZES), **second, **SIZES)
        masks = [combine_masks(**part, **SIZES) for part in (first, second)]
        wanted = torch.stack([torch.ones(2, 1, 4, 4).bool() if x is None else x.expand(2, 1, 4, 4) for x in masks])
        assert torch.equal(narrowed.dense(None).expand(2, 1, 4, 4), wanted.all(0)), (first, second)


def test_segments_of_receivers_and_senders():
    pair = (torch.tensor([[0, 1]]), torch.tensor([[1, 0, 1]]))
    combined = combine_masks(segments=pair, batch=1, heads=1, n=2, m=3)
    assert combined is not None and combined[0, 0].tolist() == [[False, True, False], [True, False, True]]


def test_segments_from_cumulative_lengths():
    assert segments_from_cu_seqlens(torch.tensor([0, 2, 2, 3])).tolist() == [[0, 0, 2]]
    assert segments_from_cu_seqlens(torch.tensor([0, 2]), 4).tolist() == [[0, 0, 1, 1]]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("earlier", [0, 4])
@pytest.mark.parametrize("part", ["attn_mask", "padding_mask", "segments", None])
def test_blocks_are_parts_of_the_whole_and_leave_out_nothing(causal, window, earlier, part):
    generator = torch.Generator().manual_seed(0)
    m = 7 + earlier
    seen = torch.rand(2, 1, 7, m, generator=generator) < 0.6
    segments = (seen[:, 0, :, 0].int(), seen[:, 0, 0].int())
    parts = {"attn_mask": seen, "padding_mask": seen[:, 0, 0], "segments": segments}
    order = {"is_causal": causal, "window": window, "offset": earlier}
    pattern = mask_pattern(**{part: parts[part]} if part else {}, **order, batch=2, heads=1, n=7, m=m)
    nothing, whole = torch.zeros(2, 1, 7, m), pattern.dense(None)
    whole = nothing == 0 if whole is None else whole.expand_as(nothing)
    for start in range(0, 7, 3):
        rows = slice(start, min(start + 3, 7))
        columns = slice(*pattern.senders(rows.start, rows.stop))
        block, scores = pattern.block(rows, columns, None), nothing[:, :, rows, columns].clone()
        assert torch.equal((scores == 0) if block is None else block.expand_as(scores), whole[:, :, rows, columns])
        pattern.hide_(scores, rows, columns)
        assert torch.equal(scores == 0, whole[:, :, rows, columns])
        outside = whole[:, :, rows].clone()
        outside[..., columns] = False
        assert not outside.any()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("n", [1, 3, 6])
def test_the_last_receivers_see_what_they_see_among_all(causal, window, n):
    generator = torch.Generator().manual_seed(0)
    attn, padding = torch.rand(2, 1, 6, 6, generator=generator) < 0.6, torch.rand(2, 6, generator=generator) < 0.6
    common = {"window": window, "batch": 2, "heads": 1, "m": 6}
    every = mask_pattern(attn, padding, causal, n=6, **common).dense(None)
    last = mask_pattern(attn[:, :, 6 - n :], padding, causal, n=n, offset=6 - n, **common)
    assert torch.equal(last.dense(None), every[:, :, 6 - n :])
    assert torch.equal(last.last_senders(6).dense(None), every[:, :, 6 - n :])
    near = last.last_senders(n)
    assert (near.m, near.offset) == (n, 0) and torch.equal(near.dense(None), every[:, :, 6 - n :, 6 - n :])
    assert not last.only_causal and not last.hides_nothing


def test_order_after_earlier_senders_is_more_than_the_causal_flag():
    assert MaskPattern(3, 3, causal=True).only_causal and not MaskPattern(3, 5, causal=True, offset=2).only_causal
    assert MaskPattern(1, 5, causal=True, offset=4).dense(None) is None  # one new token sees all


WHOLE, HALVES = torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 4)


def combined(**more):
    return combine_masks(**{**SIZES, **more})


def attended(**parts):
    q = torch.randn(2, 3, 4, 5)
    return attention(q, q, q, scale=1.0, mask=MaskPattern(4, 4, **parts))


test_what_is_refused = refused(
    *((lambda n=n: padding_mask(torch.tensor(n)), "lengths") for n in ([1.0], [True], [[1]])),
    (lambda: padding_mask(torch.tensor([3]), 2), "max_length=2"),
    (lambda: check_bias(torch.ones(4, 4, dtype=torch.bool), **SIZES), TypeError, "attn_bias"),
    (lambda: check_bias(torch.zeros(3, 4), **SIZES), r"attn_bias: .*got \(3, 4\)"),
    (lambda: segments_from_cu_seqlens([0, 4, 9]), TypeError, "cu_seqlens: expected a tensor, got list"),
    *(
        (lambda ends=ends: segments_from_cu_seqlens(torch.tensor(ends), 5), "cu_seqlens")
        for ends in ([1, 2], [0, 3, 2], [], [0.0, 2.0], [0, 9])
    ),
    (lambda: mask_pattern(None, None, True, batch=1, heads=1, n=2, m=4, offset=3),
     r"is_causal: .*got 2 receivers and 1 senders after 3 earlier ones"),
    (lambda: positions_from_padding(WHOLE), TypeError, "padding_mask: expected a boolean"),
    (lambda: positions_from_segments(WHOLE, WHOLE), TypeError, "padding_mask: expected a boolean tensor"),
    (lambda: directional_mask(3, "up"), "direction"),
    (lambda: combined(attn_mask=torch.zeros(4, 4)), TypeError, "attn_mask: expected a boolean"),
    (lambda: combined(attn_mask=torch.ones(4, 4, dtype=torch.long)), TypeError, "attn_mask: expected a boolean"),
    (lambda: combined(attn_mask=torch.ones(2, 5, dtype=torch.bool)), r"attn_mask: .*got \(2, 5\)"),
    (lambda: combined(attn_mask=torch.ones(2, 4, 4, dtype=torch.bool)), r"attn_mask: .*got \(2, 4, 4\)"),
    (lambda: combined(attn_mask=torch.ones(5, 1, 4, 4, dtype=torch.bool)), r"attn_mask: .*got \(5, 1, 4, 4\)"),
    (lambda: combined(padding_mask=torch.ones(2, 4)), TypeError, "padding_mask: expected a boolean"),
    (lambda: combined(padding_mask=(torch.ones(2, 4) > 0).to_sparse()), TypeError,
     "padding_mask: expected a dense tensor"),
    (lambda: combined(is_causal=True, device=[2]), TypeError, "device"),
    (lambda: combined(padding_mask=torch.ones(4, 2, dtype=torch.bool)), r"padding_mask: .*got \(4, 2\)"),
    (lambda: combined(is_causal=True, n=2), "is_causal"),
    (lambda: combined(window=2, n=2), "window: needs as many"),
    (lambda: combined(window=0), "window: expected at least one"),
    (lambda: combined(segments=torch.zeros(2, 4)), "segments: expected integers"),
    (lambda: combined(segments=torch.zeros(3, 4, dtype=torch.long)), r"segments: .*got shape \(3, 4\)"),
    (lambda: attended(window=0), "window: expected at least one position, a whole number, got 0"),
    (lambda: attended(window=1.5), "window: .* got 1.5"),
    (lambda: attended(receiver_segments=HALVES, sender_segments=WHOLE), TypeError,
     "segments: expected integers, got .*float32"),
    (lambda: attended(receiver_segments=WHOLE, sender_segments=HALVES), TypeError,
     "segments: expected integers, got .*float32"),
    (lambda: attended(padding=HALVES), TypeError, "padding_mask: expected"),
)  # fmt: skip


def test_positions_count_real_tokens():
    mask = torch.tensor([[False, False, True, True], [True, True, True, False], [False] * 4])
    assert positions_from_padding(mask).tolist() == [[0, 0, 0, 1], [0, 1, 2, 2], [0, 0, 0, 0]]


def test_positions_from_segments():
    segments = torch.tensor([[4, 4, 1, 1, 1, 7], [0, 0, 0, 0, 0, 0]])
    assert positions_from_segments(segments).tolist() == [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5]]
    real = torch.tensor([[False, True, True, False, True, True], [True] * 4 + [False] * 2])
    assert positions_from_segments(segments, real).tolist() == [[0, 0, 0, 0, 1, 0], [0, 1, 2, 3, 3, 3]]
    assert positions_from_segments(segments[:1, :0]).shape == (1, 0)


def test_directional_masks():
    assert directional_mask(3, "forward").int().tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert torch.equal(directional_mask(3, "backward"), directional_mask(3, "forward").T)
    assert torch.equal(directional_mask(3), ~torch.eye(3, dtype=torch.bool))
