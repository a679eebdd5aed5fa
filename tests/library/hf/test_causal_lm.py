"""Causal language models for transformers: outputs, losses, caches, configurations."""

from typing import Any

import pytest
import torch
from transformers import DynamicCache
from transformers.loss.loss_utils import ForCausalLMLoss

from dual_attention.hf import DualAttnCache, DualAttnConfig, DualAttnForCausalLM
from dual_attention.hf.cache import CACHE
from dual_attention.language_presets import LANGUAGE_PRESETS
from tests.library.hf.models import GREEDY, KINDS, causal, classifier, config, masked, tokens, vision
from tests.support.language import CONTEXT, LAYERS, VOCAB, WIDTH
from tests.support.refusals import refused

# ---- outputs


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_model_of_this_library(kind: str):
    """Also when it is drawn: from the same seed, the same weights."""
    made = config(kind, pos_enc_type="RoPE")
    torch.manual_seed(1)
    model = DualAttnForCausalLM(made).eval()
    torch.manual_seed(1)
    ours = made.language_config().build().eval()
    x = tokens(2, 7)
    assert torch.equal(model(x).logits, ours(x)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_losses(kind: str):
    """Labels are shifted and scored as transformers' own function does it."""
    model = causal(kind)
    x, labels = tokens(3, 8), tokens(3, 8)
    labels[0, :4] = labels[1] = -100
    output = model(x, labels=labels)
    torch.testing.assert_close(output.loss, ForCausalLMLoss(output.logits, labels, VOCAB))
    output = model(x, labels=labels, num_items_in_batch=5)
    torch.testing.assert_close(output.loss, ForCausalLMLoss(output.logits, labels, VOCAB, num_items_in_batch=5))
    tuple_output = model(x, labels=labels, return_dict=False)
    assert isinstance(tuple_output, tuple) and torch.equal(tuple_output[1], output.logits)


def test_the_loss_without_logits():
    model = causal(skip_logits_in_training=True)
    x = tokens(2, 8)
    whole = model(x, labels=x)
    assert whole.logits is not None
    output = model.train()(x, labels=x)
    assert output.logits is None
    torch.testing.assert_close(output.loss, whole.loss)
    assert model(x).logits is not None


def test_some_logits():
    model = causal()
    x = tokens(2, 6)
    logits = model(x).logits
    torch.testing.assert_close(model(x, logits_to_keep=2).logits, logits[:, -2:])
    torch.testing.assert_close(model(x, logits_to_keep=torch.tensor([1, 4])).logits, logits[:, [1, 4]])
    for kept in (1, torch.arange(6).flip(0)):
        torch.testing.assert_close(model(x, labels=x, logits_to_keep=kept).loss, model(x, labels=x).loss)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_hidden_states_and_maps(kind: str, implementation: str):
    model = causal(kind, attn_implementation=implementation)
    x = tokens(2, 6)
    plain, output = model(x), model(x, output_attentions=True, output_hidden_states=True)
    assert plain.attentions is plain.hidden_states is plain.relations is None
    torch.testing.assert_close(output.logits, plain.logits)
    assert len(output.hidden_states) == LAYERS + 1 and len(output.attentions) == LAYERS
    torch.testing.assert_close(model.get_output_embeddings()(output.hidden_states[-1]), output.logits)
    for weights in output.attentions:
        assert weights.shape == (2, 4, 6, 6)
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 4, 6))
        assert not weights.triu(1).any()
    if kind == "transformer":
        assert output.relations is None
    else:
        assert [relations.shape for relations in output.relations] == [(2, 6, 6, 2)] * LAYERS


@pytest.mark.parametrize("made", [causal, masked, classifier, vision])
@pytest.mark.parametrize("kind", ["symbolic_attention", "transformer"])
def test_attention_weights_get_gradients(made: Any, kind: str):
    model = vision("dat" if kind != "transformer" else kind) if made is vision else made(kind)
    given = {"pixel_values": torch.randn(2, 3, 12, 8)} if made is vision else {"input_ids": tokens(2, 6)}
    output = model(**given, output_attentions=True)
    for weights in output.attentions:
        weights.retain_grad()
    output.logits.sin().sum().backward()
    assert all(weights.grad.shape == weights.shape and weights.grad.any() for weights in output.attentions)


def test_maps_with_a_cache():
    model = causal()
    x = tokens(2, 6)
    with torch.no_grad():
        whole = model(x, output_attentions=True)
        past = model(x[:, :4]).past_key_values
        output = model(x[:, 4:], past_key_values=past, output_attentions=True)
    for part, all_ in zip(output.attentions, whole.attentions, strict=True):
        torch.testing.assert_close(part, all_[:, :, 4:])


@pytest.mark.parametrize("kind", KINDS)
def test_padding(kind: str):
    model = causal(kind)
    x, pad = tokens(1, 6), tokens(1, 3)
    for padded, mask, real in (
        (torch.cat([pad, x], 1), [0] * 3 + [1] * 6, slice(3, None)),
        (torch.cat([x, pad], 1), [1] * 6 + [0] * 3, slice(6)),
    ):
        logits = model(padded, attention_mask=torch.tensor([mask])).logits[:, real]
        torch.testing.assert_close(logits, model(x).logits)


# ---- caches


@pytest.mark.parametrize("kind", KINDS)
def test_cached(kind: str):
    model = causal(kind)
    x = tokens(2, 9)
    with torch.no_grad():
        whole = model(x)
        assert isinstance(whole.past_key_values, DualAttnCache) and whole.past_key_values.get_seq_length() == 9
        past = model.new_cache(max_length=9)
        parts = [model(part, past_key_values=past).logits for part in x.split([4, 1, 4], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole.logits)


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_both_names_of_a_cache(name: str):
    """transformers calls it ``past_key_values`` until 5.23, and ``cache`` since."""
    model = causal()
    x = tokens(2, 6)
    with torch.no_grad():
        for part in (model, model.backbone):
            first = part(x[:, :4])
            past = getattr(first, name)
            assert past is first[CACHE] and past.get_seq_length() == 4
            again = part(x[:, 4:], **{name: past})
            assert getattr(again, name) is past
            torch.testing.assert_close(again[0], part(x)[0][:, 4:])
    past = model.new_cache()
    generated = model.generate(x, max_new_tokens=3, **{name: past}, **GREEDY)
    assert past.get_seq_length() == 8 and torch.equal(generated, model.generate(x, max_new_tokens=3, **GREEDY))


def test_the_cache_as_transformers_handles_it():
    model = causal()
    x = tokens(2, 6)
    with torch.no_grad():
        past = model(x).past_key_values
        assert past.batch_size == 2 and past.is_initialized and not past.is_compileable
        past.crop(-2)
        assert past.get_seq_length() == 4
        past.batch_repeat_interleave(2)
        past.batch_select_indices(torch.tensor([3, 0]))
        logits = model(x.flip(0)[:, 4:], past_key_values=past).logits
        torch.testing.assert_close(logits, model(x.flip(0)).logits[:, 4:])
        past.reset()
        assert past.get_seq_length() == 0 and past.batch_size == -1


@pytest.mark.parametrize("made", [lambda config: DynamicCache(), lambda config: DynamicCache(config=config)])
def test_a_dynamic_cache_of_transformers(made):
    """Given empty, it is filled where it is, and serves as the model's own does."""
    model = causal()
    x = tokens(2, 6)
    with torch.no_grad():
        past = made(model.config)
        first = model(x[:, :4], past_key_values=past)
        assert first.past_key_values is past and past.get_seq_length() == 4 and past.is_initialized
        assert past.get_mask_sizes(2, 0) == (6, 0) and past.batch_size == 2
        past.reorder_cache(torch.tensor([1, 0]))
        logits = model(x.flip(0)[:, 4:], past_key_values=past).logits
        torch.testing.assert_close(logits, model(x.flip(0)).logits[:, 4:])
        past.reset()
        assert past.get_seq_length() == 0 and not past.is_initialized
        torch.testing.assert_close(model(x, past_key_values=past).logits, model(x).logits)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"prompt_lookup_num_tokens": 2}])
def test_generated_with_a_dynamic_cache(options: dict):
    model = causal()
    x = tokens(1, 4)
    past = DynamicCache()
    found = model.generate(x, past_key_values=past, max_new_tokens=8, **options, **GREEDY)
    beams = {name: value for name, value in options.items() if name == "num_beams"}
    assert torch.equal(found, model.generate(x, max_new_tokens=8, use_cache=False, **beams, **GREEDY))
    assert past.get_seq_length() == 11
    if not options:  # another turn goes on from it
        longer = torch.cat([found, tokens(1, 2)], dim=1)
        again = model.generate(longer, past_key_values=past, max_new_tokens=3, **GREEDY)
        assert torch.equal(again, model.generate(longer, max_new_tokens=3, use_cache=False, **GREEDY))


def test_when_there_is_a_cache():
    model = causal()
    x = tokens(1, 3)
    assert model(x).past_key_values is None  # gradients are wanted
    with torch.no_grad():
        assert model(x, use_cache=False).past_key_values is None
        assert model.train()(x).past_key_values is None
        assert causal(use_cache=False)(x).past_key_values is None


# ---- bad input


test_bad_input = refused(
    ({"input_ids": None}, "input_ids, inputs_embeds: expected one of them, got neither"),
    ({"inputs_embeds": torch.zeros(1, 3, WIDTH)}, "input_ids, inputs_embeds: expected one of them, got both"),
    ({"input_ids": None, "inputs_embeds": torch.zeros(1, 3, WIDTH + 1)}, "embeddings: expected shape"),
    ({"input_ids": None, "inputs_embeds": torch.zeros(3, WIDTH)}, r"inputs_embeds: expected shape \(batch, length"),
    ({"seq_indices": torch.zeros(1, 3)}, TypeError, "got an unexpected keyword argument 'seq_indices'"),
    ({"output_router_logits": True}, "output_router_logits: expected False"),
    ({"cu_seq_lens_q": torch.tensor([0, 2])}, r"cu_seq_lens_q: expected to rise from 0 to the length 3, got "),
    ({"cu_seq_lens_q": torch.tensor([[0, 3]])}, r"cu_seq_lens_q: expected integers of shape \(sequences \+ 1,\)"),
    ({"cu_seq_lens_q": torch.tensor([0, 1, 3]), "cu_seq_lens_k": torch.tensor([0, 2, 3])},
     "cu_seq_lens_k: expected the same as cu_seq_lens_q"),
    ({"cu_seq_lens_q": torch.tensor([0, 1, 3]), "seq_idx": torch.tensor([[0, 0, 1]])},
     "seq_idx, cu_seq_lens_q: expected the same sequences"),
    ({"input_ids": torch.ones(2, 3).long(), "cu_seq_lens_q": torch.tensor([0, 3])}, "cu_seq_lens_q: .* a single row"),
    ({"seq_idx": torch.zeros(1, 2).long()}, "segments: expected"),
    ({"input_ids": torch.full((1, 3), VOCAB)}, f"expected token ids from 0 to {VOCAB - 1}"),
    ({"input_ids": torch.zeros(1, CONTEXT + 1).long()}, "longer than the context"),
    ({"attention_mask": torch.ones(1, 1, 3, 3)}, r"attention_mask: expected shape \(batch, length\) = \(1, 3\)"),
    ({"attention_mask": torch.tensor([[1, 1, 0, 1]])}, r"expected shape \(batch, length\) = \(1, 3\)"),
    ({"position_ids": torch.arange(3)}, r"position_ids: expected shape \(B or 1, N\), got \(3,\)"),
    ({"labels": torch.ones(3).long()}, r"^labels: expected the shape of x, \(1, 3\), got \(3,\)"),
    ({"cache": object()}, TypeError, f"{CACHE}: expected a DualAttnCache"),
    ({"cache": DynamicCache(), "past_key_values": DynamicCache()}, "cache, past_key_values: expected one of them"),
    by=lambda more: causal()(**{"input_ids": torch.zeros(1, 3).long(), **more}),
)  # fmt: skip


def fill(model, x, past):
    """A cache of the model, filled by hand."""
    model(x, past_key_values=past)
    past.update(torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4), 0)


def of_another():
    return DynamicCache([(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4))])


def offloading():
    past = DynamicCache()
    past.offloading = True  # the argument of that name needs a GPU where torch was built for them
    return past


test_bad_caches_and_configurations = refused(
    (lambda model, x: model(x).past_key_values.crop(2), ValueError, "tokens_to_remove: expected a negative number"),
    (lambda model, x: fill(model, x, DynamicCache()), TypeError, "update: only its own model fills this cache"),
    (lambda model, x: fill(model, x, DynamicCache(config=model.config)), TypeError,
     "update: only its own model fills this cache"),
    (lambda model, x: model(x, cache=of_another()), TypeError, "got DynamicCache with tokens of another model"),
    (lambda model, x: model(x, cache=offloading()), TypeError, "got DynamicCache that offloads layers"),
    (lambda model, x: config(model="rnn"), "model: expected 'dat' or 'transformer', got 'rnn'"),
    (lambda model, x: config(d_model="64"), TypeError, "d_model: expected int"),
    (lambda model, x: config(pos_enc_type="rope"), TypeError, "pos_enc_type: expected one of"),
    by=torch.no_grad()(lambda call: call(causal(), tokens(2, 6))),
)  # fmt: skip


# ---- configurations


def test_the_names_of_transformers():
    made = config(n_layers=3)
    assert (made.hidden_size, made.num_hidden_layers, made.num_attention_heads) == (WIDTH, 3, 4)
    assert (made.max_position_embeddings, made.intermediate_size, made.tie_word_embeddings) == (CONTEXT, 20, True)
    assert DualAttnConfig(hidden_size=64).d_model == 64


@pytest.mark.parametrize("name", LANGUAGE_PRESETS)
def test_presets(name: str):
    made = DualAttnConfig.from_language_config(name, eos_token_id=5)
    assert made.language_config() == LANGUAGE_PRESETS[name] and made.eos_token_id == 5
    again = DualAttnConfig.from_dict(made.to_dict())
    assert again.language_config() == LANGUAGE_PRESETS[name]
    other = {"dat": "n_heads", "transformer": "n_heads_sa"}[made.model]
    assert other not in made.to_dict()


def test_the_default_configuration():
    with torch.device("meta"):
        model = DualAttnForCausalLM(DualAttnConfig())
    assert model.model.get_num_params(trainable_only=True) > 3e8
