"""The methods of timm's models on ours."""

import pytest
import torch

from dual_attention._models.vision import VisionModel
from dual_attention.vision_models import VisionTransformer
from tests.library.test_vision_models import COMMON, SYMBOLS, dual
from tests.support.tensors import float64, normal


def vit(**arguments) -> VisionModel:
    return VisionTransformer(**{**COMMON, **arguments}, n_heads=2)


def vidat(**arguments) -> VisionModel:
    return dual("position_relative_2d", **arguments)


KINDS = pytest.mark.parametrize("build", [vit, vidat])
IMAGES = (2, 3, 8, 12)  # 4 rows and 3 columns of patches


@KINDS
@pytest.mark.parametrize("pool", ["cls", "mean", "patches"])
def test_a_pass_is_features_and_then_the_head(build, pool):
    model, images = float64(build(pool=pool, final_norm=True)), normal(*IMAGES)
    tokens = model.forward_features(images)
    assert torch.equal(model.forward_head(tokens), model(images))
    pooled = model.forward_head(tokens, pre_logits=True)
    assert pooled.shape == (2, model.num_features)
    assert torch.equal(model.get_classifier()(pooled), model(images))
    wanted = {"cls": tokens[:, 0], "mean": tokens.mean(1), "patches": tokens[:, model.num_prefix_tokens :].mean(1)}
    torch.testing.assert_close(pooled, wanted[pool])


@KINDS
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_intermediates_are_the_states_of_a_trace(build, norm, checkpointed):
    model, images = float64(build(n_layers=3, final_norm=True)), normal(*IMAGES)
    states = [model.norm(state) if norm else state for state in model.trace(images).states[1:]]
    model.set_grad_checkpointing(checkpointed)
    hidden, found = model.forward_intermediates(images, norm=norm, return_prefix_tokens=True, output_fmt="NLC")
    torch.testing.assert_close(hidden, model.hidden(images))
    for (patches, prefix), state in zip(found, states, strict=True):
        torch.testing.assert_close(torch.cat((prefix, patches), 1), state)
    maps = model.forward_intermediates(images, [-1, 0], norm=norm, intermediates_only=True)
    for image, (patches, _) in zip(maps, (found[0], found[2]), strict=True):  # by depth
        assert image.shape == (2, 8, 4, 3) and torch.equal(image.flatten(2).transpose(1, 2), patches)
    (last,) = model.forward_intermediates(images, 1, norm=norm, intermediates_only=True)
    assert torch.equal(last, maps[1])


@KINDS
def test_stopping_early_computes_no_further_block(build):
    model, images = float64(build(n_layers=3, final_norm=True)), normal(*IMAGES)
    _, (wanted,) = model.forward_intermediates(images, [1])
    model.encoder_blocks[2].forward = None  # cannot be called
    _, (found,) = model.forward_intermediates(images, [1], stop_early=True)
    assert torch.equal(found, wanted)
    model.norm = torch.nn.Identity()
    state, _ = model.forward_intermediates(images, [1], stop_early=True)
    assert torch.equal(state[:, 1:].transpose(1, 2).reshape(found.shape), found)


@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize("norm", [False, True])
def test_features_only_shares_what_it_needs_and_every_parameter_gets_a_gradient(symbols, norm):
    model, images = dual(symbols, n_layers=3, final_norm=True), torch.randn(IMAGES)
    before = model(images)
    features = model.features_only([0, 1], norm=norm)
    found = features(images)
    for feature, wanted in zip(found, model.forward_intermediates(images, [0, 1], norm=norm)[1], strict=True):
        assert torch.equal(feature, wanted)
    sum(feature.square().sum() for feature in found).backward()
    assert {id(p) for p in features.parameters()} < {id(p) for p in model.parameters()}
    assert all(p.grad is not None for p in features.parameters() if p.requires_grad)
    assert all(p.grad is None for p in model.encoder_blocks[2].parameters())
    assert torch.equal(model(images), before)
    info = features.feature_info
    assert info.channels() == [8, 8] and info.reduction() == [4, 4]
    assert [features.model.get_submodule(name) for name in info.module_name()] == [*model.encoder_blocks[:2]]


@KINDS
@pytest.mark.parametrize("indices", [0, 3, [2], [-3], [], [0, -2], [0.5]])
def test_indices_without_a_block_are_refused(build, indices):
    model = build()
    for call in (model.forward_intermediates, lambda x, indices: model.features_only(indices)):
        with pytest.raises(ValueError, match="indices: expected"):
            call(torch.randn(IMAGES), indices=indices)
    with pytest.raises(ValueError, match=r"output_fmt: .*'NHWC'"):
        model.forward_intermediates(torch.randn(IMAGES), output_fmt="NHWC")


@KINDS
def test_another_classifier(build):
    model, images = build().double().eval(), normal(*IMAGES)
    tokens = model.forward_features(images)
    model.reset_classifier(7)
    assert model(images).shape == (2, 7) and model.num_classes == model.get_classifier().out_features == 7
    assert not model.final_out.training and torch.equal(model.forward_features(images), tokens)
    model.reset_classifier(0, "avg")
    assert model.num_classes == 0 and torch.equal(model(images), tokens[:, 1:].mean(1))
    model.reset_classifier(0, "token")
    assert torch.equal(model(images), tokens[:, 0])
    model.reset_classifier(2, "")
    assert torch.equal(model(images), model.final_out(tokens))
    with pytest.raises(ValueError, match=r"global_pool: .*'max'"):
        model.reset_classifier(2, "max")
    with pytest.raises(ValueError, match=r"num_classes: .*-1"):
        model.reset_classifier(-1)


@pytest.mark.parametrize("symbols", SYMBOLS)
def test_groups_of_parameters_cover_the_model_by_depth(symbols):
    model = dual(symbols, final_norm=True)
    groups = model.layer_groups()
    assert len(groups) == 4 and {k: v for group in groups for k, v in group.items()} == dict(model.named_parameters())
    assert all(name.startswith("encoder_blocks.0.") for name in groups[1])
    assert {name.split(".")[0] for name in groups[2]} == {"encoder_blocks", "norm"}
    assert {name.split(".")[0] for name in groups[3]} == {"final_out"}
    assert sum(map(len, groups)) == len([*model.parameters()])
    by_position = {"positional_symbols", "position_relative", "position_relative_2d"}
    undecayed = model.no_weight_decay()
    assert undecayed <= {*dict(model.named_parameters())}
    assert {*undecayed} >= {"cls_token", "pos_embedding"}
    assert (len(undecayed) == 3) == (symbols in by_position)
    assert "pos_embedding" not in dual(symbols, pos_enc="none").no_weight_decay()
