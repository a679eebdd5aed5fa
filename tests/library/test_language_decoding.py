"""Language models with a cache: token by token, or in chunks, the same as all at once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.combinations import examples
from tests.support.language import CONTEXT, KINDS, LAYERS, SYMBOLS, build, close, lm, tokens, with_attention
from tests.support.refusals import refused

POSITIONS = ("pos_emb", "RoPE", "none")

sizes = st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any)  # of chunks, some of them empty


@torch.no_grad()
def in_chunks(model, x, lengths, padding=None, cache=None, **options):
    """Logits of all tokens, given some at a time."""
    cache = model.new_cache() if cache is None else cache
    logits = []
    for chunk in x.split(lengths, dim=1):
        seen = cache.length + chunk.shape[1]
        mask = None if padding is None else padding[:, :seen]
        logits.append(model(chunk, padding_mask=mask, cache=cache, **options).logits)
        assert cache.length == seen
    return torch.cat(logits, dim=1)


@examples(40)
@given(
    kind=st.sampled_from(KINDS),
    pos_enc_type=st.sampled_from(POSITIONS),
    lengths=sizes,
    padding=st.lists(st.integers(0, 5), min_size=1, max_size=3) | st.none(),
    window=st.integers(1, 4) | st.none(),
    shaw=st.integers(0, 3) | st.none(),
    grouped=st.booleans(),
    distances=st.booleans(),
    shared=st.booleans(),
    anew=st.booleans(),
    reserved=st.booleans(),
)
def test_cached_is_uncached(
    kind, pos_enc_type, lengths, padding, window, shaw, grouped, distances, shared, anew, reserved
):
    attention = {"window": window, "shaw_max_rel_pos": shaw, "n_kv_heads": 1 if grouped else None}
    options = {"pos_enc_type": pos_enc_type, **with_attention(kind, **attention)}
    if kind in SYMBOLS:
        options["ra_kwargs"] = attention | {"rel_score": "squared_distance" if distances else "dot"}
        options["symbol_retriever_config"] = {"shared_symbol_retriever": shared or not anew}
        options["update_symbols_each_layer"] = anew
    model = lm(kind, **options)
    length = sum(lengths)
    real, batch = None, 2
    if padding is not None:  # some more tokens on the left, to which padding is confined
        batch = len(padding)
        lengths, length = [6, *lengths], length + 6
        real = torch.arange(length) >= torch.tensor(padding)[:, None]
    x = tokens(batch, length)
    with torch.no_grad():
        wanted = model(x, padding_mask=real).logits
    cache = model.new_cache(length if reserved else None)
    found = in_chunks(model, x, lengths, real, cache)
    if real is None:
        close(found, wanted)
    else:
        close(found[real], wanted[real])
        assert torch.isfinite(found).all()


@pytest.mark.parametrize("kind", KINDS)
def test_only_new_tokens_are_computed(kind):
    model = lm(kind)
    cache = model.new_cache(max_length=10)
    assert set(cache.caches) == ({"blocks"} if kind == "transformer" else {"blocks", "symbols"})
    lengths = []
    for block in model.layers.blocks:
        block.register_forward_pre_hook(lambda module, args: lengths.append(args[0].shape[1]))
    x = tokens(2, 8)
    in_chunks(model, x, [5, 1, 2], cache=cache)
    assert lengths == [5] * LAYERS + [1] * LAYERS + [2] * LAYERS
    assert (cache.length, cache.batch) == (8, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_beams_are_reordered_and_cropped(kind):
    model = lm(kind, pos_enc_type="RoPE")
    x, chosen = tokens(3, 6), torch.tensor([2, 2, 0, 1])
    cache = model.new_cache()
    in_chunks(model, x, [6], cache=cache)
    if kind == "rel_sym_attn":  # which keeps as many tokens as its neighbourhood has
        cache.reset()
        in_chunks(model, x[:, :4], [4], cache=cache)
    else:
        cache.crop(4)
    cache.reorder(chosen)
    more = tokens(4, 2)
    with torch.no_grad():
        wanted = model(torch.cat((x[chosen, :4], more), dim=1)).logits[:, 4:]
    close(in_chunks(model, more, [1, 1], cache=cache), wanted)
    cache.reset()
    close(in_chunks(model, x, [2, 4], cache=cache), model(x).logits.detach())


def test_what_a_neighbourhood_needs_is_not_cropped():
    model = lm("rel_sym_attn", pos_enc_type="RoPE")
    cache = model.new_cache()
    in_chunks(model, tokens(3, 6), [6], cache=cache)
    with pytest.raises(ValueError, match="length: to continue after 4 tokens, 2 must be held"):
        cache.crop(4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_new_tokens(kind):
    model, x, targets = lm(kind), tokens(2, 8), tokens(2, 8)
    real = torch.arange(8) >= torch.tensor([[0], [6]])
    cache = model.new_cache()
    with torch.no_grad():
        model(x[:, :5], padding_mask=real[:, :5], cache=cache)
        found = model.loss(x[:, 5:], targets[:, 5:], padding_mask=real, cache=cache)
        unscored = targets.clone()
        unscored[:, :5] = -1
        close(found, model.loss(x, unscored, padding_mask=real))


@pytest.mark.parametrize("kind", KINDS)
def test_positions_may_be_given_for_new_tokens(kind):
    model, x = lm(kind, pos_enc_type="RoPE"), tokens(2, 7)
    cache = model.new_cache()
    with torch.no_grad():
        model(x[:, :4], cache=cache)
        found = model(x[:, 4:], positions=torch.tensor([[4, 5, 6]]), cache=cache).logits
        close(found, model(x).logits[:, 4:])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pos_enc_type", POSITIONS)
def test_a_call_that_fails_leaves_the_cache_as_it_was(kind, pos_enc_type):
    model, x = build(kind, pos_enc_type=pos_enc_type).eval(), tokens(2, CONTEXT)
    cache = model.new_cache()
    with torch.no_grad():
        wanted = model(x).logits
        model(x[:, :-1], cache=cache)
        with pytest.raises(ValueError, match="x: a sequence of 25 tokens is longer than the context"):
            model(x[:, :2], cache=cache)
        with pytest.raises(ValueError, match="segments: packed sequences cannot be continued from a cache"):
            model(x[:, :1], segments=torch.zeros(1, 1, dtype=torch.long), cache=cache)
        with pytest.raises(ValueError, match=r"padding_mask: expected shape .*\(2, 24\), the 23 tokens in the c"):
            model(x[:, :1], padding_mask=torch.ones(2, 1, dtype=torch.bool), cache=cache)
        with pytest.raises(ValueError, match="targets: expected the shape of x"):
            model(x[:, :1], x, cache=cache)
        with pytest.raises(ValueError, match="cache: holds a batch of 2, got 1"):
            model(x[:1, :1], cache=cache)
        assert cache.length == CONTEXT - 1
        close(model(x[:, -1:], cache=cache).logits, wanted[:, -1:], 1e-5)
    with pytest.raises(ValueError, match="cache: keeps no graph"):
        model(x[:, :2], cache=model.new_cache())


PLAIN = build("transformer")

test_the_cache_of_another_model = refused(
    (build("symbolic_attention"), PLAIN.new_cache(),
     r"cache: expected the parts \['blocks', 'symbols'\], got \['blocks'\]"),
    (PLAIN, build("transformer", n_layers=3).new_cache(),
     r"cache: expected the parts \['0', '1'\], got \['0', '1', '2'\]"),
    (PLAIN, PLAIN.layers.blocks[0].new_cache(), TypeError, "cache: expected a CacheGroup"),
    by=torch.no_grad()(lambda model, cache: model(tokens(1, 2), cache=cache)),
)  # fmt: skip


def test_gradient_checkpointing_stays_away_from_a_cache():
    model, x = lm("symbolic_attention"), tokens(2, 5)
    model.gradient_checkpointing = True
    with torch.no_grad():
        close(in_chunks(model, x, [2, 3]), model(x).logits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "window", "dynamic"),
    [
        ("transformer", 3, None),
        ("rel_sym_attn", None, None),
        ("position_relative", 3, None),
        ("position_relative", 3, True),
    ],
)
def test_compiled_decoding_is_one_graph(kind, window, dynamic):
    model = lm(kind, n_layers=1, pos_enc_type="RoPE", **with_attention(kind, window=window))
    x, lengths = tokens(2, 6), [4, 1, 1]
    wanted = in_chunks(model, x, lengths)
    torch._dynamo.reset()
    model.forward = torch.compile(model.forward, fullgraph=True, backend="eager", dynamic=dynamic)
    close(in_chunks(model, x, lengths), wanted)
