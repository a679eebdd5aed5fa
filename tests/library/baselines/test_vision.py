"""The architectures on images."""

import pytest
import torch

from dual_attention.baselines import VisionAbstractor, VisionCoRelNet, VisionESBN, VisionPrediNet
from tests.support.refusals import refused
from tests.support.tensors import float64, normal

IMAGES = {"image_shape": (3, 12, 8), "patch_size": (4, 2), "num_classes": 5, "d_model": 8}  # widths come first
ABSTRACTOR = {"n_layers": 2, "n_heads": 2, "dff": 12, "dropout_rate": 0.0, "activation": "relu", "norm_first": True}
MODELS = {
    "abstractor": lambda: VisionAbstractor(**IMAGES, **ABSTRACTOR),
    "abstractor, symbolic": lambda: VisionAbstractor(
        **IMAGES,
        **ABSTRACTOR,
        symbol_retrieval="symbolic_attention",
        symbol_retrieval_kwargs={"d_model": 8, "n_heads": 2, "n_symbols": 3},
        residual="objects",
    ),
    "predinet": lambda: VisionPrediNet(**IMAGES, n_heads=2, n_relations=3),
    "predinet, grid": lambda: VisionPrediNet(**IMAGES, n_heads=2, n_relations=3, positions="grid"),
    "predinet, no positions": lambda: VisionPrediNet(**IMAGES, n_heads=2, n_relations=3, positions="none"),
    "corelnet": lambda: VisionCoRelNet(**IMAGES),
    "corelnet, identity": lambda: VisionCoRelNet(**IMAGES, dff=6, activation="identity", context_norm=True),
    "esbn": lambda: VisionESBN(**IMAGES, key_dim=3, hidden_dim=7),
}


@pytest.mark.parametrize("name", MODELS)
def test_patches_that_are_not_square_are_the_objects(name):
    model, images = float64(MODELS[name]()), normal(2, 3, 8, 12)
    patches = [
        images[:, :, 2 * i : 2 * i + 2, 4 * j : 4 * j + 4].permute(0, 2, 3, 1) for i in range(4) for j in range(3)
    ]
    _, norm1, linear, norm2 = model.patch_embedding
    objects = norm2(linear(norm1(torch.stack([p.flatten(1) for p in patches], dim=1))))
    torch.testing.assert_close(model.objects(images), objects)
    logits = model(images)
    torch.testing.assert_close(logits, model.classifier(model.summary(objects)))
    assert logits.shape == (2, 5)
    logits.square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []


@pytest.mark.parametrize("name", MODELS)
def test_examples_of_a_batch_do_not_mix(name):
    model, images = float64(MODELS[name]()), normal(3, 3, 8, 12)
    torch.testing.assert_close(model(images), torch.cat([model(image[None]) for image in images]))


def test_the_mean_of_the_abstract_symbols_is_classified():
    model, images = float64(MODELS["abstractor"]()), normal(2, 3, 8, 12)
    abstract = model.abstractor(model.objects(images))
    torch.testing.assert_close(model.summary(model.objects(images)), abstract.mean(1))


test_bad_input = refused(
    (lambda: VisionCoRelNet((3, 12, 8), (5, 2), 5, 8), "image: patches of height 2 and width 5 do not tile"),
    (lambda: VisionAbstractor(**IMAGES, **ABSTRACTOR, symbol_retrieval="symbolic_attention"),
     "symbol_retrieval_kwargs: needed for symbol_retrieval='symbolic_attention'"),
)  # fmt: skip


test_images_of_another_kind_are_refused = pytest.mark.parametrize("name", MODELS)(refused(
    (torch.randn(2, 3, 12, 8), r"x: expected shape \(batch, 3, 8, 12\), got \(2, 3, 12, 8\)"),
    (torch.zeros(2, 3, 8, 12, device="meta"), "x: expected a tensor on cpu as the parameters"),
    (torch.zeros(2, 3, 8, 12, dtype=torch.half), TypeError, "x: expected dtype torch.float32 as the parameters"),
    (torch.zeros(2, 3, 8, 12, dtype=torch.uint8), TypeError, "x: expected dtype torch.float32 as the parameters"),
    ([[0.0]], TypeError, "x: expected a tensor, got list"),
    by=lambda images, *, name: MODELS[name]()(images),
))  # fmt: skip
