"""The base of each model as clients of transformers call it, and what is built on it."""

import copy
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
)
from transformers.loss.loss_utils import ForSequenceClassificationLoss
from transformers.utils import logging

from dual_attention.hf import (
    DualAttnEncoderModel,
    DualAttnLMForSequenceClassification,
    DualAttnModel,
    DualAttnVisionModel,
    language,
)
from dual_attention.hf.cache import CACHE
from tests.library.hf.models import IMAGES, KINDS, causal, classifier, config, masked, matters, tokens, vision
from tests.support.language import LAYERS, WIDTH

PADDED = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])


def base(model):
    """As trainers find it."""
    return getattr(model, model.base_model_prefix)


@pytest.mark.parametrize("kind", KINDS)
def test_the_base_of_a_language_model(kind: str):
    model = causal(kind)
    x = tokens(2, 6)
    found = base(model)(input_ids=x, attention_mask=PADDED, use_cache=False, output_hidden_states=True)
    assert isinstance(base(model), DualAttnModel) and found.past_key_values is None
    torch.testing.assert_close(model.lm_head(found.last_hidden_state), model(x, PADDED).logits)
    assert len(found.hidden_states) == LAYERS + 1
    assert torch.equal(found.hidden_states[-1], found.last_hidden_state)
    assert base(model)(x, return_dict=False)[0].shape == (2, 6, WIDTH)
    with torch.no_grad():
        past = base(model)(x[:, :4]).past_key_values
        rest = base(model)(x[:, 4:], past_key_values=past).last_hidden_state
        torch.testing.assert_close(rest, base(model)(x).last_hidden_state[:, 4:])
    assert model.get_decoder() is model.base_model is base(model)


def test_the_base_is_the_model_itself():
    """It shares every parameter, adds no name, follows the mode, and goes along with a copy."""
    model = causal()
    names = list(model.state_dict())
    found = base(model)
    assert found is base(model) and found.model is model.model and found.config is model.config
    assert list(model.state_dict()) == names and len(list(model.modules())) == len(set(model.modules()))
    assert not found.training and base(model.train()).training
    twin = copy.deepcopy(model)
    assert base(twin).model is twin.model and twin.model is not model.model
    found(tokens(1, 4)).last_hidden_state.sum().backward()
    assert model.model.layers.token_embedder.weight.grad is not None
    model.resize_token_embeddings(20)
    assert base(model).get_input_embeddings() is model.get_input_embeddings()


@pytest.mark.parametrize("kind", ["dat", "transformer"])
@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_the_base_of_an_image_classifier(kind: str, pool: str, tmp_path: Path):
    """Also as AutoModel loads it, without a word."""
    model, x = vision(kind, pool=pool), torch.randn(*IMAGES)
    found = base(model)(x, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(model.model.final_out(found.pooler_output), model(x).logits)
    torch.testing.assert_close(base(model)(x).last_hidden_state, found.last_hidden_state)
    assert found.last_hidden_state.shape == (2, 7, WIDTH) and found.pooler_output.shape == (2, WIDTH)
    assert len(found.attentions) == len(found.hidden_states) - 1 == 2
    assert base(model) is model.base_model and base(model).model is model.model
    model.save_pretrained(tmp_path / "head")
    loaded, info = AutoModel.from_pretrained(tmp_path / "head", output_loading_info=True)
    assert type(loaded) is DualAttnVisionModel and not any(info.values())
    torch.testing.assert_close(loaded(x).to_tuple(), base(model)(x).to_tuple())
    loaded.save_pretrained(tmp_path / "base")
    again, info = AutoModelForImageClassification.from_pretrained(tmp_path / "base", output_loading_info=True)
    assert info["missing_keys"] == {"model.final_out.weight", "model.final_out.bias"}
    torch.testing.assert_close(base(again)(x).last_hidden_state, found.last_hidden_state)
    fresh = AutoModel.from_config(model.config)
    assert fresh.num_parameters() == model.num_parameters() - sum(p.numel() for p in model.model.final_out.parameters())


@pytest.mark.parametrize("kind", ["symbolic_attention", "transformer"])
@pytest.mark.parametrize("tied", [True, False])
def test_auto_model(kind: str, tied: bool, tmp_path: Path):
    """The base loads from a model with a head, without a word, and a model with a head from the base."""
    model = causal(kind, tie_weights=tied)
    model.save_pretrained(tmp_path / "head")
    found, info = AutoModel.from_pretrained(tmp_path / "head", output_loading_info=True)
    assert type(found) is DualAttnModel and not any(info.values())
    x = tokens(2, 5)
    torch.testing.assert_close(found(x).last_hidden_state, base(model)(x).last_hidden_state)
    found.save_pretrained(tmp_path / "base")
    again, info = AutoModelForCausalLM.from_pretrained(tmp_path / "base", output_loading_info=True)
    assert info["missing_keys"] == (set() if tied else {"model.layers.final_out.weight"})
    torch.testing.assert_close(base(again)(x).last_hidden_state, found(x).last_hidden_state)
    fresh = AutoModel.from_config(config(kind, tie_weights=tied))
    assert fresh.num_parameters() == model.num_parameters() - (0 if tied else model.lm_head.weight.numel())


@pytest.mark.parametrize("make", [masked, classifier])
def test_the_base_of_an_encoder(make, tmp_path: Path):
    model = make()
    x = tokens(2, 6)
    found = base(model)(input_ids=x, attention_mask=PADDED, output_hidden_states=True)
    torch.testing.assert_close(found.last_hidden_state, model.model.encoder(x, padding_mask=PADDED.bool()))
    model.save_pretrained(tmp_path)
    loaded, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is DualAttnEncoderModel and not any(info.values())
    torch.testing.assert_close(loaded(x, PADDED).last_hidden_state, found.last_hidden_state)
    embedded = model.get_input_embeddings()(x)
    torch.testing.assert_close(model(inputs_embeds=embedded).logits, model(x).logits)
    assert model.base_model is base(model) and loaded.base_model is loaded


@pytest.mark.parametrize("kind", ["symbolic_attention", "transformer"])
def test_classifiers_on_language_models(kind: str, tmp_path: Path):
    model = matters(DualAttnLMForSequenceClassification(config(kind, num_labels=3, pad_token_id=0)))
    x, labels = tokens(2, 6), torch.tensor([2, 0])
    x[0, 4:] = 0
    output = model(x, torch.tensor([[1] * 4 + [0] * 2, [1] * 6]), labels=labels, use_cache=False)
    torch.testing.assert_close(output.logits, model(x).logits)  # padding is told by its token, or by the mask
    torch.testing.assert_close(output.logits[:1], model(x[:1, :4]).logits)
    torch.testing.assert_close(output.logits[1], model.score(base(model)(x[1:]).last_hidden_state[0, -1]))
    torch.testing.assert_close(output.loss, ForSequenceClassificationLoss(labels, output.logits, model.config))
    model.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(again) is DualAttnLMForSequenceClassification
    torch.testing.assert_close(again(x).logits, model(x).logits)


def test_a_reward_model_from_a_language_model(tmp_path: Path):
    causal(tie_weights=False).save_pretrained(tmp_path)
    model, info = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=1, output_loading_info=True)
    assert info["missing_keys"] == {"score.weight"} and not info["unexpected_keys"]
    assert 0.01 < model.score.weight.std() < 0.04
    assert model(tokens(2, 3)).logits.shape == (2, 1)


# ---- embeddings instead of tokens, labels that are shifted already


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [{"pos_enc_type": "RoPE"}, {"pos_enc_type": "pos_emb"}])
def test_embeddings_as_input(kind: str, more: dict):
    model = causal(kind, **more)
    x = tokens(2, 6)
    embedded = model.get_input_embeddings()(x)
    whole = model(x, PADDED, labels=x, output_attentions=True)
    output = model(inputs_embeds=embedded, attention_mask=PADDED, labels=x, output_attentions=True)
    torch.testing.assert_close(output.logits, whole.logits)
    torch.testing.assert_close(output.loss, whole.loss)
    torch.testing.assert_close(output.attentions, whole.attentions)
    with torch.no_grad():
        past = model(inputs_embeds=embedded[:, :4]).past_key_values
        rest = model(inputs_embeds=embedded[:, 4:], past_key_values=past).logits
        torch.testing.assert_close(rest, model(x).logits[:, 4:])
    greedy = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    generated = model.generate(inputs_embeds=embedded, attention_mask=PADDED, **greedy)
    assert torch.equal(generated, model.generate(x, attention_mask=PADDED, **greedy)[:, 6:])


def test_labels_that_are_shifted():
    model = causal()
    x, labels = tokens(2, 6), tokens(2, 6)
    labels[0, 2:4] = -100
    shifted = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    expected = model(x, labels=labels).loss
    torch.testing.assert_close(model(x, shift_labels=shifted).loss, expected)
    torch.testing.assert_close(model(x, labels=x, shift_labels=shifted).loss, expected)  # as transformers has it


# ---- caches that are asked for


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_carries_on_with_gradients(kind: str):
    """Logits and gradients of two calls are those of one, as with transformers' own models; symbols are read anew."""
    x = tokens(2, 7)
    model = causal(kind)
    whole = model(x).logits
    wanted = torch.autograd.grad(whole.square().sum(), parameters := list(model.parameters()))
    first = model(x[:, :3], use_cache=True)
    second = model(x[:, 3:5], **{CACHE: first[CACHE]})
    third = model(x[:, 5:], **{CACHE: second[CACHE]})
    logits = torch.cat([first.logits, second.logits, third.logits], dim=1)
    torch.testing.assert_close(logits, whole)
    with torch.no_grad():  # which must not write where the graph reads
        model(x[:, :2], **{CACHE: third[CACHE]})
    found = torch.autograd.grad(logits.square().sum(), parameters)
    torch.testing.assert_close(found, wanted)


def test_new_tokens_have_whole_gradients_after_earlier_ones_without():
    """Symbols by relative position are projected anew, as keys of new tokens are, of models of transformers as well."""
    model, x = causal("position_relative"), tokens(2, 7)
    with torch.no_grad():
        past = model(x[:, :4], use_cache=True)[CACHE]
    model(x[:, 4:], **{CACHE: past}).logits.sum().backward()
    symbols = model.model.layers.symbol_retrievers[0].rel_pos_enc.rel_pos_embeddings
    assert symbols.grad is not None and symbols.grad.any()


def test_gradient_checkpointing_returns_no_cache_and_says_so_once(monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    logging.warning_once.cache_clear()
    monkeypatch.setattr(language.logger, "warning", lambda message, *rest, **more: said.append(message))
    model, x = causal().train(), tokens(2, 5)
    model.gradient_checkpointing_enable()
    assert [model(x, use_cache=True).past_key_values for _ in range(2)] == [None, None]
    assert said == ["use_cache=True: gradient checkpointing computes blocks anew, so none is returned."]
    with torch.no_grad():
        assert model(x, use_cache=True)[CACHE].get_seq_length() == 5
