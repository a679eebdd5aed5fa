"""A folder of labelled pictures: a folder in it for each class, or those in the folders ``train`` and ``test``."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dual_attention._base.checksums import sha256_of
from dual_attention._base.words import listed

from ..folders import files_below
from .pictures import decoded
from .sets import ImageSet, LabelledImages

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's channels, which normalise pictures."""
TESTED = ("test", "val", "valid", "validation")
"""Folders of pictures to test on beside ``train``, of which one may be there."""


class PictureFolder(NamedTuple):
    """The files of a folder of labelled pictures.

    Attributes:
        classes: their names, in order; the label of a picture is the place of its class.
        train: pictures to train on, by class.
        test: pictures to test on, by class; None if they are not kept apart.
        left_out: files that are not read: no pictures by their names, hidden, or in no folder of a class.
    """

    classes: tuple[str, ...]
    train: Mapping[str, Sequence[Path]]
    test: Mapping[str, Sequence[Path]] | None
    left_out: int

    def image_set(self, size: int) -> ImageSet:
        """Its size, without reading a picture."""
        train, test = (sum(map(len, part.values())) for part in (self.train, self.test or {}))
        return ImageSet(shape=(3, size, size), classes=len(self.classes), train=train, test=test, mean=MEAN, std=STD)


def find_pictures(folder: str | None) -> PictureFolder:
    """The pictures of a folder, found by their names.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if it has fewer than two classes, a class without pictures, or one to test on that none trains on.
    """
    if folder is None:
        raise ValueError("data.folder: expected a folder with a folder of pictures for each class, got null")
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"data.folder: no such folder: {root}")
    parts = [root / name for name in TESTED if (root / "train").is_dir() and (root / name).is_dir()]
    if len(parts) > 1:
        raise ValueError(f"data.folder: expected train and test, or train and val, in {root}, got all three")
    trained = root / "train" if (root / "train").is_dir() else root
    train = _by_class(trained)
    if len(train) < 2:
        has = f"only {next(iter(train))}" if train else "none"
        raise ValueError(
            f"data.folder: expected a folder of pictures for each of two classes or more in {trained}, got {has}"
        )
    test = None
    if parts:
        test = _by_class(parts[0])
        if unknown := sorted(set(test) - set(train)):
            raise ValueError(f"data.folder: {parts[0]} has the classes {listed(unknown)}, which train has not")
    read = sum(len(files) for part in (train, test or {}) for files in part.values())
    return PictureFolder(tuple(train), train, test, max(len(files_below(root, hidden=True)) - read, 0))


def pictures_origin(folder: str | None) -> dict[str, Any]:
    """Identity of the pictures of a folder, as JSON: its classes, and a digest of the files by their places in it.

    Raises:
        FileNotFoundError, ValueError: as :func:`find_pictures`.
    """
    found, root = find_pictures(folder), Path(folder or "")
    paths = [path for part in (found.train, found.test or {}) for files in part.values() for path in files]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(repr((path.relative_to(root).as_posix(), sha256_of(path))).encode())
    return {"classes": list(found.classes), "pictures": len(paths), "digest": digest.hexdigest()[:12]}


def _is_hidden(name: str) -> bool:
    """Whether a file or folder is one of a system's own: ``._cat.png``, ``.thumbnails``, ``__MACOSX``, ``@eaDir``."""
    return name.startswith(".") or name in ("__MACOSX", "@eaDir")


def _folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not _is_hidden(path.name))


def _by_class(folder: Path) -> dict[str, list[Path]]:
    """The pictures of each class."""
    found = {}
    for name in _folders(folder):
        files = [file for file in files_below(folder / name, hidden=True) if file.suffix.lower() in SUFFIXES]
        found[name] = [file for file in files if not any(map(_is_hidden, file.relative_to(folder / name).parts))]
    if empty := [name for name, files in found.items() if not files]:
        raise ValueError(f"data.folder: expected pictures ({', '.join(SUFFIXES)}) in {folder / empty[0]}, found none")
    return found


def folder_images(folder: str | None, size: int) -> tuple[LabelledImages, LabelledImages | None]:
    """The pictures of a folder, cut to a square, resized, and on white where they are transparent.

    Args:
        size: width and height of what they become.

    Returns:
        Those to train on, and those to test on if they are kept apart.

    Raises:
        ValueError: naming the file, if it is no picture; or two, if they are equal: a model would be tested on what it
            was trained on.
        ValueError, FileNotFoundError: as :func:`find_pictures`.
        ImportError: if the extra ``train`` is not installed.
    """
    found, seen = find_pictures(folder), {}
    labels = {name: label for label, name in enumerate(found.classes)}
    train = _read(found.train, labels, size, seen)
    return train, None if found.test is None else _read(found.test, labels, size, seen)


def read_picture(path: Path, size: int) -> Tensor:
    """Pixels of a picture in a folder, ``(3, size, size)`` uint8. Raises ValueError naming the file if it is none."""
    try:
        return decoded(path.read_bytes(), size, size, grey=False)[0]
    except ValueError as error:
        raise ValueError(f"data.folder: {path}: {error}") from error


def _read(
    files: Mapping[str, Sequence[Path]], labels: Mapping[str, int], size: int, seen: dict[bytes, Path]
) -> LabelledImages:
    images, classes = [], []
    for name, paths in files.items():
        for path in paths:
            pixels = read_picture(path, size)
            other = seen.setdefault(pixels.numpy().tobytes(), path)
            if other != path:
                raise ValueError(
                    f"data.folder: {other} and {path} are the same picture at {size} x {size} pixels; keep one"
                )
            images.append(pixels)
            classes.append(labels[name])
    return LabelledImages(torch.stack(images), torch.tensor(classes))
