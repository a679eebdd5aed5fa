"""Sequence-to-sequence models: decoding with a cache, and generation."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.generation import BeamSearch, evaluating, penalise_repetition, search_beams, tokens_seen
from dual_attention.generation.targets import TargetDecoder
from tests.support.seq2seq import (
    ABSTRACTORS,
    COUNTED_BY_LENGTH,
    KINDS,
    SOURCE,
    SYMBOLS,
    TARGET,
    VECTORS,
    build,
    close,
    words,
)
from tests.support.tensors import normal

pytestmark = pytest.mark.sweep(4)

# ---- Cached decoding

chunks = st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) <= TARGET)


@pytest.mark.parametrize("kind", KINDS)
@COUNTED_BY_LENGTH
@given(
    sizes=chunks,
    pos_enc=st.sampled_from(["sinusoidal", "learned", "none"]),
    theta=st.sampled_from([None, 100.0]),
    anew=st.booleans(),
    reserve=st.booleans(),
    lefts=st.none() | st.lists(st.integers(0, 2), min_size=3, max_size=3),
    vectors=st.booleans(),
)
def test_cached_is_uncached(kind, sizes, pos_enc, theta, anew, reserve, lefts, vectors):
    more = {} if kind in ABSTRACTORS else {"rope_theta": theta}
    more |= {"update_symbols_each_layer": anew} if kind in SYMBOLS else {}
    model = build(kind, pos_enc=pos_enc, **more, **(VECTORS if vectors else {}))
    length = sum(sizes)
    x, y = (normal(3, SOURCE, 3), normal(3, length, 2)) if vectors else words(target=length)
    source_mask = torch.arange(SOURCE) < torch.tensor([[2], [9], [5]])
    target_mask = None if lefts is None else torch.arange(length) >= torch.tensor(lefts)[:, None]
    with torch.no_grad():
        memory = model.encode(x, source_padding_mask=source_mask)
        masks = {"source_padding_mask": source_mask, "target_padding_mask": target_mask}
        wanted = model.decode(y, memory, **masks)
        cache, outs = model.new_cache(length if reserve else None), []
        for chunk in y.split(sizes, dim=1):
            seen = cache.length + chunk.shape[1]
            masks["target_padding_mask"] = None if target_mask is None else target_mask[:, :seen]
            outs.append(model.decode(chunk, memory, **masks, cache=cache))
            assert cache.length == seen and cache.batch == 3
    got = torch.cat(outs, dim=1)
    where = slice(None) if target_mask is None else target_mask
    close(got[where], wanted[where])


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_can_be_reordered_and_cropped(kind):
    model, (x, y) = build(kind), words()
    chosen = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        memory = model.encode(x)
        cache = model.new_cache()
        model.decode(y[:, :4], memory, cache=cache)
        cache.reorder(chosen)
        later = torch.randint(6, (4, 2))
        got = model.decode(later, memory[chosen], cache=cache)
        close(got, model.decode(torch.cat([y[chosen, :4], later], dim=1), memory[chosen])[:, 4:])
        if kind == "rel_sym_attn":
            return  # its neighbourhoods keep a window
        cache.crop(3)
        close(
            model.decode(later, memory[chosen], cache=cache),
            model.decode(torch.cat([y[chosen, :3], later], dim=1), memory[chosen])[:, 3:],
        )


def test_a_failed_call_leaves_the_cache_as_it_was():
    model, (x, y) = build("rel_sym_attn"), words()
    with torch.no_grad():
        memory, cache = model.encode(x), model.new_cache()
        first = model.decode(y[:, :3], memory, cache=cache)
        numbers = cache.numel()
        with pytest.raises(ValueError, match="y: expected at most out_block_size=7 positions, got 5 after 3"):
            model.decode(y[:, :5], memory, cache=cache)
        model.layers.final_out.register_forward_pre_hook(fails := lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.decode(y[:, 3:5], memory, cache=cache)
        assert fails and (cache.length, cache.numel()) == (3, numbers)
        model.layers.final_out._forward_pre_hooks.clear()
        close(torch.cat([first, model.decode(y[:, 3:], memory, cache=cache)], 1), model.decode(y, memory))


# ---- Generation


@torch.no_grad()
def greedy_by_hand(model, x, steps, start, **masks):
    rows = []
    for i in range(len(x)):
        y, own = torch.tensor([[start]]), {name: mask[i : i + 1] for name, mask in masks.items()}
        for _ in range(steps):
            logits, _ = model(x[i : i + 1], y, **own)
            y = torch.cat([y, logits[:, -1].argmax(-1)[:, None]], dim=1)
        rows.append(y[0, 1:].tolist())
    return rows


def rows_until(rows, stop):
    """Lists of tokens up to and including the first stop token."""
    return [row[: row.index(stop) + 1] if stop in row else row for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_generation_is_the_model_again_and_again(kind):
    model, (x, _) = build(kind), words(batch=5)
    masks = {"source_padding_mask": torch.arange(SOURCE) < torch.tensor([[2], [9], [5], [7], [1]])}
    wanted = greedy_by_hand(model, x, TARGET, 1, **masks)
    stop = wanted[0][2]
    for use_cache in (True, False):
        how = {"start_token": 1, "use_cache": use_cache, **masks}
        got = model.generate(x, TARGET, **how)
        assert got.dtype == torch.int64 and got.tolist() == wanted
        ended = model.generate(x, TARGET, stop_token=stop, **how)
        assert rows_until(ended.tolist(), stop) == rows_until(wanted, stop)
        first = ended[0].tolist().index(stop)
        assert set(ended[0, first:].tolist()) == {stop}  # padded with the stop token, unless another is named
        padded = model.generate(x, TARGET, stop_token=stop, pad_token=0, **how)
        assert set(padded[0, first + 1 :].tolist()) <= {0} and padded[0, first] == stop


@torch.no_grad()
def best_by_trying_all(model, x, length, start):
    """The likeliest target of ``length`` tokens, and its log-probability."""
    all_targets = torch.cartesian_prod(*[torch.arange(6)] * length)
    y = torch.cat([torch.full((len(all_targets), 1), start), all_targets[:, :-1]], dim=1)
    logits = model.decode(y, model.encode(x).expand(len(y), -1, -1))
    scores = logits.log_softmax(-1).gather(2, all_targets[..., None]).sum((1, 2))
    return all_targets[scores.argmax()], scores.max()


@pytest.mark.parametrize("kind", KINDS)
def test_wide_beams_find_the_likeliest_target(kind):
    model, (x, _) = build(kind), words(batch=2)
    for use_cache in (True, False):
        tokens, scores = model.beam_search(x, 3, 36, start_token=2, length_penalty=0.0, use_cache=use_cache)
        assert tokens.shape == (2, 1, 3)
        for i in range(2):
            wanted, score = best_by_trying_all(model, x[i : i + 1], 3, 2)
            assert torch.equal(tokens[i, 0], wanted)
            close(scores[i, 0], score)
    assert torch.equal(model.generate(x, 3, start_token=2, num_beams=36, length_penalty=0.0), tokens[:, 0])


@pytest.mark.parametrize("kind", KINDS)
@COUNTED_BY_LENGTH
@given(
    num_beams=st.integers(1, 4),
    penalty=st.sampled_from([0.0, 1.0, 2.0]),
    stop=st.none() | st.integers(0, 5),
    early=st.booleans(),
    masked=st.booleans(),
)
def test_beams_with_and_without_a_cache(kind, num_beams, penalty, stop, early, masked):
    model, (x, _) = build(kind), words()
    arguments = {"start_token": 3, "stop_token": stop, "length_penalty": penalty, "early_stopping": early}
    if masked:
        arguments["source_padding_mask"] = torch.arange(SOURCE) < torch.tensor([[2], [9], [5]])
    search = partial(model.beam_search, x, 6, num_beams, num_return=num_beams, **arguments)
    searches = [search(use_cache=use_cache) for use_cache in (True, False)]
    close(searches[0].scores, searches[1].scores)
    assert torch.equal(searches[0].tokens, searches[1].tokens)
    assert (searches[0].scores.diff(dim=1) <= 0).all()
    if num_beams == 1 and stop is None:
        del arguments["early_stopping"], arguments["length_penalty"]
        assert torch.equal(searches[0].tokens[:, 0], model.generate(x, 6, **arguments))


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("penalty", [0.0, 3.0])
def test_beams_are_the_search_of_its_options(penalty, early):
    model, (x, _) = build(), words(batch=8)
    how = {"start_token": 3, "stop_token": [3, 5], "pad_token": 4, "length_penalty": penalty}
    found = model.beam_search(x, 6, 3, num_return=3, early_stopping=early, **how)
    with evaluating(model):
        decoder = TargetDecoder(model, model.encode(x), None, use_cache=False, max_length=6)
        search = BeamSearch(3, 3, penalty, early, stop_tokens=(3, 5), pad_token=4)
        assert torch.equal(found.tokens, search_beams(decoder, torch.full((8, 1), 3), 6, search).tokens)
    best = model.generate(x, 6, num_beams=3, **how)
    assert early or torch.equal(found.tokens[:, 0, : best.shape[1]], best)


def test_options_of_sampling():
    """Those that leave one token are greedy; a penalty is the processor that penalises."""
    model, (x, _) = build(), words(batch=5)
    greedy = model.generate(x, TARGET, start_token=1)
    for option in ({"temperature": 1e-50}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1}):
        assert torch.equal(model.generate(x, TARGET, start_token=1, **{"temperature": 1.0, **option}), greedy)
    penalised = model.generate(x, TARGET, start_token=1, repetition_penalty=5.0)
    processors = [lambda tokens, logits: penalise_repetition(logits, tokens_seen(tokens, 6), 5.0)]
    assert torch.equal(model.generate(x, TARGET, start_token=1, logits_processors=processors), penalised)
    assert not torch.equal(penalised, greedy)


def test_sampling_is_seeded_and_spread_as_the_model_says():
    model, (x, _) = build(), words(batch=1)
    many = x.expand(4000, -1)
    one, other = (model.generate(many, 2, start_token=0, temperature=1.0, seed=5) for _ in range(2))
    assert torch.equal(one, other)
    wanted = model(x, torch.tensor([[0]]))[0][0, -1].softmax(-1)
    found = torch.bincount(one[:, 0], minlength=6) / len(one)
    assert (found - wanted).abs().max() < 0.04
    drawn = model.generate(many, 1, start_token=0, temperature=1.0, top_k=2, seed=5)
    assert set(drawn.flatten().tolist()) == set(wanted.topk(2).indices.tolist())


def test_processors_see_the_prefix_and_what_was_made():
    model, (x, y) = build(), words()
    seen = []

    def never_again(tokens, logits):
        seen.append(tokens)
        return logits.scatter(1, tokens, -torch.inf)

    got = model.generate(x, 3, start_token=y[:, :2], logits_processors=[never_again])
    assert torch.equal(seen[-1], torch.cat([y[:, :2], got[:, :2]], dim=1))
    assert all(len(set(row)) == 3 for row in got.tolist())


def test_a_prefix_for_each_source():
    model, (x, y) = build("positional_symbols"), words()
    got = model.generate(x, 4, start_token=y[:, :3])
    for i in range(3):
        close(got[i : i + 1], model.generate(x[i : i + 1], 4, start_token=y[i : i + 1, :3]))
    assert torch.equal(got[:, 0], model(x, y[:, :3])[0][:, -1].argmax(-1))
    same = model.generate(x, 4, start_token=y[:1, :2])
    assert torch.equal(same, model.generate(x, 4, start_token=y[:1, :2].expand(3, -1)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use_cache", [True, False])
def test_vectors_are_fed_back(kind, use_cache):
    model, x, start = build(kind, **VECTORS), normal(3, SOURCE, 3), normal(3, 2, 2)
    mask = torch.arange(SOURCE) < torch.tensor([[2], [9], [5]])
    got = model.generate_vectors(x, 5, start=start, source_padding_mask=mask, use_cache=use_cache)
    y = start
    for _ in range(5):
        with torch.no_grad():
            y = torch.cat([y, model(x, y, source_padding_mask=mask)[0]], dim=1)
    close(got, y[:, 2:])
    assert model.generate_vectors(x, 0, start=start).shape == (3, 0, 2)


def test_generation_leaves_the_mode_and_asks_for_no_gradients():
    model, (x, _) = build(embedding_dropout=0.5), words()
    wanted = model.generate(x, 5, start_token=0)
    model.train()
    model.layers.encoder_blocks[0].eval()
    modes = [module.training for module in model.modules()]
    for _ in range(2):
        assert torch.equal(model.generate(x, 5, start_token=0), wanted)
    model.generate(x, 5, start_token=0, num_beams=3)
    assert [module.training for module in model.modules()] == modes and torch.is_grad_enabled()


def test_no_new_tokens_and_no_sources():
    model, (x, _) = build(), words()
    assert model.generate(x, 0, start_token=0).shape == (3, 0)
    assert model.generate(x, 0, start_token=0, num_beams=2).shape == (3, 0)
    assert len(model.generate(x[:0], 4, start_token=0)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "position_relative"])
def test_learns_to_reverse(kind):
    """A small model fits a batch of reversed sequences, and then writes them by itself."""
    torch.manual_seed(1)
    sizes = {"d_model": 32, "n_layers_enc": 1, "n_layers_dec": 1}
    retrieval = {} if kind == "plain" else {"symbol_retrieval_kwargs": {"symbol_dim": 32, "max_rel_pos": 8}}
    model = build(kind, **sizes, **retrieval, input_spec={"type": "token", "vocab_size": 6}).float().train()
    x = torch.randint(1, 5, (12, 5))
    targets = torch.cat([x.flip(1), torch.full((12, 1), 5)], dim=1)
    y = torch.cat([torch.zeros(12, 1, dtype=torch.long), x.flip(1)], dim=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        optimiser.zero_grad()
        model(x, y, targets)[1].backward()
        optimiser.step()
    for num_beams in (1, 3):
        got = model.generate(x, 7, start_token=0, stop_token=5, num_beams=num_beams)
        assert torch.equal(got[:, :6], targets)
