"""Memory that caches hold: numbers for each token, what a window lets go of, and how often they move."""

import pytest
import torch

from dual_attention._layers.cache import CacheGroup, TokenCache
from dual_attention.dual_attn_blocks import DualAttnEncoderBlock
from dual_attention.transformer_blocks import EncoderBlock
from tests.support.caches import CONTEXT, RELATIONAL, WIDTH, close, mechanism, net
from tests.support.tensors import float64, normal


def test_numbers_per_token_of_the_published_343m_configuration():
    """Keys and values of 4 sensory groups of width 64; keys and symbols of 4 relational ones; R * p = 512."""
    with torch.device("meta"):
        common = (4096, "swiglu", 0.0, True)
        grouped = {"n_kv_heads": 4}
        for n_relations in (8, 64):
            extra = {"sa_kwargs": grouped, "ra_kwargs": {**grouped, "n_relations": n_relations}, "causal": True}
            cache = DualAttnEncoderBlock(1024, 8, 8, *common, **extra).new_cache()
            assert cache.numbers_per_token == 1536
        assert EncoderBlock(1024, 16, 4096, 0.0, "swiglu", True, causal=True).new_cache().numbers_per_token == 2048


@pytest.mark.parametrize(
    "kind, symbols, grouped, numbers",
    [
        ("sensory", None, False, 8 + 8),
        ("sensory", None, True, 4 + 4),
        ("relational", "symbolic", False, 8 + 8 + 8),
        ("relational", "symbolic", True, 4 + 8 + 4),
        ("relational", "relative", False, 8 + 8),
        ("rca", "symbolic", False, 8 + 8),
        ("rca", "relative", True, 4),
        ("disrca", "symbolic", True, 4 + 4 + 4),
        ("disrca", "relative", False, 8 + 8),
        ("dual", "symbolic", False, 4 + 4 + 4 + 4 + 4),
        ("decoder", None, False, 8 + 8),
    ],
)
def test_numbers_held(kind, symbols, grouped, numbers):
    model, x = net(kind, symbols or "symbolic", grouped=grouped), normal(3, 5, WIDTH)
    cache = model.layer.new_cache()
    assert cache.numbers_per_token == numbers and cache.numel() == 0 and cache.batch is None
    model(x, CacheGroup({"layer": cache}))
    context = 3 * CONTEXT * 2 * WIDTH if kind == "decoder" else 0
    assert cache.numel() == 3 * 5 * numbers + context
    assert cache.nbytes() >= 8 * cache.numel() and cache.batch == 3


@pytest.mark.parametrize("kind", RELATIONAL)
def test_relative_symbols_are_projected_once(kind):
    """By layers alone; weights and types may be others once all tokens are forgotten, or with another library."""
    model, x = net(kind, "relative"), normal(2, 9, WIDTH)
    projected = []
    model.layer.wv.register_forward_hook(lambda *_: projected.append(1))
    cache, expected = model.new_cache(), model(x)
    projected.clear()
    close(model.in_chunks(x, [4, 1, 1, 1, 1, 1], cache), expected)
    assert len(projected) == 1
    held = cache["layer"]
    cache.reset()
    assert held.nbytes() == 0
    model(x[:, :4], cache)
    assert len(projected) == 2
    cache.crop(0)
    with torch.no_grad():
        model.layer.wv.weight.mul_(2)
    close(model.in_chunks(x, [4, 1, 1, 1, 1, 1], cache), model(x))
    cache.crop(5)
    model.symbols = float64(mechanism("relative"))
    projected.clear()
    model(x[:, 5:], cache)
    assert len(projected) == 1


@pytest.mark.parametrize("kind", ["sensory", "relational", "dual encoder"])
@pytest.mark.parametrize("window", [1, 4])
def test_a_window_bounds_memory(kind, window):
    model, x = net(kind, "symbolic", window=window), normal(2, 50, WIDTH)
    cache = CacheGroup({"layer": model.layer.new_cache()})
    per_token = 2 * cache.numbers_per_token
    for size in (30, *[1] * 10, 5, *[1] * 5):
        model(normal(2, size, WIDTH), cache)
        assert cache.numel() == per_token * min(cache.length, window - 1)
        assert cache.nbytes() <= 8 * per_token * 2 * window
    assert cache.length == x.shape[1]


def test_reserved_memory_is_never_moved():
    cache = TokenCache({"k": (2, 3)}, max_length=20)
    places = {cache.append(1, 1, k=torch.zeros(1, 2, 1, 3))[0].data_ptr() for _ in range(20)}
    assert len(places) == 1 and cache.nbytes() == 4 * 20 * 6
    with pytest.raises(ValueError, match="max_length=20 exceeded by 1 tokens after 20"):
        cache.append(1, 1, k=torch.zeros(1, 2, 1, 3))


def test_growing_moves_seldom():
    cache = TokenCache({"k": (2, 3)})
    kept, moves = None, 0
    for step in range(256):
        (k,) = cache.append(1, 1, k=torch.full((1, 2, 1, 3), float(step)))
        moves += kept is not None and k.data_ptr() != kept.data_ptr()
        kept = k
    assert moves <= 8 and torch.equal(kept[0, 0, :, 0], torch.arange(256.0))


def test_a_window_moves_seldom():
    cache = TokenCache({"k": (1,)}, window=8)
    moves, buffer = 0, None
    for step in range(800):
        (k,) = cache.append(1, 1, k=torch.full((1, 1, 1), float(step)))
        assert torch.equal(k[0, :, 0], torch.arange(max(0.0, step - 7.0), step + 1.0))
        moves += buffer is not None and k.untyped_storage().data_ptr() != buffer.untyped_storage().data_ptr()
        buffer = k
    assert moves <= 800 / 8


def test_reserved_memory_is_taken_once_and_is_no_limit():
    cache = TokenCache({"k": (2, 3)})
    cache.reserve(20)
    assert cache.nbytes() == 0
    (held,) = cache.append(1, 4, k=torch.ones(1, 2, 4, 3))
    places = {held.data_ptr()}
    for _ in range(16):
        places.add(cache.append(1, 1, k=torch.ones(1, 2, 1, 3))[0].data_ptr())
    assert len(places) == 1 and cache.nbytes() == 4 * 20 * 6
    cache.append(1, 1, k=torch.ones(1, 2, 1, 3))
    assert cache.length == 21 and cache.nbytes() > 4 * 20 * 6
    windowed = TokenCache({"k": (2, 3)}, window=3)
    windowed.reserve(1000)
    windowed.append(1, 4, k=torch.ones(1, 2, 4, 3))
    assert windowed.nbytes() <= 4 * 2 * 3 * 6
