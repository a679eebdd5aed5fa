"""Generation with language models: what comes out, past the context too, and what is left behind."""

import inspect
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.generation import dropped_tokens, generate, generate_stream, left_pad
from tests.support.combinations import examples

from .models import CONTEXT, VOCABULARY, AllLogits, greedily, next_logits, seen, small_lm

pytestmark = pytest.mark.sweep(4)

PROMPT = [4, 1, 7]
MODELS = [{}, {"rope": True}, {"dual": False}, {"window": 3}, {"dual": False, "rope": True, "window": 3}]


@pytest.fixture
def model():
    return small_lm()


def batch(*texts: list[int]) -> torch.Tensor:
    return torch.tensor(texts)


@pytest.mark.parametrize("arguments", MODELS, ids=str)
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("stride", [1, 3, CONTEXT])
def test_greedy(arguments, use_cache, stride):
    """Within the context and far past it: each token is the likeliest after what the definition says is seen."""
    model = small_lm(**arguments)
    n = 2 * CONTEXT + 5
    out = generate(model, batch(PROMPT), n, 0, use_cache=use_cache, window_stride=stride)
    expected = greedily(model, PROMPT, n, stride)
    assert out.tolist() == [expected]
    assert len(set(expected[CONTEXT:])) > 2, "a model that repeats one token tests little"


prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=CONTEXT + 5)


@examples(20)
@given(
    texts=st.lists(prompts, min_size=1, max_size=4),
    n=st.integers(0, CONTEXT + 3),
    stride=st.integers(1, CONTEXT),
    use_cache=st.booleans(),
    arguments=st.sampled_from(MODELS),
    extra=st.integers(0, 2),
)
def test_a_batch_gives_what_each_prompt_gives_alone(texts, n, stride, use_cache, arguments, extra):
    """With left padding, more of it than needed too, and each row leaving its context when it would alone."""
    torch.manual_seed(len(texts))
    model = small_lm(**arguments)
    tokens, mask = left_pad(texts, pad_token=2)
    tokens = torch.cat([torch.full((len(texts), extra), 5), tokens], dim=1)
    mask = torch.cat([torch.zeros(len(texts), extra, dtype=torch.bool), mask], dim=1)
    out = generate(model, tokens, n, 0, padding_mask=mask, use_cache=use_cache, window_stride=stride)
    assert torch.equal(out[:, : tokens.shape[1]], tokens)
    for row, text in zip(out.tolist(), texts, strict=True):
        assert row[len(row) - len(text) - n :] == greedily(model, text, n, stride)


def test_dropped_tokens():
    for stride in range(1, CONTEXT + 1):
        lengths = torch.arange(4 * CONTEXT)
        expected = [length - len(seen([0] * length, stride)) for length in range(4 * CONTEXT)]
        assert dropped_tokens(lengths, CONTEXT, stride).tolist() == expected


def test_the_cache_reads_each_token_once(model):
    generate(model, batch(PROMPT), 5, 0)
    assert model.calls == [3, 1, 1, 1, 1]


def test_past_the_context_the_window_is_read_anew(model):
    generate(model, batch(PROMPT), 8, 0)
    assert model.calls == [3, 1, 1, 1, 1, 1, CONTEXT, CONTEXT]
    assert model.cached == [True] * 6 + [False] * 2  # what the next window cannot use is not kept


def test_a_stride_lets_the_cache_serve_past_the_context(model):
    generate(model, batch(PROMPT), 12, 0, window_stride=3)
    assert model.calls == [3, 1, 1, 1, 1, 1, 6, 1, 1, 6, 1, 1]
    assert all(model.cached)


def test_the_cache_reserves_what_is_needed(model, monkeypatch):
    reserved = []
    new_cache = model.new_cache
    monkeypatch.setattr(
        model, "new_cache", lambda max_length=None: reserved.append(max_length) or new_cache(max_length)
    )
    for n in (0, 1, 4, 50):
        generate(model, batch(PROMPT), n, 0)
    assert reserved == [3, 3, 6, CONTEXT]


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"temperature": 0.6}, {"temperature": 1.5, "top_k": 5}], ids=str)
def test_the_published_definition(model, options):
    """Crop to the context, divide by the temperature, keep the top k, draw with torch.multinomial."""
    torch.manual_seed(7)
    out = model.generate(batch(PROMPT, [2, 2, 9]), 15, **options)
    torch.manual_seed(7)
    idx = batch(PROMPT, [2, 2, 9])
    for _ in range(15):
        with torch.no_grad():
            logits = model(idx[:, -CONTEXT:])[0][:, -1] / options.get("temperature", 1.0)
        if "top_k" in options:
            logits[logits < logits.topk(options["top_k"]).values[:, [-1]]] = -math.inf
        idx = torch.cat([idx, torch.multinomial(logits.softmax(-1), 1)], dim=1)
    assert torch.equal(out, idx)


def test_the_published_call():
    names = list(inspect.signature(generate).parameters)
    assert names[1:5] == ["idx", "max_new_tokens", "temperature", "top_k"]
    model = AllLogits().double().eval()
    torch.manual_seed(1)
    by_position = generate(model, batch(PROMPT), 6, 0.9, 4, use_cache=False)
    torch.manual_seed(1)
    by_name = generate(model, idx=batch(PROMPT), max_new_tokens=6, temperature=0.9, top_k=4, use_cache=False)
    assert torch.equal(by_position, by_name)
    greedy = generate(model, batch(PROMPT), 9, 0, use_cache=False)  # of logits for all positions, the last
    assert greedy.tolist() == [greedily(model.inner, PROMPT, 9)]


SAMPLING = {"temperature": 1.2, "top_k": 6, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 1.3}


def test_streaming_gives_the_same(model):
    tokens, mask = left_pad([PROMPT, [5], [1, 2, 3, 4, 5]])
    arguments = {**SAMPLING, "padding_mask": mask, "seed": 5}
    whole = generate(model, tokens, 12, **arguments)
    stream = list(generate_stream(model, tokens, 12, **arguments))
    assert [token.shape for token in stream] == [(3,)] * 12
    assert torch.equal(torch.cat([tokens, torch.stack(stream, dim=1)], dim=1), whole)
    assert torch.equal(model.generate(tokens, 12, **arguments), whole)
    assert all(map(torch.equal, model.generate_stream(tokens, 12, **arguments), stream))


def test_streaming_computes_no_further_than_read(model):
    stream = generate_stream(model, batch(PROMPT), 10, 0)
    assert model.calls == []
    next(stream)
    next(stream)
    assert model.calls == [3, 1]


def test_a_seed_reproduces_and_leaves_the_global_generator_alone(model):
    state = torch.get_rng_state()
    out = [generate(model, batch(PROMPT), 20, seed=seed) for seed in (0, 0, 4)]
    mine = generate(model, batch(PROMPT), 20, generator=torch.Generator().manual_seed(0))
    assert torch.equal(out[0], out[1])
    assert torch.equal(out[0], mine)
    assert not torch.equal(out[0], out[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_greedy_draws_nothing(model):
    state = torch.get_rng_state()
    generate(model, batch(PROMPT), 5, 0)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_generator_goes_on_where_it_was(model):
    generator = torch.Generator().manual_seed(0)
    first, second = (generate(model, batch(PROMPT), 20, generator=generator) for _ in range(2))
    assert not torch.equal(first, second)


# ---- Options, each seen in the text


@pytest.mark.slow
def test_repetition_penalty_counts_prompt_and_text_but_not_padding(model):
    """Tokens that left the context count; the padding token, unless it occurs, does not."""
    prompts, texts = [[4, 1, 7], [6]], [[4, 1, 7], [6]]
    for text in texts:
        for _ in range(14):
            logits = next_logits(model, text)
            for v in set(text):
                logits[v] = logits[v] / 1.5 if logits[v] > 0 else logits[v] * 1.5
            text.append(int(logits.argmax()))
    for pad in range(VOCABULARY):
        tokens, mask = left_pad(prompts, pad_token=pad)
        out = generate(model, tokens, 14, 0, repetition_penalty=1.5, padding_mask=mask).tolist()
        assert [row[-len(text) :] for row, text in zip(out, texts, strict=True)] == texts


@pytest.mark.parametrize("option", [{"temperature": 1e-50}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1}], ids=str)
def test_options_that_leave_one_token(model, option):
    assert generate(model, batch(PROMPT), 9, **option).tolist() == [greedily(model, PROMPT, 9)]


def test_processors_see_the_tokens(model):
    """One that forbids the last token: no token follows itself."""
    shapes = []

    def no_repeat(tokens, logits):
        shapes.append(tokens.shape)
        return logits.scatter(1, tokens[:, -1:], -math.inf)

    out = generate(model, batch(PROMPT, [2, 2, 2]), 30, logits_processors=[no_repeat])
    assert (out[:, 3:] != out[:, 2:-1]).all()
    assert shapes == [(2, 3 + i) for i in range(30)]


def likely_stop(model, texts: list[list[int]], n: int, at: int) -> int:
    """The token that the first text gets at ``at``."""
    return greedily(model, texts[0], n)[len(texts[0]) + at]


@pytest.mark.parametrize("use_cache", [True, False])
def test_stop_tokens(model, use_cache):
    """A row emits its stop token, then padding; when all have ended, so does the batch."""
    texts = [[4, 1, 7], [6], [2, 9]]
    tokens, mask = left_pad(texts)
    alone = [greedily(model, text, 40)[len(text) :] for text in texts]
    stops = {alone[0][2], alone[1][5], alone[2][0]}
    expected = []
    for new in alone:
        end = next(i for i, token in enumerate(new) if token in stops)
        expected.append(new[: end + 1])
    length = max(map(len, expected))
    padded = [[*new, *[11] * (length - len(new))] for new in expected]
    assert len(set(map(len, expected))) > 1
    for given_stops in (sorted(stops), set(stops), torch.tensor(sorted(stops))):
        out = generate(
            model, tokens, 40, 0, padding_mask=mask, stop_tokens=given_stops, pad_token=11, use_cache=use_cache
        )
        assert out[:, 3:].tolist() == padded


def test_one_stop_token_pads_by_default(model):
    stop = likely_stop(model, [PROMPT], 10, 3)
    out = generate(model, batch(PROMPT, [8, 8, 8]), 10, 0, stop_tokens=stop)
    ended = out[0, 3:].tolist().index(stop)
    assert (out[0, 3 + ended :] == stop).all()


def test_a_stop_token_in_the_prompt_ends_nothing(model):
    assert generate(model, batch(PROMPT), 4, 0, stop_tokens=[PROMPT[0], PROMPT[-1]]).shape[1] > len(PROMPT)


def test_stop_tokens_end_a_stream(model):
    stop = likely_stop(model, [PROMPT], 10, 3)
    stream = list(generate_stream(model, batch(PROMPT), 10, 0, stop_tokens=stop))
    assert stream[-1].item() == stop
    assert len(stream) <= 4
    assert len(model.calls) == 10 + len(stream)


def test_nothing_to_add(model):
    idx = batch(PROMPT)
    assert torch.equal(generate(model, idx, 0), idx)
    assert list(generate_stream(model, idx, 0)) == []
    assert model.calls == []


def test_an_empty_batch(model):
    idx = torch.empty(0, 3, dtype=torch.long)
    assert generate(model, idx, 5, stop_tokens=1).shape == (0, 3)


def test_narrow_integers(model):
    wide = generate(model, batch(PROMPT), 6, 0)
    narrow = generate(model, batch(PROMPT).int(), 6, 0)
    assert narrow.dtype == torch.int64
    assert torch.equal(narrow, wide)


def test_a_prompt_is_not_changed(model):
    tokens, mask = left_pad([PROMPT, [5]])
    before = tokens.clone(), mask.clone()
    generate(model, tokens, 12, padding_mask=mask, stop_tokens=3)
    assert torch.equal(tokens, before[0])
    assert torch.equal(mask, before[1])


# ---- What is left behind: modes of training and of gradients


def modes(model) -> dict[str, bool]:
    return {name: module.training for name, module in model.named_modules()}


@pytest.fixture
def training(model):
    """A model being trained with a part of it frozen."""
    model.train()
    model.blocks[0].eval()
    return model


def test_modes_are_restored(training):
    before = modes(training)
    out = generate(training, batch(PROMPT), 10, 0)
    assert modes(training) == before
    assert out.tolist() == [greedily(training.eval(), PROMPT, 10)]  # nothing was dropped


def test_modes_are_restored_after_an_exception(training):
    before = modes(training)

    def fail(tokens, logits):
        raise KeyError("mine")

    for function in (generate, lambda *args, **kwargs: list(generate_stream(*args, **kwargs))):
        with pytest.raises(KeyError, match="mine"):
            function(training, batch(PROMPT), 5, logits_processors=[fail])
        assert modes(training) == before
        assert torch.is_grad_enabled()


def test_a_stream_disturbs_nothing_between_tokens(training):
    before = modes(training)
    out = []
    for token in generate_stream(training, batch(PROMPT), 10, 0):
        assert modes(training) == before
        assert torch.is_grad_enabled()
        loss = training(batch(PROMPT))[0].sum()  # as a caller who trains meanwhile
        assert loss.requires_grad
        out.append(token.item())
    assert modes(training) == before
    assert [*PROMPT, *out] == greedily(training.eval(), PROMPT, 10)


def test_a_stream_left_early_leaves_nothing_changed(training):
    before = modes(training)
    stream = generate_stream(training, batch(PROMPT), 10)
    next(stream)
    stream.close()
    assert modes(training) == before
    abandoned = generate_stream(training, batch(PROMPT), 10)
    next(abandoned)
    assert modes(training) == before
    assert torch.is_grad_enabled()


def test_a_mode_changed_while_streaming_stays(model):
    stream = generate_stream(model, batch(PROMPT), 5, 0)
    next(stream)
    model.train()
    rest = list(stream)
    assert all(modes(model).values())
    assert [token.item() for token in rest] == greedily(model.eval(), PROMPT, 5)[4:]


def test_tokens_can_be_trained_on(model):
    """They are no inference tensors, which autograd could not save."""
    out = generate(model, batch(PROMPT), 4)
    model.train()(out)[0].sum().backward()
    assert model.embed.weight.grad is not None


def test_streams_of_one_model_do_not_mix(model):
    a, b = generate_stream(model, batch(PROMPT), 9, 0), generate_stream(model, batch([5, 5]), 9, 0)
    mixed = [(x.item(), y.item()) for x, y in zip(a, b, strict=True)]
    assert [x for x, _ in mixed] == greedily(model, PROMPT, 9)[3:]
    assert [y for _, y in mixed] == greedily(model, [5, 5], 9)[2:]
