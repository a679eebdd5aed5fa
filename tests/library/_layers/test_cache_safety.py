"""Caches in every mode and dtype, and after calls that fail."""

import pytest
import torch

from dual_attention._layers.cache import CacheGroup, ContextCache, TokenCache
from dual_attention.attention import Attention
from dual_attention.dual_attention import DualAttention
from dual_attention.dual_attn_blocks import DualAttnEncoderBlock
from dual_attention.relational_attention import (
    RelationalAttention,
)
from dual_attention.transformer_blocks import EncoderBlock
from tests.support.caches import (
    COMMON,
    LONGEST,
    WIDTH,
    close,
    net,
)
from tests.support.refusals import refusals, refused
from tests.support.tensors import float64, normal

# ---- Gradients, modes, dtypes


def test_gradients_are_refused_not_lost():
    layer, x = Attention(WIDTH, 2), torch.zeros(1, 2, WIDTH)
    cache, context = layer.new_cache(), layer.new_context_cache()
    with pytest.raises(ValueError, match=r"cache: keeps no graph, got k that requires gradients; .*no_grad"):
        layer(x, x, x, is_causal=True, cache=cache)
    with pytest.raises(ValueError, match="cache: keeps no graph"):
        layer(x, x, x, cache=context)
    assert cache.length == 0 and not context.filled


def test_a_cache_of_inference_mode_serves_outside_it_and_back():
    model, x = net("dual", "relational symbolic"), normal(2, 5, WIDTH)
    cache, wanted = model.new_cache(), model(x)
    with torch.inference_mode():
        first = model(x[:, :2], cache)
    second = model(x[:, 2:3], cache)
    with torch.inference_mode():
        third = model(x[:, 3:4], cache)
        cache.reorder(torch.arange(2))
    fourth = model(x[:, 4:], cache)
    close(torch.cat([first, second, third, fourth], dim=1).clone(), wanted)


def test_dropout_acts_as_without_a_cache():
    layer, x = Attention(WIDTH, 2, dropout=0.5, out_dropout=0.0), torch.randn(1, 40, WIDTH)
    with torch.no_grad():
        wanted = layer.eval()(x, x, x, is_causal=True, need_weights=True).weights
        cache = layer.train().new_cache()
        layer(x[:, :39], x[:, :39], x[:, :39], is_causal=True, cache=cache)
        weights = layer(x[:, 39:], x[:, 39:], x[:, 39:], is_causal=True, cache=cache, need_weights=True).weights
    zero = weights == 0
    assert 0.2 < zero.float().mean() < 0.8
    torch.testing.assert_close(weights[~zero], 2 * wanted[:, :, 39:][~zero])


def test_autocast():
    model, x = net("dual encoder"), normal(2, 6, WIDTH)
    x = x.float()
    for module in (model.layer, model.symbols):
        module.float()
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model.in_chunks(x, [3, 1, 2]), model(x), atol=0.05, rtol=0.05)


def test_a_new_sequence_after_cropping_to_nothing():
    model = net("relational", "relational symbolic")
    cache = model.new_cache(LONGEST)
    model(normal(3, 4, WIDTH), cache)
    cache.crop(0)
    x = normal(2, 5, WIDTH)
    close(model.in_chunks(x, [2, 3], cache), model(x))


# ---- Bad input leaves the cache as it was


def bad(**arguments):
    return lambda model, x, cache: model(x, cache, **arguments)


@refusals(
    ("sensory", bad(is_causal=False), "cache: needs is_causal=True"),
    ("relational", bad(is_causal=False), "cache: needs is_causal=True"),
    ("dual", bad(segments=torch.zeros(1, 2, dtype=torch.long)), "segments: .*cache"),
    ("dual", bad(padding=torch.ones(2, 2, dtype=torch.bool)), r"padding_mask: .*\(2, 5\), got \(2, 2\)"),
    ("rca", bad(attn_mask=torch.ones(2, 2, dtype=torch.bool)), r"attn_mask: .*\(2, 5\).*got \(2, 2\)"),
    ("disrca", bad(attn_bias=torch.zeros(2, 4)), r"attn_bias: .*got \(2, 4\)"),
    ("sensory", bad(freqs_cos=torch.zeros(2, 2), freqs_sin=torch.zeros(2, 2)), "at least 5 rows"),
    ("sensory", bad(freqs_cos=torch.zeros(3, 9, 2), freqs_sin=torch.zeros(3, 9, 2)), "each of 2 examples"),
    ("dual", lambda model, x, cache: model(x[:1], cache), "cache: holds a batch of 2, got 1"),
    ("dual", lambda model, x, cache: cache.crop(4), "length: expected 0 to 3, .*got 4"),
    ("dual", lambda model, x, cache: cache.crop(-1), "length: .*got -1"),
    ("dual", lambda model, x, cache: cache.reorder(torch.tensor([0, 2])), "indices: expected 0 to 1"),
    ("dual", lambda model, x, cache: cache.reorder(torch.tensor([[0]])), "indices: expected shape"),
    ("dual", lambda model, x, cache: cache.reorder(torch.tensor([0.0])), TypeError, "indices: expected integers"),
    ("decoder", bad(context=torch.zeros(2, 9, WIDTH)), r"cache: holds a context of .*\(2, 9\)"),
    ("dual decoder", bad(context_padding_mask=torch.ones(2, 9, dtype=torch.bool)), "padding_mask: "),
    of="kind, call",
)
def test_a_failed_call_leaves_the_cache_as_it_was(kind, call, error, message):
    model, x = net(kind, "relational symbolic"), normal(2, 5, WIDTH)
    cache = model.new_cache()
    model(x[:, :3], cache)
    with cache["layer"].transaction():  # the symbols are retrieved before the layer fails, as in a model
        state = (cache["layer"].length, cache["layer"].numel(), cache["layer"].nbytes())
        with pytest.raises(error, match=message), cache.transaction():
            call(model, x[:, 3:] + 9.0, cache)
    assert (cache["layer"].length, cache["layer"].numel(), cache["layer"].nbytes()) == state
    close(model(x[:, 3:], cache), model(x)[:, 3:])


def test_a_layer_that_fails_late_undoes_its_parts():
    """Without a transaction around it: dual attention's relational heads refuse symbols after the sensory heads ran."""
    block, x = float64(DualAttnEncoderBlock(WIDTH, 2, 2, **COMMON)), normal(2, 5, WIDTH)
    cache = block.new_cache()
    with torch.no_grad():
        block(x[:, :3], x[:, :3], cache=cache)
        with pytest.raises(ValueError, match="symbols: expected one for each of 2 senders, got 1"):
            block(x[:, 3:], x[:, :1], cache=cache)
        assert cache.length == 3 and cache["self_attention"].length == 3
        close(block(x[:, 3:], x[:, 3:], cache=cache), block(x, x)[:, 3:])


DUAL = DualAttention(8, 2, 2)


def uneven():
    cache = DUAL.new_cache()
    cache["self_attention"].append(1, 1, k=torch.zeros(1, 2, 1, 2), v=torch.zeros(1, 2, 1, 2))
    return cache


test_caches_of_other_layers_are_refused = refused(
    (Attention(8, 2), Attention(8, 4).new_cache(), r"cache: expected .*\(2, 4\).*got .*\(4, 2\)"),
    (Attention(8, 2), Attention(8, 2, window=3).new_cache(), "window=None, got .*window=3"),
    (Attention(8, 2), Attention(8, 4).new_context_cache(), "cache: expected"),
    (Attention(8, 2), CacheGroup({"a": Attention(8, 2).new_cache()}), TypeError, "got CacheGroup"),
    (Attention(8, 2), {"k": 1}, TypeError, "cache: .*got dict"),
    (Attention(8, 2), Attention(8, 2).new_context_cache(), "needs no is_causal"),
    (DUAL, DUAL.new_cache()["self_attention"], TypeError, "expected a CacheGroup"),
    (DUAL, DualAttention(8, 4, 0).new_cache(), r"expected the parts .*got \['self_attention'\]"),
    (DUAL, uneven(), "lengths {'self_attention': 1, 'relational_attention': 0}"),
    by=torch.no_grad()(
        lambda layer, cache: layer(*[torch.zeros(1, 2, 8)] * (2 if layer is DUAL else 3), is_causal=True, cache=cache)
    ),
)


def test_a_block_that_is_not_causal_takes_no_cache():
    block = EncoderBlock(8, 2, **{**COMMON, "causal": False})
    with torch.no_grad(), pytest.raises(ValueError, match="cache: needs is_causal=True"):
        block(torch.zeros(1, 2, 8), cache=block.new_cache())


@refusals(
    (lambda cache: cache.append(1, 1), r"expected the tensors \['k'\], got \[\]"),
    (lambda cache: cache.append(1, 2, k=torch.zeros(1, 2, 1, 3)), r"k: expected shape \(1, 2, 2, 3\)"),
    (lambda cache: cache.append(1, 1, k=torch.zeros(1, 2, 1, 3).double()), TypeError, "k: .*float32.*float64"),
    (lambda cache: cache.reserve(0), "length: expected a positive number"),
    (lambda cache: TokenCache({}, window=0), "window: .*got 0"),
    (lambda cache: TokenCache({}, max_length=0), "max_length: .*got 0"),
    (lambda cache: CacheGroup({}), "caches: expected one or more"),
    (lambda cache: CacheGroup({"a": cache, "b": cache}), r"each of them once, got \['a', 'b'\]"),
    (lambda cache: ContextCache({"k": (1,)}).append(1, 1), r"expected the tensors \['k'\], got \[\]"),
)
def test_caches_check_what_they_are_given(call, error, message):
    cache = TokenCache({"k": (2, 3)})
    cache.append(1, 1, k=torch.zeros(1, 2, 1, 3))
    with pytest.raises(error, match=message):
        call(cache)
    assert (cache.length, cache.numel()) == (1, 6)


def test_one_set_of_shared_symbols_serves_all_examples():
    layer, x, s = float64(RelationalAttention(WIDTH, 2)), normal(3, 5, WIDTH), normal(1, 5, WIDTH)
    cache = layer.new_cache()
    with torch.no_grad():
        outs = [layer(x[:, i : i + 1], s[:, i : i + 1], is_causal=True, cache=cache).output for i in range(5)]
        close(torch.cat(outs, dim=1), layer(x, s, is_causal=True).output)


def test_a_model_keeps_the_caches_of_its_layers_in_one_group():
    """Two blocks and their symbols: reordered, cropped and undone together."""
    blocks = [net("dual encoder", "relational symbolic", rope=True) for _ in range(2)]
    symbols, x = blocks[0].symbols, normal(2, 7, WIDTH)

    @torch.no_grad()
    def model(x, cache=None):
        part = (lambda name: None) if cache is None else cache.caches.get
        s = symbols(x, cache=part("symbols"))
        for i, block in enumerate(blocks):
            x = block.layer(x, s, *block.tables, cache=part(str(i)))
        return x

    layers = {str(i): block.layer.new_cache(LONGEST) for i, block in enumerate(blocks)}
    cache = CacheGroup({"symbols": symbols.new_cache(LONGEST), **layers})
    model(x[:, :3], cache)
    with pytest.raises(RuntimeError, match="stop"), cache.transaction():
        model(x[:, 3:5] + 1, cache)
        raise RuntimeError("stop")
    assert cache.length == 3
    cache.reorder(torch.tensor([1, 0, 1]))
    wanted = x[[1, 0, 1]]
    close(torch.cat([model(wanted[:, 3:5], cache), model(wanted[:, 5:], cache)], dim=1), model(wanted)[:, 3:])
    assert cache.numbers_per_token == WIDTH + 2 * 5 * 4
