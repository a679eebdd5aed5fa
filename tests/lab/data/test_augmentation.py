"""Augmentation: what it may change, what it draws from, and pieces pasted over images."""

import sys

import pytest
import torch

from dat.data.images.augmentation import AUGMENTATIONS, Augmentation, crop_paste, drawn_from
from tests.support.refusals import refused

COLOUR = (3, 32, 32)


def changed(name, images, labels, seed=0):
    augmentation = Augmentation(name, images.shape[1:])
    with drawn_from(seed):
        found = augmentation.change(images)
        return augmentation.mix(found, labels) if augmentation.mixes else (found, labels)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_draws_depend_on_the_seed_only(name):
    images, labels = torch.rand(16, *COLOUR), torch.arange(16)
    before = torch.get_rng_state()
    once = changed(name, images, labels)
    assert torch.get_rng_state().equal(before)
    torch.rand(7)
    again, other = changed(name, images, labels), changed(name, images, labels, seed=1)
    assert all(map(torch.equal, once, again)) and once[0].shape == images.shape
    assert name == "none" or not once[0].equal(other[0])
    assert once[1].equal(labels)


def test_nothing():
    images = torch.rand(2, 1, 8, 8)
    assert changed("none", images, torch.zeros(2))[0].equal(images)


def test_a_shift_moves_an_image_and_fills_with_black():
    image = torch.zeros(1, 1, 8, 8)
    image[0, 0, 3, 4] = 1
    found = {tuple(changed("shift", image, torch.zeros(1), seed)[0].nonzero()[0, 2:].tolist()) for seed in range(99)}
    assert found == {(row, column) for row in (2, 3, 4) for column in (3, 4, 5)}


def test_a_crop_also_flips_half():
    image = torch.zeros(400, 3, 32, 32)
    image[..., 16:] = 1
    right = changed("crop", image, torch.zeros(400))[0][:, :, 16, 20:28].mean((1, 2)) > 0.5
    assert 150 < int(right.sum()) < 250


def test_cutmix_takes_a_box_of_the_partner():
    images = torch.arange(8.0)[:, None, None, None].expand(-1, 1, 16, 16).contiguous()
    augmentation = Augmentation("cutmix", (1, 16, 16))
    for seed in range(20):
        with drawn_from(seed):
            mixed, labels, partners, share = augmentation.mix(images, torch.arange(8) % 4)
        own = (mixed == images).flatten(1).double().mean(1)
        other = partners != labels
        assert own[other].allclose(share.double()[other]) and share.unique().numel() == 1
        values = mixed.flatten(1)
        for row, own_label, partner in zip(values, labels, partners, strict=True):
            assert {int(value) % 4 for value in row} <= {int(own_label), int(partner)}


def test_mixup_adds_the_partner():
    images = torch.arange(8.0)[:, None, None, None].expand(-1, 1, 16, 16).contiguous()
    augmentation, mixes = Augmentation("mixup", (1, 16, 16)), 0
    for seed in range(40):
        with drawn_from(seed):
            mixed, labels, partners, share = augmentation.mix(images, torch.arange(8))
        wanted = share * labels + (1 - share) * partners
        torch.testing.assert_close(mixed, wanted[:, None, None, None].expand_as(mixed))
        mixes += int(share.min() < 1)
    assert 24 <= mixes < 40  # with probability 0.8


def test_either_of_both():
    images = torch.rand(4, 1, 16, 16)
    augmentation, cuts = Augmentation("mixup-cutmix", (1, 16, 16)), 0
    for seed in range(40):
        with drawn_from(seed):
            mixed = augmentation.mix(images, torch.arange(4))[0]
        cuts += all(value in images for value in mixed.flatten().tolist()[:4])
    assert 8 < cuts < 32


def test_policies_are_drawn_for_each_image():
    images = torch.rand(1, *COLOUR).expand(64, -1, -1, -1).contiguous()
    found = changed("autoaugment", images, torch.zeros(64))[0]
    assert len({image.numpy().tobytes() for image in found}) > 32
    assert float(found.min()) >= 0 and float(found.max()) <= 1


def test_a_piece_of_an_image_is_pasted_into_it():
    """One box is changed, of the image or of its mirror image, and by values of the image itself."""
    images, pasted = torch.rand(2, 1, 8, 8) + torch.tensor([0.0, 2.0])[:, None, None, None], 0
    for seed in range(50):
        with drawn_from(seed):
            found = crop_paste(images)
        assert found[0].max() < 1 and found[1].min() > 2
        for image, new in zip(images[:, 0], found[:, 0], strict=True):
            where = min(((new != below).nonzero() for below in (image, image.flip(-1))), key=len)
            if len(where):
                rows, columns = (int(part.max() - part.min()) + 1 for part in where.unbind(1))
                assert len(where) >= 0.7 * rows * columns  # by chance a pixel meets itself again
                pasted += 1
    assert pasted > 70
    torch.testing.assert_close(crop_paste(torch.ones(3, 2, 8, 8)), torch.ones(3, 2, 8, 8))


test_wrong_augmentations = refused(
    ("blur", COLOUR, r"augmentation: expected one of none, shift, .*, got 'blur'"),
    ("autoaugment", (1, 8, 8), "autoaugment needs images of 3 channels, got 1"),
    by=Augmentation,
)


def test_kornia_is_named_if_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "kornia.augmentation", None)
    with pytest.raises(ImportError, match=r'pip install "relational-attention\[images\]"'):
        Augmentation("crop", COLOUR)
    Augmentation("none", COLOUR)
