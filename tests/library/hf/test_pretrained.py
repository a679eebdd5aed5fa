"""Saving and loading, by the models' own classes and by the Auto classes."""

import json
import re
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    GenerationConfig,
    PreTrainedConfig,
)

from dual_attention import with_parts
from dual_attention._models.weights import shared_names
from dual_attention.checkpoints.files import warn_of_misspelt
from dual_attention.hf import DualAttnConfig, DualAttnForCausalLM, DualAttnForSequenceClassification, load_model
from dual_attention.mechanisms import Cosine
from tests.library.hf.models import IMAGES, KINDS, MODELS, assert_same, causal, inputs, masked, tokens, vision
from tests.support.refusals import refusals


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["dat", "transformer"])
def test_auto_classes(name: str, kind: str, tmp_path: Path):
    make, auto = MODELS[name]
    model = make(kind if name == "vision" or kind == "transformer" else "symbolic_attention")
    model.save_pretrained(tmp_path)
    again = auto.from_pretrained(tmp_path)
    assert type(again) is type(model) and not again.training
    assert AutoConfig.from_pretrained(tmp_path).arguments() == model.config.arguments()
    x = inputs(name)
    assert_same(again, model, x)
    fresh = auto.from_config(model.config)
    assert not torch.equal(fresh.eval()(x).logits, model(x).logits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "more",
    [
        {"pos_enc_type": "RoPE"},
        {"tie_weights": False, "output_bias": True},
        {"symbol_retriever_config": {"shared_symbol_retriever": False, "weight_tie_symbol_library": True}},
        {"share_attn_params": True},
        {"symmetric": True},
    ],
)
def test_causal_models_reload(kind: str, more: dict, tmp_path: Path):
    """With whatever is shared in them, which is stored once, and with tables that are not stored."""
    if kind == "transformer" and ("symbol_retriever_config" in more or "share_attn_params" in more):
        return
    if more.get("symmetric"):
        more = {}
        if kind != "transformer":
            relative = kind == "position_relative"
            more = {"ra_kwargs": {"symmetric_rels": True, "use_relative_positional_symbols": relative}}
    model = causal(kind, **more)
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert sum(tensor.numel() for tensor in stored.values()) == model.model.get_num_params(non_embedding=False)
    again, info = DualAttnForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    assert [sorted(names) for names in shared_names(again)] == [sorted(names) for names in shared_names(model)]
    x = tokens(2, 7)
    assert_same(again, model, x)


def test_sinusoidal_symbols_reload(tmp_path: Path):
    symbols = {"symbol_dim": 16, "max_length": 24, "sinusoidal": True}
    model = causal("positional_symbols", symbol_retrieval_kwargs=symbols)
    model.save_pretrained(tmp_path)
    x = tokens(2, 7)
    assert_same(DualAttnForCausalLM.from_pretrained(tmp_path), model, x)


def test_half_precision(tmp_path: Path):
    model = causal(pos_enc_type="RoPE")
    model.save_pretrained(tmp_path)
    again = DualAttnForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert again.dtype == torch.bfloat16 and again.model.freqs_cos.dtype == torch.float32
    assert torch.equal(again.model.freqs_cos, model.model.freqs_cos)
    x = tokens(2, 7)
    torch.testing.assert_close(again(x).logits.float(), model(x).logits, atol=0.3, rtol=0.1)


@refusals(
    ("config.json", "null", "expected a JSON object, got NoneType"),
    ("config.json", '{"d_model": 8}', "expected model_type='dual_attn', got None.*load_model"),
    ("config.json", '{"model_type": "llama", "hidden_size": 8}', "expected model_type='dual_attn', got 'llama'"),
    ("config.json", '{"model_type": "dual_attn", "d_model": "8"}', "d_model: expected int, got '8'"),
    ("generation_config.json", "[]", "expected a JSON object, got list"),
    ("generation_config.json", '{"a', "is not JSON"),
    ("model.safetensors.index.json", '{"weight_map": {}}', "is no index of files of weights"),
    ("model.safetensors", "null", "cannot be read as safetensors"),
    of="name, text",
)
def test_damaged_files_are_named(name: str, text: str, error, message: str, tmp_path: Path):
    causal().save_pretrained(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(error, match=rf"{re.escape(name)}: {message}"):
        DualAttnForCausalLM.from_pretrained(tmp_path)


def test_weights_of_other_sizes_are_told_with_their_folder(tmp_path: Path):
    causal().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "dff": 5}))
    with pytest.raises(RuntimeError, match=f"{re.escape(str(tmp_path))}: weights of other sizes than"):
        DualAttnForCausalLM.from_pretrained(tmp_path)


def test_weights_of_parts_of_ones_own_are_not_left_out(tmp_path: Path):
    with_parts(causal("transformer"), heads=Cosine).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"self_attn\.part\..*: is of a part of your own"):
        DualAttnForCausalLM.from_pretrained(tmp_path)


def test_arguments_that_are_almost_ours(tmp_path: Path):
    """transformers keeps what it does not know; what it does know is not taken for a slip."""
    known = {**vars(GenerationConfig()), **PreTrainedConfig().to_dict(), "n_heads_sa": 2, "mine": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_misspelt(known, DualAttnConfig._names("dat"))
        causal().save_pretrained(tmp_path)
        load_model(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "n_head_sa": 3}))
    for load in (load_model, AutoModelForCausalLM.from_pretrained):
        with pytest.warns(UserWarning, match="n_head_sa: no argument of the model.*did you mean n_heads_sa"):
            load(tmp_path)


def test_what_is_missing_is_drawn_as_usual(tmp_path: Path):
    """Of a checkpoint without a block, the rest is loaded, and that block is drawn as the model draws it."""
    model = causal()
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    save_file({k: x for k, x in stored.items() if ".blocks.1." not in k}, tmp_path / "model.safetensors")
    again = DualAttnForCausalLM.from_pretrained(tmp_path)
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]) == (".blocks.1." not in name), name
    block = again.model.layers.blocks[1]
    assert torch.equal(block.norm1.weight, torch.ones(16)) and not block.ff_block.linear1.bias.any()
    assert 0.005 < block.ff_block.linear2.weight.std() < 0.015  # 0.02 / sqrt(2 L)
    assert 0.015 < block.dual_attn.relational_attention.wr.std() < 0.025


@pytest.mark.parametrize("name", ["causal", "masked"])
@pytest.mark.parametrize("format", ["safetensors", "bin"])
def test_tied_tensors_that_are_missing_under_all_names(name: str, format: str, tmp_path: Path, caplog):
    """They are named, not only drawn: the embedding, and the library of symbols that all layers share."""
    make, auto = MODELS[name]
    symbols = {"symbol_retriever_config": {"shared_symbol_retriever": False, "weight_tie_symbol_library": True}}
    model = make(**(symbols if name == "causal" else {}))
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    kept = {key: t for key, t in stored.items() if "token_embedder" not in key and "symbol_library" not in key}
    assert len(kept) < len(stored)
    if format == "safetensors":
        save_file(kept, tmp_path / "model.safetensors")
    else:
        (tmp_path / "model.safetensors").unlink()
        torch.save(kept, tmp_path / "pytorch_model.bin")
    again, info = auto.from_pretrained(tmp_path, output_loading_info=True)
    groups = [names for names in shared_names(model) if not kept.keys() & set(names)]
    assert info["missing_keys"] == {key for names in groups for key in names}
    assert len(max(groups, key=len)) == 2
    embedding = again.get_input_embeddings().weight
    assert embedding is again.get_output_embeddings().weight and 0.01 < embedding.std() < 0.03  # drawn as usual
    for key in kept:
        assert torch.equal(again.state_dict()[key], model.state_dict()[key])
    assert shared_names(again) == shared_names(model)


def test_a_classifier_from_a_masked_language_model(tmp_path: Path):
    pretrained = masked()
    pretrained.save_pretrained(tmp_path)
    model = DualAttnForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    for name, tensor in model.model.encoder.state_dict().items():
        assert torch.equal(tensor, pretrained.model.encoder.state_dict()[name])
    assert model.model.classifier.weight.shape == (3, 16) and 0.01 < model.model.classifier.weight.std() < 0.03


def test_a_classifier_for_other_classes(tmp_path: Path):
    pretrained = vision()
    pretrained.save_pretrained(tmp_path)
    model = AutoModelForImageClassification.from_pretrained(tmp_path, num_labels=2, ignore_mismatched_sizes=True)
    x = torch.randn(*IMAGES)
    assert model(x).logits.shape == (2, 2)
    states = (part(x, output_hidden_states=True).hidden_states[-1] for part in (model, pretrained))
    torch.testing.assert_close(*states)


def test_weights_of_retrievers_that_nothing_reads_are_left_out(tmp_path: Path):
    """Folders that earlier versions saved hold them; see test_every_parameter."""
    model = causal(n_heads_sa=4, n_heads_ra=0)
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file) | {"model.layers.symbol_retrievers.0.symbol_library": torch.zeros(3)}
    save_file(weights, file, metadata={"format": "pt"})
    again, loading = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not loading["unexpected_keys"] and not loading["missing_keys"]
    assert_same(again, model, tokens(2, 5))
