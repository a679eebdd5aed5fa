"""Decoding with a cache gives what one pass over all tokens gives: every kind of layer, every symbol mechanism."""

import copy
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention._layers.cache import TokenCache
from dual_attention.attention import Attention
from dual_attention.functional import attention as attention_function
from dual_attention.functional import positions_from_padding
from dual_attention.functional import relational_attention as relational_function
from dual_attention.positional_encoding import RotaryPositionalEncoding
from dual_attention.symbol_retrieval import (
    PositionalSymbolRetriever,
    PositionRelativeSymbolRetriever,
    PositionRelativeSymbolRetriever2D,
    RelationalSymbolicAttention,
)
from tests.support.caches import (
    CONTEXT,
    KINDS,
    LONGEST,
    MECHANISMS,
    RELATIONAL,
    WIDTH,
    close,
    configurations,
    few,
    mechanism,
    net,
    sizes,
)
from tests.support.refusals import refused
from tests.support.tensors import float64, normal

pytestmark = pytest.mark.sweep(4)

# ---- Cached is uncached


@pytest.mark.parametrize("kind", KINDS)
@few
@given(configuration=configurations, sizes=sizes, reserve=st.booleans())
def test_chunks_are_one_pass(kind, configuration, sizes, reserve):
    model, x = net(kind, **configuration), normal(2, sum(sizes), WIDTH)
    cache = model.new_cache(x.shape[1] if reserve else None)
    close(model.in_chunks(x, sizes, cache), model(x))


@pytest.mark.parametrize("symbols", MECHANISMS)
@pytest.mark.parametrize("kind", [*RELATIONAL, "dual decoder"])
def test_prefill_then_token_by_token(kind, symbols):
    model, x = net(kind, symbols, rope=True), normal(2, 9, WIDTH)
    close(model.in_chunks(x, [4, 1, 1, 1, 1, 1]), model(x))


@pytest.mark.parametrize("kind", KINDS)
@few
@given(configuration=configurations, sizes=sizes, data=st.data())
def test_left_padded_batch_is_each_example_alone(kind, configuration, sizes, data):
    n = sum(sizes)
    pads = data.draw(st.lists(st.integers(0, n - 1), min_size=3, max_size=3))
    model, x = net(kind, **configuration, cross={}), normal(3, n, WIDTH)
    padding = torch.arange(n) >= torch.tensor(pads)[:, None]
    alone = [model(x[i : i + 1, pad:], context=model.context[i : i + 1]) for i, pad in enumerate(pads)]
    if configuration["rope"] and (configuration["shaw"] or data.draw(st.booleans())):
        # A rotated query meets Shaw's vectors, which are not rotated: then positions themselves matter.
        model.tables = tuple(table[positions_from_padding(padding)] for table in model.tables)
    out = model.in_chunks(x, sizes, padding=padding)
    for i, pad in enumerate(pads):
        close(out[i : i + 1, pad:], alone[i])


@pytest.mark.parametrize("kind", ["sensory", *RELATIONAL, "dual encoder"])
def test_positions_may_differ_between_examples(kind):
    """Tables for each example, as a caller with position numbers of its own gives them."""
    model, x, pads = net(kind, "positional"), normal(3, 6, WIDTH), [0, 2, 5]
    padding = torch.arange(6) >= torch.tensor(pads)[:, None]
    rope = RotaryPositionalEncoding(2 if "dual" in kind else 4, LONGEST)
    model.tables = rope.tables(LONGEST)
    alone = [model(x[row : row + 1, pad:]) for row, pad in enumerate(pads)]
    model.tables = rope.tables_at(positions_from_padding(padding))
    out = model.in_chunks(x, [3, 1, 2], padding=padding)
    for row, pad in enumerate(pads):
        close(out[row : row + 1, pad:], alone[row])


@pytest.mark.parametrize("kind", KINDS)
@few
@given(configuration=configurations, sizes=sizes, data=st.data())
def test_reordering_is_running_the_reordered_batch(kind, configuration, sizes, data):
    model, n = net(kind, **configuration), sum(sizes)
    indices = torch.tensor(data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)))
    x, later = normal(3, n, WIDTH), normal(len(indices), 3, WIDTH)
    cache = model.new_cache()
    model.in_chunks(x, sizes, cache)
    cache.reorder(indices)
    assert cache.batch == len(indices) and cache.length == n
    context = model.context[indices]
    got = torch.cat([model(later[:, :1], cache, context=context), model(later[:, 1:], cache, context=context)], dim=1)
    close(got, model(torch.cat([x[indices], later], dim=1), context=context)[:, n:])


@pytest.mark.parametrize("kind", KINDS)
@few
@given(configuration=configurations, sizes=sizes, recorded=st.booleans(), data=st.data())
def test_cropping_is_never_having_seen(kind, configuration, sizes, recorded, data):
    model, n = net(kind, **configuration), sum(sizes)
    length = data.draw(st.integers(0, n))
    x, later = normal(2, n, WIDTH), normal(2, 3, WIDTH)
    cache = model.new_cache()
    cache.record_past(recorded)
    model.in_chunks(x, sizes, cache)
    before = cache.numel()
    try:
        cache.crop(length)
    except ValueError as error:  # a window, of the layer or of the symbols' neighbourhoods, has dropped what is needed
        assert "window" in str(error) and length < n and not recorded
        assert (cache.length, cache.numel()) == (n, before)
        return
    assert cache.length == length
    got = model.in_chunks(later, [1, 2], cache)
    close(got, model(torch.cat([x[:, :length], later], dim=1))[:, length:])


def test_without_a_window_every_crop_is_possible():
    model, x = net("dual", "relative"), normal(2, 6, WIDTH)
    for length in range(7):
        cache = model.new_cache()
        model(x, cache)
        cache.crop(length)
        close(model(x[:, length:], cache) if length < 6 else normal(2, 0, WIDTH), model(x)[:, length:])


def test_a_cropped_window_keeps_what_it_needs():
    cache = TokenCache({"k": (1,)}, window=3)
    cache.append(1, 2, k=torch.zeros(1, 2, 1))
    cache.crop(1)  # nothing was dropped yet
    cache.append(1, 4, k=torch.zeros(1, 4, 1))
    with pytest.raises(ValueError, match="length: to continue after 3 tokens, 2 must be held, but the window of 3"):
        cache.crop(3)
    assert (cache.length, cache.held) == (5, 2)
    cache.crop(0)
    assert (cache.length, cache.held, cache.batch) == (0, 0, None)


def test_a_recorded_past_lasts_until_the_next_crop():
    cache, k = TokenCache({"k": (1,)}, window=3), torch.arange(9.0).view(1, 9, 1)
    cache.record_past()
    cache.append(1, 6, k=k[:, :6])
    assert cache.held == 6
    cache.crop(4)
    assert (cache.length, cache.held) == (4, 2)
    (everything,) = cache.append(1, 5, k=k[:, 4:])
    assert everything.flatten().tolist() == [2, 3, 4, 5, 6, 7, 8]
    cache.record_past(False)
    cache.append(1, 1, k=k[:, :1])
    assert cache.held == 2


@pytest.mark.parametrize("kind", ["sensory", "relational"])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("activation", ["identity", "tanh"])
def test_blockwise_implementations_continue_too(monkeypatch, kind, window, activation):
    """Long inputs take other paths: one that builds no mask whole, and ones that build no weights whole."""
    more = {"rel_activation": activation} if kind == "relational" else {}
    model, x = net(kind, "relative", shaw=True, window=window, **more), normal(2, 9, WIDTH)
    wanted = model(x)
    for function, name in ((attention_function, "LARGEST_MASK"), (relational_function, "LARGEST_DENSE")):
        monkeypatch.setitem(function.__globals__, name, 0)
    monkeypatch.setitem(attention_function.__globals__, "BLOCK", 2)
    close(model.in_chunks(x, [4, 1, 4]), wanted)


@pytest.mark.parametrize("kind", ["sensory", "relational", "rca", "disrca"])
@pytest.mark.parametrize("window", [None, 3])
def test_masks_biases_and_maps_cover_all_senders(kind, window):
    model, x = net(kind, "relative", window=window), normal(2, 6, WIDTH)
    mask, bias = torch.rand(6, 6) < 0.7, normal(2, 2, 6, 6)
    wanted, *maps = model(x, need_weights=True, attn_mask=mask, attn_bias=bias)
    cache = model.new_cache()
    model(x[:, :4], cache, attn_mask=mask[:4, :4], attn_bias=bias[:, :, :4, :4])
    out, *new_maps = model(x[:, 4:], cache, need_weights=True, attn_mask=mask[4:], attn_bias=bias[:, :, 4:])
    close(out, wanted[:, 4:])
    close(new_maps[0], maps[0][:, :, 4:, 6 - new_maps[0].shape[-1] :])
    assert new_maps[0].shape[-1] == (6 if window is None else 4)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", RELATIONAL)
@pytest.mark.parametrize("window", [None, 3])
def test_symbols_of_each_pair_cover_all_senders(kind, window):
    layer = float64(RELATIONAL[kind](WIDTH, 2, window=window, use_relative_positional_symbols=True))
    x, symbols, cache = normal(2, 7, WIDTH), normal(7, 7, WIDTH), layer.new_cache()
    with torch.no_grad():
        wanted = layer(x, symbols, is_causal=True).output
        for start, stop in ((0, 4), (4, 5), (5, 7)):
            new = x[:, start:stop], symbols[start:stop, :stop]
            close(layer(*new, is_causal=True, cache=cache).output, wanted[:, start:stop])


def test_a_context_is_projected_once_and_then_not_read():
    model, x = net("dual decoder"), normal(2, 6, WIDTH)
    calls, wanted = [], model(x)
    for projection in (model.layer.cross_attn.wk, model.layer.cross_attn.wv):
        projection.register_forward_hook(lambda *_: calls.append(1))
    cache = model.new_cache()
    first = model(x[:, :2], cache)
    rest = [model(x[:, i : i + 1], cache, context=torch.full((2, CONTEXT, WIDTH), torch.nan)) for i in range(2, 6)]
    close(torch.cat([first, *rest], dim=1), wanted)
    assert len(calls) == 2
    cache.reset()
    assert (cache.length, cache.numel(), cache.nbytes()) == (0, 0, 0)


@pytest.mark.parametrize("shaw", [None, 2])
def test_cross_attention_continues_the_positions_of_its_receivers(shaw):
    layer, x, context = float64(Attention(WIDTH, 2, shaw_max_rel_pos=shaw)), normal(2, 6, WIDTH), normal(2, 4, WIDTH)
    tables = RotaryPositionalEncoding(4, LONGEST).tables(LONGEST)
    cache = layer.new_context_cache()
    with torch.no_grad():
        outs = [layer(chunk, context, context, *tables, cache=cache).output for chunk in x.split([3, 1, 2], dim=1)]
        close(torch.cat(outs, dim=1), layer(x, context, context, *tables).output)
    cache.crop(3)
    with torch.no_grad():
        again = layer(x[:, 3:], context, context, *tables, cache=cache).output
    close(again, torch.cat(outs[1:], dim=1))


def test_no_new_tokens_change_nothing():
    model, x = net("dual", "relational symbolic", rope=True, window=3), normal(2, 4, WIDTH)
    cache = model.new_cache()
    assert model(x[:, :0], cache).shape == (2, 0, WIDTH)
    model(x[:, :3], cache)
    assert model(x[:, :0], cache).shape == (2, 0, WIDTH)
    close(model(x[:, 3:], cache), model(x)[:, 3:])


def test_copies_of_a_cache_go_separate_ways():
    model, x = net("dual", "relational symbolic"), normal(2, 6, WIDTH)
    cache = model.new_cache(LONGEST)
    model(x[:, :4], cache)
    other = copy.deepcopy(cache)
    model(normal(2, 2, WIDTH), other)
    close(model(x[:, 4:], cache), model(x)[:, 4:])


# ---- Symbols alone


@pytest.mark.parametrize("symbols", MECHANISMS)
@given(sizes=sizes)
@few
def test_symbols_of_new_tokens(symbols, sizes):
    retriever, x = float64(mechanism(symbols)), normal(2, sum(sizes), WIDTH)
    cache, start = retriever.new_cache(), 0
    with torch.no_grad():
        whole = retriever(x)
        for chunk in x.split(sizes, dim=1):
            got, stop = retriever(chunk, cache=cache), start + chunk.shape[1]
            if symbols == "relative":
                assert got.shape == (chunk.shape[1], stop, WIDTH)
                close(got.dense(), whole.dense()[start:stop, :stop])
            else:
                close(got, whole[:, start:stop])
            start = stop
    kept = {"relational symbolic": WIDTH, "causal self": WIDTH}.get(symbols, 0)
    assert cache.numbers_per_token == kept and cache.length == start


def test_neighbourhoods_keep_no_more_than_their_reach():
    retriever = RelationalSymbolicAttention(WIDTH, 2, 2, 5, 3)
    cache = retriever.new_cache()
    for length in range(1, 9):
        with torch.no_grad():
            retriever(torch.zeros(1, 1, WIDTH), cache=cache)
        assert cache.held == min(length, 3)


X, NEAR, AT = torch.zeros(1, 3, 8), partial(RelationalSymbolicAttention, 8, 2, 2, 4, 2), PositionalSymbolRetriever(8, 4)


test_symbols_that_cannot_be_continued = refused(
    (lambda: PositionRelativeSymbolRetriever2D(8, 2)(torch.zeros(1, 5, 8), (2, 2), cache=TokenCache({})), "grid"),
    (lambda: PositionRelativeSymbolRetriever(8, 2)(X, X, cache=TokenCache({})), "y: with a cache"),
    (lambda: NEAR(causal_nbhd=False).new_cache(), "causal_nbhd=True"),
    (lambda: NEAR(causal_nbhd=False)(X, cache=TokenCache({})), "causal_nbhd=True"),
    (lambda: NEAR(causal_nbhd=False)(X, positions=X[..., 0].long()), "positions: needs causal_nbhd=True"),
    (lambda: NEAR()(X, positions=torch.tensor([[0, 2, 2]])), "positions: expected no more than the tokens before"),
    (lambda: AT(X, positions=torch.tensor([[0, 1, 4]])), r"positions: expected 0 to 3 \(max_length=4\), got 0 to 4"),
    (lambda: AT(X, positions=X[..., 0]), r"positions: expected integers \(1, 3\) .*, got torch.float32 \(1, 3\)"),
)


def test_positions_of_symbols_end_with_the_table():
    retriever = PositionalSymbolRetriever(WIDTH, 4)
    cache = retriever.new_cache()
    with torch.no_grad():
        retriever(torch.zeros(1, 3, WIDTH), cache=cache)
    with pytest.raises(ValueError, match="length 5 exceeds max_length=4"):
        retriever(torch.zeros(1, 2, WIDTH), cache=cache)
    assert cache.length == 3
