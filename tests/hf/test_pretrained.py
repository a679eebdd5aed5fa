"""What transformers does around a model: saving, the Auto classes, resizing, checkpointing, adapters, pipelines."""

from __future__ import annotations

import json
import os
import re
import string
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    pipeline,
)

from dual_attention.hf import (
    DualAttnConfig,
    DualAttnForCausalLM,
    DualAttnForMaskedLM,
    DualAttnForSequenceClassification,
    load_model,
)
from dual_attention.hf.files import warn_of_misspelt
from dual_attention.hf.weights import shared_names
from tests.hf.models import KINDS, causal, classifier, masked, tokens, vision
from tests.support.language import VOCAB

ROOT = Path(__file__).resolve().parents[2]
IMAGES = (2, 3, 12, 8)

MODELS = {
    "causal": (causal, AutoModelForCausalLM),
    "masked": (masked, AutoModelForMaskedLM),
    "classifier": (classifier, AutoModelForSequenceClassification),
    "vision": (vision, AutoModelForImageClassification),
}


def inputs(name: str) -> torch.Tensor:
    return torch.randn(*IMAGES) if name == "vision" else tokens(2, 7)


# ---- saving and loading


def assert_same(again, model, x: torch.Tensor) -> None:
    """The same weights to the bit. Outputs may differ by rounding: products depend on where in memory weights lie."""
    weights = again.state_dict()
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())
    torch.testing.assert_close(again(x).logits, model(x).logits)


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


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("config.json", "null", "expected a JSON object, got NoneType"),
        ("generation_config.json", "[]", "expected a JSON object, got list"),
        ("generation_config.json", '{"a', "is not JSON"),
        ("model.safetensors.index.json", '{"weight_map": {}}', "is no index of files of weights"),
        ("model.safetensors", "null", "cannot be read as safetensors"),
    ],
)
def test_damaged_files_are_named(name: str, text: str, named: str, tmp_path: Path):
    causal().save_pretrained(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=rf"{re.escape(name)}: {named}"):
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
    save_file(
        {name: tensor for name, tensor in stored.items() if ".blocks.1." not in name}, tmp_path / "model.safetensors"
    )
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


REMOTE = """
import sys, torch
from transformers import AutoModelForCausalLM
assert "dual_attention" not in sys.modules
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
import dual_attention.hf
assert type(model) is dual_attention.hf.DualAttnForCausalLM
print(float(model(torch.tensor([[1, 2, 3]])).logits.sum()))
"""


def loaded_elsewhere(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A process that has not imported this package, which is installed."""
    home = str(folder.parent / "home")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HOME": home, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", script, str(folder)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


@pytest.mark.slow
def test_remote_code(tmp_path: Path):
    """Every checkpoint is found by the Auto classes before this package is imported, as its README says."""
    model = causal()
    folder = tmp_path / "checkpoint"
    model.save_pretrained(folder)
    done = loaded_elsewhere(REMOTE, folder)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        expected = float(model(torch.tensor([[1, 2, 3]])).logits.sum())
    assert float(done.stdout.split()[-1]) == pytest.approx(expected, abs=1e-4)
    readme = (folder / "README.md").read_text()
    assert "import dual_attention.hf" in readme and "from transformers import AutoModelForCausalLM" in readme
    assert "trust_remote_code=True" in readme


@pytest.mark.slow
def test_without_remote_code_an_error_says_how_to_load(tmp_path: Path):
    folder = tmp_path / "checkpoint"
    causal().save_pretrained(folder)
    done = loaded_elsewhere(REMOTE.replace("trust_remote_code=True", "trust_remote_code=False"), folder)
    assert done.returncode != 0 and "trust_remote_code=True" in done.stderr


@pytest.mark.parametrize("name", MODELS)
def test_what_a_folder_says_of_itself(name: str, tmp_path: Path):
    make, auto = MODELS[name]
    model = make()
    (tmp_path / "README.md").write_text("mine")
    model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"
    told = json.loads((tmp_path / "config.json").read_text())
    assert told["num_attention_heads"] == model.config.num_attention_heads == 4
    assert told["auto_map"] == model.config.auto_map
    assert told["auto_map"][auto.__name__] == f"dual_attention_loader.{type(model).__name__}"
    source = (tmp_path / "dual_attention_loader.py").read_text()
    found: dict[str, Any] = {}
    exec(source, found)
    assert all(found[value.partition(".")[2]] for value in told["auto_map"].values())
    with pytest.raises(ValueError, match=r"num_attention_heads: follows from n_heads.*expected 4, got 5"):
        type(model.config)(**{**told, "num_attention_heads": 5})


def test_a_class_registered_for_an_auto_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(DualAttnForCausalLM, "_loaded_by", None)
    DualAttnForCausalLM.register_for_auto_class("AutoModelForPreTraining")
    causal().save_pretrained(tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert (
        told["AutoModelForPreTraining"] == told["AutoModelForCausalLM"] == "dual_attention_loader.DualAttnForCausalLM"
    )
    with pytest.raises(ValueError, match="transformers has no 'AutoModelForNothing'"):
        DualAttnForMaskedLM.register_for_auto_class("AutoModelForNothing")


# ---- changing models


@pytest.mark.parametrize("name", ["causal", "masked"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [VOCAB + 5, VOCAB - 3])
def test_resized_vocabularies(name: str, tied: bool, size: int, tmp_path: Path):
    make, auto = MODELS[name]
    model = make(tie_weights=tied)
    x = torch.randint(1, VOCAB - 3, (2, 7))
    before = model(x).logits
    model.resize_token_embeddings(size)
    same = min(size, VOCAB)
    torch.testing.assert_close(model(x).logits[..., :same], before[..., :same])
    assert (
        model.config.vocab_size == size
        and (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == tied
    )
    with pytest.raises(ValueError, match=f"from 0 to {size - 1}"):
        model(torch.full((1, 2), size))
    model.save_pretrained(tmp_path)
    assert_same(auto.from_pretrained(tmp_path), model, x)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
@pytest.mark.parametrize("name", MODELS)
def test_gradient_checkpointing(name: str):
    model = MODELS[name][0]()
    x = inputs(name)
    labels = {"classifier": torch.tensor([0, 1]), "vision": torch.tensor([0, 1])}.get(name, x)
    gradients, calls = [], []
    for enabled in (False, True):
        if enabled:
            model.gradient_checkpointing_enable()
            assert model.is_gradient_checkpointing
            calls = count_calls(model)
        model.zero_grad()
        model.train()(x, labels=labels).loss.backward()
        gradients.append({key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None})
    assert len(calls) == 4  # two blocks, each computed again
    assert gradients[0].keys() == gradients[1].keys()
    for key, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][key])
    with pytest.raises(ValueError, match="gradient checkpointing keeps no attention weights"):
        model(x, output_attentions=True)
    model.gradient_checkpointing_disable()
    assert model(x, output_attentions=True).attentions is not None


def count_calls(model) -> list:
    calls: list = []
    for name, module in model.named_modules():
        if name.endswith(("blocks.0", "blocks.1")):
            module.register_forward_pre_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
@pytest.mark.parametrize("symmetric", [False, True])
def test_lora(symmetric: bool, tmp_path: Path):
    base = causal(ra_kwargs={"symmetric_rels": symmetric})
    x = tokens(2, 7)
    before = base(x).logits
    targets = ["wq", "wk", "wv", "wo", "wq_attn", "wk_attn", "wq_rel", "wk_rel", "q_proj"]
    lora = peft.LoraConfig(r=2, target_modules=targets, task_type="CAUSAL_LM", init_lora_weights=False)
    model = peft.get_peft_model(base, lora)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained and all("lora_" in name for name in trained)
    model.train()(input_ids=x, labels=x).loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters() if p.requires_grad)
    after = model.eval()(input_ids=x)
    assert not torch.allclose(after.logits, before)
    if symmetric:
        for relations in model(input_ids=x, output_attentions=True).relations:
            torch.testing.assert_close(relations, relations.transpose(1, 2))
    with torch.no_grad():
        generated = model.generate(input_ids=x, max_new_tokens=4, do_sample=False, pad_token_id=0)
        uncached = model.generate(input_ids=x, max_new_tokens=4, do_sample=False, pad_token_id=0, use_cache=False)
    assert torch.equal(generated, uncached)
    model.save_pretrained(tmp_path)
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(x).logits, after.logits)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", ["dat", "transformer"])
def test_lora_on_images(kind: str, tmp_path: Path):
    """Adapters, a new classifier and the patch projection itself learn, also with gradient checkpointing."""
    base = vision(kind)
    images, labels = torch.randn(*IMAGES), torch.tensor([0, 1])
    targets = [name for name, part in base.named_modules() if name.endswith((".wq", ".wv", ".wo", ".wq_attn"))]
    targets.append("model.to_patch_embedding.2")
    lora = peft.LoraConfig(r=2, target_modules=targets, modules_to_save=["final_out"], init_lora_weights=False)
    model = peft.get_peft_model(base, lora)
    model.base_model.model.gradient_checkpointing_enable()
    model._prepare_model_for_gradient_checkpointing(base)
    model.train()(pixel_values=images, labels=labels).loss.backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert any("to_patch_embedding" in name for name in trained) and any("final_out" in name for name in trained)
    assert all(p.grad is not None and p.grad.any() for p in model.parameters() if p.requires_grad)
    expected = model.eval()(pixel_values=images).logits
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(copy_of(base, kind), tmp_path)
    torch.testing.assert_close(again.eval()(pixel_values=images).logits, expected)


def copy_of(base, kind: str):
    """A model with the weights that ``base`` had before an adapter came."""
    fresh = vision(kind)
    given = {
        name.replace(".base_layer", "").replace(".original_module", ""): t for name, t in base.state_dict().items()
    }
    fresh.load_state_dict({name: given[name] for name in fresh.state_dict()})
    return fresh


def test_the_patch_projection_is_the_input_embedding():
    model = vision()
    projection = model.get_input_embeddings()
    assert isinstance(projection, torch.nn.Linear) and model.get_output_embeddings() is None
    assert projection.in_features == 3 * 4 * 4 and projection.out_features == model.config.hidden_size
    images = torch.randn(*IMAGES)
    before = model(images).logits
    other = torch.nn.Linear(projection.in_features, projection.out_features)
    model.set_input_embeddings(other)
    assert model.get_input_embeddings() is other and not torch.allclose(model(images).logits, before)
    other.load_state_dict(projection.state_dict())
    torch.testing.assert_close(model(images).logits, before)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and an end of text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", padding_side="left"
    )


def test_pipeline():
    tokenizer = byte_tokenizer()
    model = causal(vocab_size=len(tokenizer))
    pipe = pipeline("text-generation", model=model, tokenizer=tokenizer, device="cpu")
    prompts = ["a dual", "attention to"]
    outputs = pipe(prompts, max_new_tokens=5, do_sample=False, batch_size=2)
    for prompt, output in zip(prompts, outputs, strict=True):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        alone = model.model.generate(ids, 5, temperature=0, stop_tokens=tokenizer.eos_token_id)
        assert output[0]["generated_text"] == tokenizer.decode(alone[0], skip_special_tokens=True)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}])
def test_stop_strings(options: dict):
    """transformers hands the tokenizer that they need on to the model."""
    tokenizer = byte_tokenizer()
    model = causal(vocab_size=len(tokenizer))
    ids = tokenizer("a dual", return_tensors="pt").input_ids
    letters = set(tokenizer(string.ascii_letters).input_ids)
    others = [token for token in range(len(tokenizer)) if token not in letters]
    common = {"max_new_tokens": 8, "do_sample": False, "suppress_tokens": others, "pad_token_id": 256, **options}
    free = tokenizer.decode(model.generate(ids, **common)[0])
    stop = free[-3:-1]
    stopped = tokenizer.decode(model.generate(ids, stop_strings=[stop], tokenizer=tokenizer, **common)[0])
    assert stopped == free[: free.index(stop, len("a dual")) + 2]


@pytest.mark.slow
def test_language_model_evaluation_harness(tmp_path: Path):
    """lm-eval scores a task of our own as the model's losses say."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    from lm_eval import simple_evaluate  # pyright: ignore[reportMissingImports]
    from lm_eval.models.huggingface import HFLM  # pyright: ignore[reportMissingImports]
    from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]

    tokenizer = byte_tokenizer()
    model = causal(vocab_size=len(tokenizer), max_block_size=48)
    documents = [
        {"text": text, "a": a, "b": b} for text, a, b in [("1+1=", "2", "34"), ("abc", "d", "xyz"), ("q", "r", "s")]
    ]
    for document in documents:
        losses = [-score(model, tokenizer, document["text"], " " + document[choice]) for choice in "ab"]
        document["label"] = int(losses[1] < losses[0])
    documents[-1]["label"] = 1 - documents[-1]["label"]  # one that is wrong
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, documents)))
    (tmp_path / "task.yaml").write_text(
        f"""
task: ours
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}, cache_dir: {tmp_path / "cache"}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_target: "{{{{label}}}}"
doc_to_choice: "{{{{[a, b]}}}}"
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
    )
    results: Any = simple_evaluate(
        HFLM(pretrained=model, tokenizer=tokenizer, batch_size=2, device="cpu", max_length=48),
        tasks=["ours"],
        task_manager=TaskManager(include_path=str(tmp_path)),
        bootstrap_iters=0,
    )
    assert results["results"]["ours"]["acc,none"] == pytest.approx(2 / 3)


def score(model, tokenizer, text: str, continuation: str) -> float:
    ids = tokenizer(text + continuation, return_tensors="pt").input_ids
    known = len(tokenizer(text).input_ids)
    with torch.no_grad():
        chances = model(ids).logits.log_softmax(dim=-1)
    return float(chances[0, :-1].gather(-1, ids[0, 1:, None])[known - 1 :].sum())
