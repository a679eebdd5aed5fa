"""CIFAR-10 and CIFAR-100 from the Hugging Face hub, fetched by ``datasets`` (the extra of that name)."""

from typing import Any

import torch

from dual_attention._base.extras import require

from ..text.hub_datasets import open_dataset
from .cifar import CifarName
from .sets import IMAGE_SETS, LabelledImages

HUB_SETS: dict[CifarName, tuple[str, str]] = {
    "cifar10": ("uoft-cs/cifar10", "label"),
    "cifar100": ("uoft-cs/cifar100", "fine_label"),
}
"""Name on the hub, and the column of labels."""
IMAGES = "img"
"""The column of images."""


def hub_images(name: CifarName) -> tuple[LabelledImages, LabelledImages]:
    """The images to train and to test on.

    Raises:
        ImportError: the extra ``datasets`` is missing.
        OSError: it cannot be had.
        ValueError: naming it, if it holds something else.
    """
    source, column = HUB_SETS[name]
    splits = open_dataset(source, "data.from_hub")
    missing = {"train", "test"} - set(splits)
    if missing:
        raise ValueError(f"data.from_hub: expected splits train and test in {source}, got {', '.join(splits)}")
    train, test = (_images(splits[split], name, source, column) for split in ("train", "test"))
    return train, test


def _images(split: Any, name: CifarName, source: str, column: str) -> LabelledImages:
    lacking = [wanted for wanted in (IMAGES, column) if wanted not in split.column_names]
    if lacking:
        columns = ", ".join(split.column_names)
        raise ValueError(f"data.from_hub: expected columns {IMAGES} and {column} in {source}, got {columns}")
    numpy = require("numpy", extra="train")
    images = torch.from_numpy(numpy.stack([numpy.asarray(image) for image in split[IMAGES]]))
    labels = torch.as_tensor(list(split[column]), dtype=torch.int64)
    about = IMAGE_SETS[name]
    if images.dtype != torch.uint8 or images.shape[1:] != (32, 32, 3):
        raise ValueError(f"data.from_hub: expected images of 32 x 32 x 3 bytes in {source}, got {tuple(images.shape)}")
    if int(labels.min()) < 0 or int(labels.max()) >= about.classes:
        seen = f"{int(labels.min())} to {int(labels.max())}"
        raise ValueError(f"data.from_hub: expected labels from 0 to {about.classes - 1} in {source}, got {seen}")
    return LabelledImages(images.permute(0, 3, 1, 2).contiguous(), labels)
