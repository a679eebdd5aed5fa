"""Adapters of PEFT in place of weights that learn."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch

from dual_attention.hf import load_language_model, save_language_model
from tests.library.hf.models import IMAGES, causal, masked, tokens, vision

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")


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


@pytest.mark.parametrize(
    ("more", "config"),
    [
        ({"share_attn_params": True}, {"target_modules": ["wq", "wk"]}),
        ({"tie_weights": True}, {"target_modules": ["wq"], "trainable_token_indices": [1, 2]}),
    ],
)
def test_adapters_of_shared_weights(more: dict[str, Any], config: dict[str, Any]):
    """An adapter serves all that share what it adapts, so merging changes nothing."""
    model = peft.get_peft_model(causal(**more), peft.LoraConfig(r=2, task_type="CAUSAL_LM", **config))
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter)
    x = tokens(2, 7)
    adapted = model.eval()(input_ids=x).logits
    torch.testing.assert_close(model.merge_and_unload()(x).logits, adapted)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("made", [causal, masked])
@pytest.mark.parametrize("adapted", ["output", "embedding", "both"])
@pytest.mark.parametrize("how", ["merge_and_unload", "merge_adapter", "loaded"])
def test_adapters_of_a_tied_matrix(made: Any, adapted: str, how: str, tmp_path: Path):
    """The embedding and the output layer, which are one matrix, become two, which a warning says; merging is exact."""
    names = {"embedding": ["token_embedder"], "output": ["decoder" if made is masked else "final_out"]}
    names["both"] = names["embedding"] + names["output"]
    base, x = made(), tokens(2, 7)
    assert base.get_output_embeddings().weight is base.get_input_embeddings().weight
    base.save_pretrained(tmp_path / "base")
    with pytest.warns(UserWarning, match="which were one matrix: they are two now"):
        model: Any = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=names[adapted]))
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter)
    expected = model.eval()(input_ids=x).logits
    if how == "merge_adapter":
        model.merge_adapter()
        torch.testing.assert_close(model(input_ids=x).logits, expected)
        return
    if how == "loaded":
        model.save_pretrained(tmp_path / "adapter")
        fresh = type(base).from_pretrained(tmp_path / "base")
        with pytest.warns(UserWarning, match="which were one matrix"):
            model = peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter")
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(x).logits, expected)
    merged.save_pretrained(tmp_path / "merged")
    again = type(base).from_pretrained(tmp_path / "merged")
    assert not again.config.tie_weights
    torch.testing.assert_close(again(x).logits, expected)
    if made is causal:
        native = load_language_model(save_language_model(merged.model, tmp_path / "native")).model
        torch.testing.assert_close(native(x).logits, expected)


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
    given = {k.replace(".base_layer", "").replace(".original_module", ""): t for k, t in base.state_dict().items()}
    fresh.load_state_dict({name: given[name] for name in fresh.state_dict()})
    return fresh
