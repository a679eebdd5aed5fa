"""Language models from one format into another, both ways."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dual_attention import DualAttnTransformerLM, TransformerLM
from dual_attention._models.weights import shared_names
from dual_attention.hf import (
    DualAttnConfig,
    DualAttnForCausalLM,
    DualAttnTransformerLM_HFHub,
    TransformerLM_HFHub,
    convert_checkpoint,
    load_language_model,
    to_hub,
    to_language_state_dict,
    to_transformers,
    to_transformers_state_dict,
)
from dual_attention.hf.hub import HubLanguageModel
from tests.library.hf.models import KINDS, causal, config, tokens
from tests.library.hf.test_hub import GOLDEN, PUBLISHED, assert_published_logits
from tests.support.refusals import refused

HUB: dict[str, type[HubLanguageModel]] = {"dat": DualAttnTransformerLM_HFHub, "transformer": TransformerLM_HFHub}

SHARING = [
    {},
    {"pos_enc_type": "RoPE", "tie_weights": False},
    {"symbol_retriever_config": {"shared_symbol_retriever": False, "weight_tie_symbol_library": True}},
    {"ra_kwargs": {"symmetric_rels": True}},
]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_checkpoints_for_transformers_and_back(name: str, tmp_path: Path):
    """The weights of what comes back are the published file, tensor by tensor."""
    folder = convert_checkpoint(GOLDEN / name, tmp_path / "transformers", "transformers")
    model = DualAttnForCausalLM.from_pretrained(folder)
    assert_published_logits(model.model, name)
    assert DualAttnConfig.from_pretrained(GOLDEN / name).language_config() == model.config.language_config()
    back = convert_checkpoint(folder, tmp_path / "hub", "hub")
    stored, published = (load_file(path / "model.safetensors") for path in (back, GOLDEN / name))
    assert stored.keys() == published.keys()
    assert all(torch.equal(tensor, published[key]) for key, tensor in stored.items())
    settings, theirs = (json.loads((path / "config.json").read_text()) for path in (back, GOLDEN / name))
    assert theirs.items() <= settings.items()
    assert_published_logits(PUBLISHED[name].from_pretrained(back), name)


@pytest.mark.parametrize("kind", KINDS)
def test_models_in_every_format(kind: str):
    """From each format into each; all are one model, with one set of parameters."""
    native = causal(kind, pos_enc_type="RoPE")
    ours, settings = native.model, native.config.language_config()
    hub = to_hub(native)
    assert type(hub) is HUB[settings.model] and hub.language_config == settings
    x = tokens(2, 7)
    logits = ours(x)[0]
    for other in (
        hub,
        to_hub(ours, settings),
        to_transformers(ours, settings).model,
        to_transformers(hub).model,
        to_hub(to_transformers(hub)),
    ):
        assert isinstance(other, DualAttnTransformerLM if settings.model == "dat" else TransformerLM)
        assert not other.training and torch.equal(other(x)[0], logits)
        assert {id(p) for p in other.parameters()} == {id(p) for p in ours.parameters()}
        assert other.state_dict().keys() == ours.state_dict().keys()
    assert not isinstance(to_transformers(hub).model, HubLanguageModel)
    assert to_hub(native.train()).training and to_transformers(hub.train()).training


@pytest.mark.parametrize("more", SHARING)
@pytest.mark.parametrize("saved_as", ["hub", "transformers"])
def test_loaded_from_either_format(more: dict, saved_as: str, tmp_path: Path):
    native = causal(**more)
    (native if saved_as == "transformers" else to_hub(native)).save_pretrained(tmp_path)
    model, settings = load_language_model(tmp_path, dtype=torch.float64)
    assert settings == native.config.language_config() and model.layers.norm.weight.dtype == torch.float64
    assert [sorted(names) for names in shared_names(model)] == [sorted(names) for names in shared_names(native.model)]
    x = tokens(2, 7)
    torch.testing.assert_close(model(x)[0], native.double()(x).logits, atol=1e-12, rtol=0)


def test_state_dicts():
    native = causal()
    ours, theirs = native.model.state_dict(), native.state_dict()
    assert to_language_state_dict(theirs).keys() == ours.keys()
    assert to_transformers_state_dict(ours).keys() == theirs.keys() == to_transformers_state_dict(theirs).keys()
    compiled = {f"_orig_mod.{name}": tensor for name, tensor in ours.items()}
    assert to_transformers_state_dict(compiled).keys() == theirs.keys()
    native.load_state_dict(to_transformers_state_dict(compiled))


def test_arguments_of_transformers():
    native = to_transformers(causal().model, config().language_config(), eos_token_id=3, use_cache=False)
    assert native.config.eos_token_id == 3 and not native.config.use_cache


def test_tokens_that_end_a_text_stay_known(tmp_path: Path):
    causal(eos_token_id=[3, 4], pad_token_id=0).save_pretrained(tmp_path / "source")
    folder = convert_checkpoint(tmp_path / "source", tmp_path / "again", "transformers", dtype=torch.bfloat16)
    model = DualAttnForCausalLM.from_pretrained(folder)
    assert (model.config.eos_token_id, model.config.pad_token_id, model.config.bos_token_id) == ([3, 4], 0, None)
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == ([3, 4], 0)


test_bad_input = refused(
    (lambda: to_hub(causal().model), "config: expected the LanguageModelConfig of the DualAttn"),
    (lambda: to_hub(causal().model, config(dff=24).language_config()), "config: is not that.*linear1"),
    (lambda: to_transformers(causal().model, config("transformer").language_config()), "config: is not that of this"),
    (lambda: to_hub(causal("transformer").model, config("transformer", n_heads=2).language_config()),
     "config: is not that of this TransformerLM, whose n_heads is 4; expected 2"),
    (lambda: to_transformers(causal().model, config(activation="relu").language_config()),
     "config: is not that of this DualAttnTransformerLM, whose activation is 'gelu'; expected 'relu'"),
    (lambda: to_hub(torch.nn.Linear(2, 2)), TypeError, "model: expected a language model of this library"),
    (lambda: to_transformers(to_hub(causal()), config().language_config()), "config: is known"),
    (lambda: convert_checkpoint(GOLDEN / "dat", "never", "onnx"), "to: expected 'hub' or 'transf"),
)  # fmt: skip


def test_checkpoints_of_other_models(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": 11}))
    with pytest.raises(ValueError, match="expected a language model of this library, got model_type='gpt2'"):
        load_language_model(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="expected a JSON object, got list"):
        load_language_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        load_language_model(tmp_path)
