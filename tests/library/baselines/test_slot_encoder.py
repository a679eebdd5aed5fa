"""Slots from images."""

import torch

from dual_attention.baselines import OCRA, SlotAbstractor, SlotDecoder, SlotEncoder, VisionSlots
from dual_attention.vision_models import VisionTransformer
from tests.support.refusals import refused
from tests.support.tensors import float64, normal


def build(**arguments):
    return float64(SlotEncoder((3, 12, 8), 4, 6, **{"strides": (2, 1), **arguments}))


def test_slots_features_and_positions():
    model, images = build(), normal(2, 3, 8, 12)
    got = model(images)
    features = model.cnn(images)
    assert features.shape == (2, 6, 4, 6) and got.shares.shape == (2, 4, 4, 6)
    flat = features.flatten(2).transpose(1, 2)
    embedding = model.embed_positions
    positions = torch.stack(
        [
            embedding.weight @ torch.tensor([i / 3, j / 5, 1 - i / 3, 1 - j / 5], dtype=torch.float64) + embedding.bias
            for i in range(4)
            for j in range(6)
        ]
    )
    found = model.slot_attention(model.ff_block(model.norm(flat + positions)), need_weights=True)
    torch.testing.assert_close(got.slots, found.slots)
    torch.testing.assert_close(got.features, found.weights @ flat)
    torch.testing.assert_close(got.positions, found.weights @ positions)
    torch.testing.assert_close(got.shares.sum(1), torch.ones(2, 4, 6).double())


def test_examples_of_a_batch_do_not_mix():
    model, images = build(), normal(3, 3, 8, 12)
    torch.testing.assert_close(model(images).slots, torch.cat([model(image[None]).slots for image in images]))


@torch.no_grad()
def test_slots_paint_patches_under_masks():
    decoder, slots = float64(SlotDecoder((2, 7, 5), 6, patch=3)), normal(2, 4, 6)
    got = decoder(slots)
    assert got.images.shape == (2, 2, 5, 7) and got.masks.shape == (2, 4, 5, 7)
    embedding, first, second = decoder.embed_positions, decoder.ff_block.linear1, decoder.ff_block.linear2
    colours, masks = torch.zeros(4, 2, 6, 9).double(), torch.zeros(4, 6, 9).double()
    for k, slot in enumerate(slots[1]):
        for i in range(2):
            for j in range(3):
                where = torch.tensor([i, j / 2, 1 - i, 1 - j / 2], dtype=torch.float64)
                hidden = torch.relu(first.weight @ (slot + embedding.weight @ where + embedding.bias) + first.bias)
                hidden = torch.relu(second.weight @ hidden + second.bias)
                patch = (decoder.paint.weight @ hidden + decoder.paint.bias).view(3, 3, 3)
                rows, columns = slice(3 * i, 3 * i + 3), slice(3 * j, 3 * j + 3)
                colours[k, :, rows, columns], masks[k, rows, columns] = patch[:2], patch[2]
    masks = masks.exp() / masks.exp().sum(0)
    torch.testing.assert_close(got.masks[1], masks[:, :5, :7])
    torch.testing.assert_close(got.images[1], (masks[:, None] * colours).sum(0)[:, :5, :7])


@torch.no_grad()
def test_slots_are_classified():
    images = normal(2, 3, 8, 12)
    over = VisionTransformer((6, 4, 1), (1, 1), 5, 6, 1, 2, pos_enc="none")
    model = float64(VisionSlots(build(), over))
    slots = model.slots(images).slots
    tokens = over.hidden(slots.transpose(1, 2)[:, :, None])
    assert tokens.shape == (2, 5, 6)  # a class token and the slots
    torch.testing.assert_close(model(images), over.forward_head(tokens))
    for kind, mean in ((SlotAbstractor, lambda x: x.mean(1)), (OCRA, lambda x: x)):
        model = float64(VisionSlots(build(), kind(6, 1, 2), 5))
        found = model.slots(images)
        related = mean(model.model(found.features, found.positions))
        torch.testing.assert_close(model(images), related @ model.classifier.weight.T + model.classifier.bias)
    painting = float64(VisionSlots(build(), over, decoder=SlotDecoder((3, 12, 8), 6)))
    got = painting(images, need_weights=True)
    torch.testing.assert_close(got.scores, painting(images))
    torch.testing.assert_close(got.painted.masks, painting.decoder(got.encoded.slots).masks)
    assert model(images, need_weights=True).painted is None


test_bad_input = refused(
    (lambda: SlotEncoder((3, 8, 8), 0, 6), "n_slots: expected a positive"),
    (lambda: SlotEncoder((3, 8), 2, 6), "image_shape: expected 3 sizes"),
    (lambda: SlotEncoder((3, 8, 8), 2, 6, strides=()), "strides: expected a positive number, got 0"),
    (lambda: SlotEncoder((3, 8, 8), 2, 6, strides=(1, 0)), "strides: expected a positive"),
    (lambda: SlotDecoder((3, 8, 8), 6, patch=0), "patch: expected a positive"),
    (lambda: VisionSlots(build(), build(), decoder=build()), TypeError, "decoder: expected a SlotDecoder"),
    (lambda: build()(normal(2, 3, 12, 8)), r"x: expected shape \(batch, 3, 8, 12\), got \(2, 3, 12, 8"),
    (lambda: build()(normal(2, 3, 8, 12).float()), TypeError, "x: expected dtype torch.float64"),
    (lambda: VisionSlots(SlotEncoder((1, 16, 16), 4, 32), OCRA(32, 1, 2), 3, decoder=SlotDecoder((1, 8, 8), 32)),
     r"decoder: expected .*16, 16\), 32\) as those of .*, got .*8, 8\), 32\)"),
    (lambda: VisionSlots(SlotEncoder((1, 16, 16), 4, 32), OCRA(32, 1, 2)),
     r"expected a number with SlotAbstractor or OCRA.*got None with OCRA"),
    (lambda: VisionSlots(SlotEncoder((1, 16, 16), 4, 32), torch.nn.Identity(), 3),
     "and None with a model that classifies itself, got 3 with Identity"),
)  # fmt: skip
