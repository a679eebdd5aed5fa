"""A step of generation that is the same for every token: the tokens are those of the growing cache."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from dual_attention._layers.fixed import FixedCache, Steps, fixed_caches
from dual_attention.generation import evaluating, generate, graph
from dual_attention.generation.graph import GraphDecoder
from tests.support.language import CONTEXT, KINDS, VOCAB, lm, tokens, with_attention
from tests.support.refusals import refused

pytestmark = pytest.mark.sweep(8)

LEFT, GAPS = (torch.tensor([[1] * 5, row]).bool() for row in ([0, 0, 0, 1, 1], [1, 0, 1, 1, 0]))
PADDING = {"no padding": None, "on the left": LEFT, "between and on the right": GAPS}
STEPS = 10


def as_it_is(step, steps):
    return step


def greedy(model, prompt, real, record):
    """Logits of the tokens after a prompt, each the likeliest, by a decoder that records its step with ``record``."""
    decoder = GraphDecoder(model, padding_mask=real, max_length=prompt.shape[1] + STEPS, record=record)
    new, found = prompt, []
    with evaluating(model):
        for _ in range(STEPS + 1):
            found.append(decoder.step(new))
            new = found[-1].argmax(-1, keepdim=True)
    return torch.stack(found, dim=1)


def expected(model, prompt, found, real):
    """Logits of one pass over the same tokens."""
    text = torch.cat([prompt, found.argmax(-1)[:, :-1]], dim=1)
    if real is not None:
        real = torch.cat([real, torch.ones(len(text), STEPS, dtype=torch.bool)], dim=1)
    with evaluating(model):
        return model(text, padding_mask=real).logits[:, prompt.shape[1] - 1 :]


VARIANTS = [(kind, position, {}) for kind in KINDS for position in ("pos_emb", "RoPE")] + [
    ("symbolic_attention", "RoPE", {"window": 3, "n_kv_heads": 1}),
    ("position_relative", "none", {"window": 4, "shaw_max_rel_pos": 2}),
    ("rel_sym_attn", "RoPE", {"window": 2}),
    ("transformer", "none", {"shaw_max_rel_pos": 3}),
]


@pytest.mark.parametrize("padding", PADDING.values(), ids=PADDING)
@pytest.mark.parametrize(("kind", "pos_enc_type", "attention"), VARIANTS)
def test_logits_are_those_of_one_pass(kind, pos_enc_type, attention, padding):
    model, prompt = lm(kind, pos_enc_type=pos_enc_type, **with_attention(kind, **attention)), tokens(2, 5)
    found = greedy(model, prompt, padding, as_it_is)
    torch.testing.assert_close(found, expected(model, prompt, found, padding), atol=1e-10, rtol=0)


def test_sinusoids_and_squared_distances():
    symbols = {"symbol_retrieval_kwargs": {"symbol_dim": 16, "sinusoidal": True}}
    model, prompt = lm("position_relative", **symbols, ra_kwargs={"rel_score": "squared_distance"}), tokens(2, 5)
    found = greedy(model, prompt, None, as_it_is)
    torch.testing.assert_close(found, expected(model, prompt, found, None), atol=1e-10, rtol=0)


def test_kinds_of_head_have_windows_of_their_own():
    model, prompt = lm("symbolic_attention", sa_kwargs={"window": 4}, ra_kwargs={"window": 2}), tokens(2, 5)
    found = greedy(model, prompt, None, as_it_is)
    torch.testing.assert_close(found, expected(model, prompt, found, None), atol=1e-10, rtol=0)


def test_logits_stay_when_the_next_step_writes_over_them():
    """As a graph does."""

    def overwriting(step, steps):
        memory = torch.empty(2, VOCAB, dtype=torch.float64)
        return lambda: memory.copy_(step())

    model, prompt = lm("transformer"), tokens(2, 5)
    found = greedy(model, prompt, None, overwriting)
    torch.testing.assert_close(found, expected(model, prompt, found, None), atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_one_graph_serves_all_steps(kind):
    """As a compiler records it, which compiles anew when a number or a shape changes."""
    model, prompt, counter = lm(kind, pos_enc_type="RoPE", n_layers=1), tokens(2, 5), CompileCounter()
    compiled = lambda step, steps: torch.compile(step, backend=counter, fullgraph=True, dynamic=False)  # noqa: E731
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        found = greedy(model, prompt, LEFT, compiled)
    assert counter.frame_count == 1
    torch.testing.assert_close(found, expected(model, prompt, found, LEFT), atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_the_same_with_a_graph(kind, monkeypatch):
    """As on a GPU, but that nothing is recorded."""
    monkeypatch.setattr("dual_attention.generation.language.obstacle_to_graph", lambda *_, **__: None)
    monkeypatch.setattr(graph, "recorded", as_it_is)
    model, prompt = lm(kind), tokens(2, 5)
    for sampled in ({"top_k": 1}, {"temperature": 0.7, "top_p": 0.9}):
        texts = []
        for repeated in (False, True):
            torch.manual_seed(0)
            texts.append(generate(model, prompt, STEPS, graph=repeated, **sampled))
        assert torch.equal(*texts)


def test_recording_leaves_the_place_where_it_was(monkeypatch):
    """With streams and a graph that only tell what they are asked for: two runs to warm up, one that is recorded."""
    told = []

    class Stream:
        def wait_stream(self, other):
            told.append("waits")

    class Graph:
        def replay(self):
            told.append("replayed")

    for name in ("device", "stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, lambda what: nullcontext())
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    steps, seen = Steps(5, torch.ones(1, 8, dtype=torch.bool)), []

    def step():
        seen.append(int(steps.place))
        steps.advance()
        return torch.tensor(len(seen))

    repeat = graph.recorded(step, steps)
    assert (seen, int(steps.place)) == ([5, 5, 5], 5)
    assert repeat() == 3 and told == ["waits", "waits", "replayed"]


def test_a_recorded_step_makes_no_table_again():
    """Whether or not a compiler sees that it is the same: with PyTorch 2.11 it does not."""
    model, prompt = lm("position_relative", n_layers=1), tokens(2, 5)
    cache = model.new_cache()
    with torch.no_grad():
        model(prompt, cache=cache)
        fixed = fixed_caches(cache, Steps(5, torch.ones(1, 8, dtype=torch.bool)))
    relational = fixed.caches["blocks"].caches["0"].caches["relational_attention"]
    (made,) = [made for key, made in relational._made.values() if isinstance(key, torch.Tensor)]
    assert relational.once(torch.zeros(3), lambda: pytest.fail("made again")) is made


def test_nothing_is_recorded_for_a_single_token():
    model, prompt = lm("transformer"), tokens(2, 5)
    decoder = GraphDecoder(model, max_length=5, record=lambda step, steps: pytest.fail("recorded"))
    with evaluating(model):
        torch.testing.assert_close(decoder.step(prompt), model(prompt).logits[:, -1])


def test_padding_that_is_not_finite_is_not_seen():
    model, prompt = lm("symbolic_attention", pos_enc_type="none", tie_weights=False), tokens(2, 5)
    with torch.no_grad():
        model.layers.token_embedder.weight[7] = torch.nan
    prompt[prompt == 7] = 3
    prompt[1, :3] = 7
    found = greedy(model, prompt, LEFT, as_it_is)
    assert torch.isfinite(found).all()


def test_what_a_recorded_step_cannot_take():
    model, prompt = lm("transformer"), tokens(2, 5)
    decoder = GraphDecoder(model, max_length=7, record=as_it_is)
    with evaluating(model):
        decoder.step(prompt)
        for wrong in (tokens(3, 1), tokens(2, 2), tokens(2, 1).to("meta")):
            with pytest.raises(ValueError, match=r"tokens: expected \(2, 1\) on cpu, as the step was recorded"):
                decoder.step(wrong)
        with pytest.raises(ValueError, match="graph: a recorded step has its examples"):
            decoder.reorder(torch.tensor([1, 0]))
        for _ in range(2):
            decoder.step(tokens(2, 1))
        with pytest.raises(ValueError, match="at most max_length=7 in all"):
            decoder.step(tokens(2, 1))


def test_fixed_caches_are_for_single_tokens_in_their_order():
    model, prompt = lm("symbolic_attention"), tokens(2, 5)
    cache, steps = model.new_cache(), Steps(5, torch.ones(1, 8, dtype=torch.bool))
    with torch.no_grad():
        model(prompt, cache=cache)
        fixed = fixed_caches(cache, steps)
        assert fixed.batch == 2
        for call in (lambda: fixed.crop(1), lambda: fixed.reorder(torch.tensor([1, 0]))):
            with pytest.raises(ValueError, match="of a fixed size is neither reordered nor cropped"):
                call()
        with pytest.raises(ValueError, match="of a fixed size takes one token at a time, got 2"):
            model(tokens(2, 2), cache=fixed)
        with pytest.raises(ValueError, match="padding_mask, positions: a cache of a fixed size"):
            model(tokens(2, 1), positions=torch.tensor([[5]]), cache=fixed)
    windowed = lm("transformer", **with_attention("transformer", window=2))
    cache = windowed.new_cache()
    with torch.no_grad():
        windowed(prompt, cache=cache)
    with pytest.raises(ValueError, match="holds only the last 1 of 5 tokens"):
        fixed_caches(cache, steps)
    assert not isinstance(cache, FixedCache)


class Other(torch.nn.Module):
    vocab_size, block_size = 11, 24


test_what_is_refused = refused(
    ({"model": Other()}, "graph: needs a language model of this library, got Other; graph=False"),
    ({}, "graph: needs model and prompts on CUDA, got cpu and cpu; graph=False launches each"),
    ({"use_cache": False}, "graph: needs use_cache=True; graph=False"),
    ({"max_new_tokens": CONTEXT}, "graph: reads no further than the context, max_block_size=24, got 28"),
    ({"graph": 1}, TypeError, "graph: expected"),
    by=lambda more: generate(
        **{"model": lm("symbolic_attention"), "idx": tokens(2, 5), "max_new_tokens": 3, "graph": True, **more}
    ),
)
