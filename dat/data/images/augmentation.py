"""Augmentation of images by kornia, in the sets of the published runs. Draws are PyTorch's, from the global generator.

Shapes: B images, C channels, H rows, W columns.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from dual_attention._base.extras import require

AugmentationName = Literal["none", "shift", "crop", "cutmix", "mixup", "mixup-cutmix", "autoaugment"]
AUGMENTATIONS: tuple[AugmentationName, ...] = get_args(AugmentationName)
"""Effects on the images that are trained on.

- ``shift``: crop from a margin of black pixels, an eighth of the image wide;
- ``crop``: crop and flip, the flip with probability 1/2;
- ``cutmix``: crop, flip, crop-paste, and CutMix on every batch, as in the runs of Tables 1 and 3;
- ``mixup``: crop, flip, crop-paste, and MixUp on a batch with probability 0.8;
- ``mixup-cutmix``: crop, flip, crop-paste, and on every batch either MixUp or CutMix;
- ``autoaugment``: crop, flip, and AutoAugment by the policy for CIFAR-10, as in the runs of Table 4.
"""


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Context in which the global generator of the CPU starts from a seed; then it is as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


class Augmentation:
    """One of :data:`AUGMENTATIONS` for images of a shape.

    Args:
        name: of the augmentation.
        shape: channels, width and height.

    Raises:
        ValueError: unknown name, or AutoAugment for images without colours.
        ImportError: kornia is missing; ``pip install relational-attention[images]`` brings it.
    """

    def __init__(self, name: AugmentationName, shape: Sequence[int]) -> None:
        if name not in AUGMENTATIONS:
            raise ValueError(f"augmentation: expected one of {', '.join(AUGMENTATIONS)}, got {name!r}")
        channels, width, height = shape
        if name == "autoaugment" and channels != 3:
            raise ValueError(f"augmentation: autoaugment needs images of 3 channels, got {channels}")
        self.name = name
        self._crop = self._flip = None
        self._policies: list[Any] = []
        if name == "none":
            return
        kornia = require("kornia.augmentation", extra="images")
        self._crop = kornia.RandomCrop((height, width), padding=(width // 8, height // 8))
        if name != "shift":
            self._flip = kornia.RandomHorizontalFlip(p=0.5)
        if name == "autoaugment":
            auto = require("kornia.augmentation.auto", extra="images")
            policies = auto.AutoAugment("cifar10", transformation_matrix_mode="skip")
            self._policies = list(policies.children())
        both: dict[str, Any] = {"same_on_batch": True, "data_keys": ["input", "class"]}
        self._cutmix = kornia.RandomCutMixV2(use_correct_lambda=True, **both)
        self._mixup = kornia.RandomMixUpV2(p=0.8 if name == "mixup" else 1.0, **both)

    @property
    def mixes(self) -> bool:
        """Whether images of a batch are mixed with each other."""
        return self.name in ("cutmix", "mixup", "mixup-cutmix")

    def change(self, images: Tensor) -> Tensor:
        """Images ``(B, C, height, width)`` in 0..1, each changed for itself."""
        if self._crop is not None:
            images = self._crop(images)
        if self._flip is not None:
            images = self._flip(images)
        return self._by_policy(images) if self._policies else images

    def _by_policy(self, images: Tensor) -> Tensor:
        """A sub-policy of its own for each image; kornia draws one for all of a batch."""
        chosen, changed = torch.randint(len(self._policies), (len(images),)), images.clone()
        for number in chosen.unique().tolist():
            where = (chosen == number).nonzero()[:, 0].to(images.device)
            changed[where] = self._policies[number](images[where])
        return changed

    def mix(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mix normalised images with others of the batch.

        Returns:
            The images, their labels, the labels of the partners, and the share of the own image ``(B,)``.
        """
        images = crop_paste(images)
        cuts = self.name == "cutmix" or (self.name == "mixup-cutmix" and bool(torch.rand(()) < 0.5))
        mixed, columns = (self._cutmix if cuts else self._mixup)(images, labels)
        # Kornia's third is the share of the partner in MixUp.
        _, partners, third = columns.to(images.device).reshape(-1, 3).unbind(1)
        return mixed, labels, partners.round().long(), third if cuts else 1 - third


def crop_paste(images: Tensor) -> Tensor:
    """Paste a box of each image ``(B, C, H, W)`` into it, both perhaps flipped, at a random place and strength, as the
    published runs of Tables 1 and 3 do.

    The box has sides of sqrt(1 - λ) of the image's, λ ~ U(0, 1), its centre anywhere and what lies outside cut off; the
    piece and the image are flipped left to right with probability 1/2 each; the image keeps a share ~ U(0, 1) below it.
    """
    n, _, height, width = images.shape
    reach = (1 - torch.rand(n)).sqrt()
    top, rows = _side(height, reach)
    left, columns = _side(width, reach)
    to_top = (torch.rand(n) * (height - rows + 1)).long()
    to_left = (torch.rand(n) * (width - columns + 1)).long()
    flip_piece, flip_image, share = torch.rand(n) < 0.5, torch.rand(n) < 0.5, torch.rand(n)
    row = torch.arange(height) - to_top[:, None]  # in the piece (B, H)
    column = torch.arange(width) - to_left[:, None]
    inside = ((row >= 0) & (row < rows[:, None]))[:, :, None] & ((column >= 0) & (column < columns[:, None]))[:, None]
    column = torch.where(flip_piece[:, None], columns[:, None] - 1 - column, column)
    source_row = (row + top[:, None]).clamp(0, height - 1)
    source_column = (column + left[:, None]).clamp(0, width - 1)
    device = images.device
    which = torch.arange(n)[:, None, None]
    places = (part.to(device) for part in (which, source_row[:, :, None], source_column[:, None, :]))
    pieces = images.permute(0, 2, 3, 1)[tuple(places)].permute(0, 3, 1, 2)
    below = torch.where(flip_image.to(device)[:, None, None, None], images.flip(-1), images)
    share = share.to(device, images.dtype)[:, None, None, None]
    return torch.where(inside.to(device)[:, None], share * below + (1 - share) * pieces, below)


def _side(length: int, reach: Tensor) -> tuple[Tensor, Tensor]:
    """First place and length of a box along a side."""
    half = (length * reach).long() // 2
    centre = (torch.rand(len(reach)) * length).long()
    first, end = (centre - half).clamp(min=0), (centre + half).clamp(max=length)
    return first, end - first
