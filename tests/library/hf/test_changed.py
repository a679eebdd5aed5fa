"""Models that change after they are made: resized, with other embeddings, with gradient checkpointing."""

from pathlib import Path

import pytest
import torch

from dual_attention.hf import load_language_model, save_language_model
from tests.library.hf.models import IMAGES, MODELS, assert_same, inputs, vision
from tests.support.language import VOCAB


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
    assert model.config.vocab_size == size
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == tied
    model.save_pretrained(tmp_path)
    assert_same(auto.from_pretrained(tmp_path), model, x)
    if name == "causal":
        native = load_language_model(save_language_model(model.model, tmp_path / "native")).model
        torch.testing.assert_close(native(x).logits, model(x).logits)


@pytest.mark.parametrize("name", ["causal", "masked"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [VOCAB + 5, VOCAB - 3])
def test_tokens_beyond_a_resized_vocabulary(name: str, tied: bool, size: int):
    model = MODELS[name][0](tie_weights=tied)
    model.resize_token_embeddings(size)
    with pytest.raises(ValueError, match=f"from 0 to {size - 1}"):
        model(torch.full((1, 2), size))


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
@pytest.mark.parametrize("name", MODELS)
def test_checkpointing_keeps_no_attention_weights(name: str):
    model = MODELS[name][0]().train()
    model.gradient_checkpointing_enable()
    with pytest.raises(ValueError, match="gradient checkpointing keeps no attention weights"):
        model(inputs(name), output_attentions=True)


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
    torch.testing.assert_close(*gradients)
    model.gradient_checkpointing_disable()
    assert model(x, output_attentions=True).attentions is not None


def count_calls(model) -> list:
    calls: list = []
    for name, module in model.named_modules():
        if name.endswith(("blocks.0", "blocks.1")):
            module.register_forward_pre_hook(lambda *_: calls.append(1))
    return calls


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
