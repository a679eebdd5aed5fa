"""Vision models as backbones of transformers, of other sizes of images, and with other classes than a folder has."""

import logging
from pathlib import Path

import pytest
import torch
from transformers import AutoBackbone

from dual_attention.hf import DualAttnForImageClassification, DualAttnVisionBackbone, DualAttnVisionConfig
from tests.library.hf.models import IMAGES, matters, vision, vision_config
from tests.support.language import WIDTH

KINDS = ("dat", "transformer")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_a_backbone_puts_out_the_states_of_the_stages(kind: str, implementation: str):
    chosen = {"out_features": ["stem", "stage2"], "n_registers": 2, "attn_implementation": implementation}
    model, images = matters(AutoBackbone.from_config(vision_config(kind, **chosen))), torch.randn(*IMAGES)
    assert type(model) is DualAttnVisionBackbone
    assert model.channels == [WIDTH, WIDTH] and model.out_indices == [0, 2]
    found = model(images, output_hidden_states=True, output_attentions=True)
    states = [model.model.norm(state) for state in model.model.trace(images).states]
    for feature, state in zip(found.feature_maps, (states[0], states[2]), strict=True):
        assert feature.shape == (2, WIDTH, 3, 2)
        torch.testing.assert_close(feature.flatten(2).transpose(1, 2), state[:, 3:])
    assert len(found.hidden_states) == 3 and len(found.attentions) == 2
    torch.testing.assert_close(model(images, return_dict=False)[0], found.feature_maps)


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifiers_folder_is_a_backbone(kind: str, tmp_path: Path):
    model, images = vision(kind), torch.randn(*IMAGES)
    model.save_pretrained(tmp_path)
    assert "out_features" not in (tmp_path / "config.json").read_text()
    loaded, info = DualAttnVisionBackbone.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()) and loaded.out_features == ["stage2"]
    hidden = model.backbone(images).last_hidden_state
    (found,) = loaded.eval()(images).feature_maps
    torch.testing.assert_close(found.flatten(2).transpose(1, 2), hidden[:, 1:])
    loaded = DualAttnVisionBackbone.from_pretrained(tmp_path, out_indices=[1, 2])
    loaded.save_pretrained(tmp_path / "backbone")
    again = DualAttnVisionConfig.from_pretrained(tmp_path / "backbone")
    assert again.out_features == ["stage1", "stage2"] and again.out_indices == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_with_another_number_of_classes(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    caplog.set_level(logging.WARNING, "transformers")  # TransformerLens lets it tell of errors only
    model = vision(kind)
    model.save_pretrained(tmp_path)
    loaded, info = DualAttnForImageClassification.from_pretrained(
        tmp_path, num_labels=7, ignore_mismatched_sizes=True, output_loading_info=True
    )
    names = {name for name, *_ in info["mismatched_keys"]}
    assert names == {"model.final_out.weight", "model.final_out.bias"}
    assert all(name in caplog.text for name in names)
    assert loaded.config.num_labels == loaded.model.num_classes == 7
    assert loaded(torch.randn(*IMAGES)).logits.shape == (2, 7)
    assert loaded.model.final_out.weight.std() > 0 and loaded.model.final_out.weight.isfinite().all()
    for name, value in loaded.state_dict().items():
        assert name in names or torch.equal(value, model.state_dict()[name])


@pytest.mark.parametrize("kind", KINDS)
def test_another_number_of_classes_must_be_asked_for(kind: str, tmp_path: Path):
    vision(kind).save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="weights of other sizes") as refused:
        DualAttnForImageClassification.from_pretrained(tmp_path, num_labels=7)
    assert str(tmp_path) in str(refused.value) and "ignore_mismatched_sizes" in str(refused.value)


@pytest.mark.parametrize(
    "symbols",
    [
        dict(symbol_retrieval="position_relative_2d", symbol_retrieval_kwargs={"symbol_dim": WIDTH, "max_rel_pos": 2}),
        {"symbol_retrieval": "positional_symbols", "symbol_retrieval_kwargs": {"symbol_dim": 16, "max_length": 7}},
        {"symbol_retrieval": "symbolic_attention"},
        {"model": "transformer", "n_heads": 4},
    ],
)
def test_another_size_is_saved_and_loaded(symbols: dict, tmp_path: Path):
    model = matters(DualAttnForImageClassification(vision_config(**symbols)))
    model.set_input_size((16, 12), (4, 2))
    images = torch.randn(2, 3, 16, 12)
    model.save_pretrained(tmp_path)
    loaded = DualAttnForImageClassification.from_pretrained(tmp_path).eval()
    assert loaded.config.image_size == (16, 12) and tuple(loaded.config.patch_size) == (2, 4)
    torch.testing.assert_close(loaded(images).logits, model(images).logits)


@pytest.mark.parametrize("kind", KINDS)
def test_no_labels(kind: str):
    """As transformers has them: the body is there, and a classifier of one."""
    settings = vision_config(kind, num_labels=0)
    assert DualAttnVisionBackbone(settings)(torch.randn(*IMAGES)).feature_maps
    assert DualAttnForImageClassification(settings)(torch.randn(*IMAGES)).logits.shape[1] == 1
