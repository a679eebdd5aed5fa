"""CIFAR-10 and CIFAR-100 from an official archive in a folder that the user names. Nothing is downloaded.

An archive is the one for Python: files of pickles, each a dict of ``data``, uint8 ``(n, 3072)`` with the three channels
one after the other, and labels. Its MD5 is compared with the one that the authors publish before anything of it is
read, and pickles are read without calling anything but what an array needs.
"""

import hashlib
import io
import pickle
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from dual_attention._base.extras import require

from .sets import IMAGE_SETS, LabelledImages

CifarName = Literal["cifar10", "cifar100"]
HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Archive:
    """An official archive: its name, its MD5, the files in it that hold the images to train and to test on, and the
    key of their labels.
    """

    file: str
    md5: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    label: bytes


ARCHIVES: dict[CifarName, Archive] = {
    "cifar10": Archive(
        file="cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        train=tuple(f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)),
        test=("cifar-10-batches-py/test_batch",),
        label=b"labels",
    ),
    "cifar100": Archive(
        file="cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        train=("cifar-100-python/train",),
        test=("cifar-100-python/test",),
        label=b"fine_labels",
    ),
}
"""The archive of each set, and the MD5 sums of its page, :data:`HOME`."""


def find_archive(name: CifarName, folder: str | None) -> tuple[Archive, Path]:
    """The archive of a set in a folder.

    Raises:
        ValueError: no folder is named.
        FileNotFoundError: it does not hold it.
    """
    archive = ARCHIVES[name]
    if folder is None:
        raise ValueError(f"data.folder: {name} needs the folder that holds {archive.file}, from {HOME}")
    path = Path(folder) / archive.file
    if path.is_file():
        return archive, path
    found = ", ".join(sorted(path.name for path in Path(folder).glob("*"))[:8]) or "nothing"
    raise FileNotFoundError(f"data.folder: expected {archive.file} in {folder}, from {HOME}; found {found}")


def cifar_images(name: CifarName, folder: str | None) -> tuple[LabelledImages, LabelledImages]:
    """The images to train and to test on, from the archive in ``folder``.

    Raises:
        ValueError, FileNotFoundError: as :func:`find_archive`.
        ValueError: naming the archive, if it is not the official one, cannot be read, or lacks something.
    """
    archive, path = find_archive(name, folder)
    check_md5(path, archive.md5)
    files = read_members(path, (*archive.train, *archive.test))
    about = IMAGE_SETS[name]
    train, test = (
        _joined(path, {file: files[file] for file in part}, archive, size, about.classes)
        for part, size in ((archive.train, about.train), (archive.test, about.test))
    )
    return train, test


def check_md5(path: Path, expected: str) -> None:
    """Compare a file with its MD5. Raises ValueError if it has another."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    if digest.hexdigest() != expected:
        raise ValueError(
            f"{path}: expected the official archive with the MD5 {expected}, got {path.stat().st_size:,} bytes with "
            f"{digest.hexdigest()}: incomplete, damaged or another file; {HOME} has it"
        )


def read_members(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """The contents of these files of an archive. Raises ValueError naming it, if it cannot be read or lacks one."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name in names else None
                if file is not None:
                    found[member.name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read ({error}); {HOME} has the official archive") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{path}: expected the official archive, found no {', '.join(missing)} in it")
    return found


def _joined(path: Path, files: Mapping[str, bytes], archive: Archive, size: int, classes: int) -> LabelledImages:
    """The images of several files, one after the other."""
    parts = []
    for name, data in files.items():
        try:
            parts.append(_from_pickle(data, archive))
        except (ValueError, KeyError, TypeError, EOFError, IndexError, pickle.UnpicklingError) as error:
            raise ValueError(f"{path}: {name}: expected images and labels, found none ({error})") from error
    images, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    if len(images) != size or len(labels) != size:
        counts = f"{len(images):,} and {len(labels):,}"
        raise ValueError(f"{path}: expected {size:,} images and as many labels in {', '.join(files)}, got {counts}")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        seen = f"{int(labels.min())} to {int(labels.max())}"
        raise ValueError(f"{path}: expected labels from 0 to {classes - 1} in {', '.join(files)}, got {seen}")
    return LabelledImages(images, labels)


def _from_pickle(data: bytes, archive: Archive) -> LabelledImages:
    values = _ArraysOnly(io.BytesIO(data), encoding="bytes").load()
    pixels = torch.as_tensor(values[b"data"])
    if pixels.dtype != torch.uint8 or pixels.dim() != 2 or pixels.shape[1] != PIXELS:
        raise ValueError(f"data: {pixels.dtype} {tuple(pixels.shape)}, not uint8 (n, {PIXELS})")
    labels = torch.as_tensor(list(values[archive.label]), dtype=torch.int64)
    return LabelledImages(pixels.view(-1, 3, 32, 32), labels)


class _ArraysOnly(pickle.Unpickler):
    """Reads a pickle of dicts, lists, texts, numbers and arrays; anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            numpy = require("numpy", extra="train")
            return numpy.ndarray.__reduce__(numpy.empty(0))[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(require("numpy", extra="train"), name)
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding: text.encode("latin-1")  # as Python 3 writes bytes into protocol 2
        raise pickle.UnpicklingError(f"it names {module}.{name}")
