"""Tiny archives of CIFAR in the official layout."""

import hashlib
import io
import pickle
import struct
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from dat.data.images import IMAGE_SETS
from dat.data.images import cifar as official

TINY = {"train": 10, "test": 4}


class Python2(pickle._Pickler):
    """Writes texts and bytes as the official pickles have them, those of Python 2."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value):
        data = value if isinstance(value, bytes) else value.encode()
        self.write(pickle.BINSTRING + struct.pack("<i", len(data)) + data)

    dispatch[bytes] = dispatch[str] = save_string


def pickled(values) -> bytes:
    text = io.BytesIO()
    Python2(text, 2).dump(values)
    return text.getvalue().replace(b"numpy._core", b"numpy.core")


def pixels(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, official.PIXELS), dtype=np.uint8)


def contents(name: str) -> dict[str, bytes]:
    """Files of a tiny archive, labels 0, 1, 2 ... in each."""
    archive = official.ARCHIVES[name]
    found = {}
    for part, files in (("train", archive.train), ("test", archive.test)):
        for number, file in enumerate(files):
            n = TINY[part] // len(files)
            coarse = {b"coarse_labels": [0] * n} if name == "cifar100" else {}
            found[file] = pickled({b"data": pixels(n, seed=number), archive.label: [*range(n)], **coarse})
    return found


def write_archive(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def make_official(
    patch: pytest.MonkeyPatch,
    folder: Path,
    name: str,
    files: dict[str, bytes] | None = None,
    *,
    genuine: bool = True,
) -> Path:
    """Write an archive into a folder, and make it the official one of a set of that size; returns its path."""
    archive = official.ARCHIVES[name]
    path = folder / archive.file
    write_archive(path, contents(name) if files is None else files)
    if genuine:
        digest = hashlib.md5(path.read_bytes()).hexdigest()
        patch.setitem(official.ARCHIVES, name, replace(archive, md5=digest))
    patch.setitem(IMAGE_SETS, name, replace(IMAGE_SETS[name], **TINY))
    return path
