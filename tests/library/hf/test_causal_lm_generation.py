"""Generation by transformers' own methods: as by this library, with and without a cache, and compiled."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from transformers import CompileConfig, GenerationConfig, StaticCache

from dual_attention.hf.cache import CACHE
from tests.library.hf.models import GREEDY, KINDS, causal, tokens
from tests.support.combinations import mostly_slow
from tests.support.language import CONTEXT, WIDTH, with_attention
from tests.support.refusals import refusals

pytestmark = pytest.mark.sweep(4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"num_beams": 4, "num_return_sequences": 2}])
def test_generated_with_and_without_cache(kind: str, options: dict):
    model = causal(kind)
    x = tokens(2, 4)
    cached = model.generate(x, max_new_tokens=8, **options, **GREEDY)
    assert torch.equal(cached, model.generate(x, max_new_tokens=8, use_cache=False, **options, **GREEDY))


@pytest.mark.parametrize("kind", ["symbolic_attention", "transformer"])
def test_generated_as_by_this_library(kind: str):
    model = causal(kind).double()
    x = tokens(3, 4)
    ours = model.model.generate(x, 9, temperature=0)
    assert torch.equal(model.generate(x, max_new_tokens=9, **GREEDY), ours)
    ours = model.model.beam_search(x, 5, num_beams=3, length_penalty=1.0).tokens[:, 0]
    assert torch.equal(model.generate(x, max_new_tokens=5, num_beams=3, **GREEDY), ours)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(6))
def test_beams_that_end_are_those_of_this_library(seed: int, penalty: float):
    """``early_stopping="never"`` gives up no text that may still win, as our search does."""
    torch.manual_seed(seed)
    model = causal("transformer" if seed % 2 else "symbolic_attention").double()
    x, stop = tokens(2, 3), seed + 3
    common = {"num_beams": 3, "length_penalty": penalty}
    ours = model.model.beam_search(x, 6, stop_tokens=stop, **common).tokens[:, 0]
    options = {**GREEDY, "eos_token_id": stop, "pad_token_id": stop, "early_stopping": "never", **common}
    theirs = model.generate(x, max_new_tokens=6, attention_mask=torch.ones_like(x), **options)
    length = max(ours.shape[1], theirs.shape[1])
    ours, theirs = (nn.functional.pad(text, (0, length - text.shape[1]), value=stop) for text in (ours, theirs))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"num_beams": 2}])
def test_left_padding(kind: str, options: dict):
    model = causal(kind).double()
    long, short = tokens(1, 6), tokens(1, 3)
    batch = torch.cat([long, torch.cat([torch.zeros_like(short), short], dim=1)])
    mask = torch.tensor([[1] * 6, [0] * 3 + [1] * 3])
    counted = (mask.cumsum(1) - 1).relu()
    together = model.generate(batch, attention_mask=mask, position_ids=counted, max_new_tokens=6, **options, **GREEDY)
    for row, prompt in zip(together, (long, short), strict=True):
        alone = model.generate(prompt, max_new_tokens=6, **options, **GREEDY)
        assert torch.equal(row[-6:], alone[0, -6:])


WINDOWS = with_attention("symbolic_attention", window=5)


KINDS_PAST = ["symbolic_attention", "position_relative", "transformer"]
OPTIONS_PAST = [{"pos_enc_type": "pos_emb"}, {"pos_enc_type": "RoPE"}, WINDOWS]
EACH_ONCE = list(zip(KINDS_PAST, OPTIONS_PAST, strict=True))
PAST = [*EACH_ONCE, *(row for row in product(KINDS_PAST, OPTIONS_PAST) if row not in EACH_ONCE)]


@pytest.mark.parametrize(("kind", "options"), mostly_slow(PAST, quick=3))
def test_past_the_context_as_by_this_library(kind: str, options: dict):
    """The model sees the last ``max_block_size`` tokens, also of padded rows, and of prompts that are longer."""
    model = causal("symbolic_attention" if options is WINDOWS else kind, **options).double()
    for length, new in ((4, CONTEXT), (CONTEXT + 3, 3)):
        x = tokens(2, length)
        mask = torch.ones_like(x)
        mask[0, :2] = 0
        for use_cache in (True, False):
            ours = model.model.generate(x, new, temperature=0, padding_mask=mask.bool(), use_cache=use_cache)
            theirs = model.generate(x, attention_mask=mask, max_new_tokens=new, use_cache=use_cache, **GREEDY)
            assert torch.equal(theirs, ours)
        chunks = GenerationConfig(prefill_chunk_size=3, max_new_tokens=new, **GREEDY)
        assert torch.equal(model.generate(x, attention_mask=mask, generation_config=chunks), theirs)
        assert chunks.prefill_chunk_size == 3
    beams = model.model.beam_search(x, 6, num_beams=2, length_penalty=1.0, padding_mask=mask.bool()).tokens[:, 0]
    assert torch.equal(model.generate(x, attention_mask=mask, max_new_tokens=6, num_beams=2, **GREEDY), beams)


def test_a_cache_of_tokens_that_are_not_given_is_not_outgrown():
    """They cannot be read anew, so a longer text is refused before the first token."""
    model = causal()
    x = tokens(1, CONTEXT - 3)
    with torch.no_grad():
        past = model(x[:, :-1])[CACHE]
    more = {CACHE: past, "attention_mask": torch.ones_like(x)}
    with pytest.raises(ValueError, match=f"expected a text of at most {CONTEXT + 1} tokens.*got {CONTEXT + 2};"):
        model.generate(x[:, -1:], **more, max_new_tokens=5, **GREEDY)
    rest = model.generate(x[:, -1:], **more, max_new_tokens=4, **GREEDY)
    assert torch.equal(rest[:, 1:], model.generate(x, max_new_tokens=4, **GREEDY)[:, -4:])


def test_samples():
    model = causal()
    x = tokens(2, 4)
    runs = []
    for use_cache in (True, False, True):
        torch.manual_seed(len(runs) // 2)  # 0, 0, 1
        runs.append(model.generate(x, max_new_tokens=10, do_sample=True, top_k=0, use_cache=use_cache, pad_token_id=0))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_generate_stops():
    model = causal()
    x = tokens(1, 4)
    free = model.generate(x, max_new_tokens=6, **GREEDY)
    stop = int(free[0, 6])
    stopped = model.generate(x, max_new_tokens=6, eos_token_id=stop, **GREEDY)[0]
    first = 4 + free[0, 4:].tolist().index(stop)
    assert torch.equal(stopped, free[0, : first + 1])


def test_scores_and_maps_of_generation():
    model = causal()
    output = model.generate(
        tokens(2, 4),
        max_new_tokens=3,
        return_dict_in_generate=True,
        output_scores=True,
        output_attentions=True,
        output_hidden_states=True,
        **GREEDY,
    )
    assert [step[0].shape for step in output.attentions] == [(2, 4, 4, 4), (2, 4, 1, 5), (2, 4, 1, 6)]
    assert [step[0].shape for step in output.hidden_states] == [(2, 4, WIDTH), (2, 1, WIDTH), (2, 1, WIDTH)]
    assert output[CACHE].get_seq_length() == 6


@pytest.mark.parametrize("window", [None, 3])
def test_continued_and_assisted_generation(window: int | None):
    windows: dict[str, Any] = (
        {} if window is None else {"sa_kwargs": {"window": window}, "ra_kwargs": {"window": window}}
    )
    model = causal(**windows)
    x = tokens(1, 4)
    whole = model.generate(x, max_new_tokens=8, **GREEDY)
    first = model.generate(x, max_new_tokens=3, return_dict_in_generate=True, **GREEDY)
    rest = model.generate(first.sequences, **{CACHE: first[CACHE]}, max_new_tokens=5, **GREEDY)
    assert torch.equal(rest, whole)
    assisted = model.generate(x, max_new_tokens=8, assistant_model=causal("transformer"), **GREEDY)
    assert torch.equal(assisted, whole)
    assert torch.equal(model.generate(x, max_new_tokens=8, prompt_lookup_num_tokens=2, **GREEDY), whole)
    other = causal("transformer")
    alone = other.generate(x, max_new_tokens=8, **GREEDY)
    assert torch.equal(other.generate(x, max_new_tokens=8, assistant_model=model, **GREEDY), alone)


WINDOW: dict[str, Any] = {"window": 3}
X, TOO_LONG = tokens(1, 3), f"max_new_tokens: expected a text of at most {CONTEXT + 1} tokens"


@refusals(
    ({"input_ids": X, "prompt_lookup_num_tokens": 2, "max_new_tokens": CONTEXT + 2}, TOO_LONG),
    ({"inputs_embeds": torch.zeros(1, 3, WIDTH), "max_new_tokens": CONTEXT + 2}, TOO_LONG),
    ({"cache_implementation": "quantized"}, "cache_implementation: expected None, 'dynamic' or 'static', got 'quan"),
    ({"cache_implementation": "static", "num_beams": 2}, "cache_implementation: 'static' is for one token at a time"),
    ({"cache_implementation": "static", "prompt_lookup_num_tokens": 2}, "cache_implementation: 'static' is for one"),
    ({"cache_implementation": "static", "max_new_tokens": CONTEXT + 2}, TOO_LONG),
    ({"assistant_early_exit": 1}, "assistant_early_exit: expected None, since this model predicts nothing"),
    ({CACHE: StaticCache(config=causal().config, max_cache_len=8)}, TypeError, f"{CACHE}: expected a DualAttnCache"),
    ({"position_ids": torch.tensor([[0, 1, 7]])}, r"position_ids: expected none, .*, got \[\[0, 1, 7\]\]"),
    ({"guidance_scale": 1.5, "max_new_tokens": CONTEXT + 1}, TOO_LONG),
    ({"guidance_scale": 1.5, "negative_prompt_ids": tokens(1, CONTEXT)}, TOO_LONG),
    ({CACHE: 3}, f"{CACHE}: expected fewer tokens in it than the prompt's 3.*, got 3"),
    ({CACHE: 5}, f"{CACHE}: expected fewer tokens in it than the prompt's 3.*, got 5"),
    of="more",
)
def test_bad_generation(more, error, message):
    model = causal()
    with torch.no_grad():
        past = {CACHE: model(tokens(1, more[CACHE]))[CACHE]} if isinstance(more.get(CACHE), int) else {}
    with pytest.raises(error, match=message):
        model.generate(**{"input_ids": X, **GREEDY, "max_new_tokens": 2, **more, **past})


def test_a_batch_of_pages_is_refused():
    with pytest.raises(ValueError, match="generate_batch: expected a model whose cache is pages"):
        causal().generate_batch([[1, 2, 3]], generation_config=GenerationConfig(max_new_tokens=2, eos_token_id=-1))


def counting():
    """A backend that computes as it is told, and what it is told, a graph an entry."""
    graphs: list[int] = []

    def count(graph, inputs):
        graphs.append(len(inputs))
        return graph.forward

    torch._dynamo.reset()
    return count, graphs


@pytest.mark.parametrize(
    ("kind", "more"), [*((kind, {}) for kind in KINDS), ("transformer", WINDOW), ("symbolic_attention", WINDOW)]
)
def test_a_static_cache_gives_the_same_tokens(kind: str, more):
    model, x = causal(kind, pos_enc_type="RoPE", **with_attention(kind, **more) if more else {}), tokens(2, 5)
    mask = torch.ones_like(x)
    for padding in (slice(0), slice(3), slice(3, 4)):
        mask[1] = 1
        mask[1, padding] = 0
        given = {"attention_mask": mask, "max_new_tokens": 6, "return_dict_in_generate": True, "output_logits": True}
        grown = model.generate(x, **given, **GREEDY)
        fixed = model.generate(x, cache_implementation="static", prefill_chunk_size=2, **given, **GREEDY)
        assert torch.equal(fixed.sequences, grown.sequences) and fixed[CACHE].get_seq_length() == 10
        torch.testing.assert_close(torch.stack(fixed.logits), torch.stack(grown.logits), atol=1e-5, rtol=0)
        fixed[CACHE].reset()
        with torch.no_grad():  # a prompt, again, and a token
            _, logits = (model(piece, past_key_values=fixed[CACHE]).logits for piece in x.split([4, 1], dim=1))
        assert fixed[CACHE].get_seq_length() == 5
        torch.testing.assert_close(logits[:, -1], model(x).logits[:, -1], atol=1e-5, rtol=0)


def test_a_static_cache_is_continued_as_far_as_it_has_slots():
    model, x = causal("transformer", max_block_size=300), tokens(1, 5)
    whole = model.generate(x, max_new_tokens=6, **GREEDY)
    static = {"cache_implementation": "static", "return_dict_in_generate": True}
    first = model.generate(x, max_new_tokens=3, **static, **GREEDY)
    past = {CACHE: first[CACHE]}
    with pytest.raises(ValueError, match=r"expected at most 257 tokens in all.* got 258 in all, 1 of them new"):
        model.generate(first.sequences, **past, max_new_tokens=250, **GREEDY)
    with pytest.raises(ValueError, match="one new token at a time, got 14 in all, 6 of them new"):
        model.generate(torch.cat([first.sequences, x], dim=1), **past, max_new_tokens=1, **GREEDY)
    assert torch.equal(model.generate(first.sequences, **past, max_new_tokens=3, **GREEDY), whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_slow(KINDS, quick=1))
def test_one_graph_serves_all_steps_of_a_static_cache(kind: str):
    """Compiled by ``generate``, which does so on a GPU unasked: another number or shape would be refused."""
    model, x = causal(kind, n_layers=1), tokens(2, 5)
    wanted = model.generate(x, max_new_tokens=12, **GREEDY)
    backend, graphs = counting()
    config: Any = CompileConfig(backend=backend, fullgraph=True)
    config.mode, config._compile_all_devices = None, True
    with torch._dynamo.config.patch(error_on_recompile=True):
        found = model.generate(x, max_new_tokens=12, cache_implementation="static", compile_config=config, **GREEDY)
    assert torch.equal(found, wanted) and len(graphs) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["position_relative", "transformer"])
def test_compiled_generation_compiles_few_times(kind: str):
    """The prompt, a first token, and all others: not once for each token, nor for each length of a later prompt."""
    model = causal(kind, pos_enc_type="RoPE", n_layers=1)
    prompts = [tokens(2, length) for length in (4, 7, 5)]
    wanted = [model.generate(x, max_new_tokens=14, **GREEDY) for x in prompts]
    backend, graphs = counting()
    model.forward = torch.compile(model.forward, backend=backend)
    counts = []
    for x, expected in zip(prompts, wanted, strict=True):
        assert torch.equal(model.generate(x, max_new_tokens=14, **GREEDY), expected)
        counts.append(len(graphs))
    assert counts[0] <= 4 and counts[-1] <= 6, counts
