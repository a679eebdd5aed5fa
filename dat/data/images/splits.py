"""Images to train, to validate and to test on, kept apart by a seed."""

from functools import lru_cache

import torch

from dual_attention._base.digests import stream_seed

from .cifar import cifar_images
from .digits import digit_images
from .folders import find_pictures, folder_images
from .sets import IMAGE_SETS, ImageSet, ImageSetName, LabelledImages

SIZE = 32
"""Width and height that pictures of a folder are given by default."""


def image_set(name: ImageSetName, folder: str | None = None, size: int = SIZE) -> ImageSet:
    """Facts of a set; those of a folder are looked at, see :func:`~.folders.find_pictures`."""
    return find_pictures(folder).image_set(size) if name == "folder" else IMAGE_SETS[name]


@lru_cache(maxsize=2)  # for the runs of a sweep that come next
def load_images(
    name: ImageSetName, *, folder: str | None = None, size: int = SIZE
) -> tuple[LabelledImages, LabelledImages | None]:
    """All images of a set, and its official test images if it has such.

    Args:
        folder: with an official archive of CIFAR, or with labelled pictures.
        size: width and height of the pictures of a folder.

    Raises:
        ValueError, FileNotFoundError, ImportError: as what reads them.
    """
    if name == "digits" or name == "mnist":
        return digit_images(name), None
    if name == "folder":
        return folder_images(folder, size)
    return cifar_images(name, folder)


def split_images(
    name: ImageSetName, *, n_train: int, n_val: int, n_test: int, seed: int, folder: str | None = None, size: int = SIZE
) -> dict[str, LabelledImages]:
    """``{"train": ..., "val": ..., "test": ...}``, disjoint; val and test only if they are not empty.

    The seed decides the order of the images. Test images come first in it unless the set has its own, of which the
    first are taken; then those to validate on; a smaller training set is the beginning of a larger one.

    Raises:
        ValueError: more images are asked for than there are; others as :func:`load_images`.
    """
    check_image_counts(name, image_set(name, folder, size), n_train, n_val, n_test)
    images, official = load_images(name, folder=folder, size=size)
    generator = torch.Generator().manual_seed(stream_seed("images", name, seed))
    order = torch.randperm(len(images.images), generator=generator)
    drawn = 0 if official is not None else n_test
    places = {"val": (drawn, n_val), "train": (drawn + n_val, n_train)}
    splits = {split: _taken(images, order[first : first + n]) for split, (first, n) in places.items()}
    if name == "folder" and official is not None:  # sorted by class, unlike the others
        official = _taken(official, torch.randperm(len(official.images), generator=generator))
    splits["test"] = _taken(images, order[:n_test]) if official is None else _taken(official, torch.arange(n_test))
    return {split: found for split, found in splits.items() if split == "train" or len(found.images)}


def check_image_counts(name: ImageSetName, about: ImageSet, n_train: int, n_val: int, n_test: int) -> None:
    """Raise ValueError if a set has fewer images than these sizes ask for, or none is left to train on."""
    if about.split and n_test > about.test:
        raise ValueError(f"data.n_test: expected at most {about.test:,}, the test images of {name}, got {n_test:,}")
    kept = n_val + (0 if about.split else n_test)
    parts = "n_val" if about.split else "n_val + n_test"
    if kept >= about.train:
        raise ValueError(f"data.{parts}: expected fewer than the {about.train:,} images of {name}, got {kept:,}")
    if not 1 <= n_train <= about.train - kept:
        most = f"{about.train - kept:,}, the images of {name} without data.{parts}={kept:,}"
        raise ValueError(f"data.n_train: expected from 1 to {most}, got {n_train:,}")


def _taken(source: LabelledImages, places: torch.Tensor) -> LabelledImages:
    return LabelledImages(source.images[places], source.labels[places])
