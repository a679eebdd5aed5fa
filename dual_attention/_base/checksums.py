"""Checksums of the files of a folder, kept in the folder, so that damage is found before it is used.

``checksums.json`` holds the SHA-256 of each file by its path within the folder. Folders without one, of older versions,
are used as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from .files import named_in_errors, read_json_object, write_json

CHECKSUMS = "checksums.json"


def sha256_of(path: Path, *, size: int | None = None) -> str:
    """SHA-256 of a file, or of its first ``size`` bytes, in hexadecimal digits."""
    digest = hashlib.sha256()
    left = path.stat().st_size if size is None else size
    with named_in_errors(path), open(path, "rb") as file:
        while left > 0 and (part := file.read(min(left, 1 << 20))):
            digest.update(part)
            left -= len(part)
    return digest.hexdigest()


def checksums_of(folder: Path) -> dict[str, str]:
    """Checksums of all files in a folder and those below it, hidden ones left out."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder) for path in paths]
    return {name.as_posix(): sha256_of(folder / name) for name in names if not str(name).startswith(".")}


def write_checksums(folder: Path, checksums: Mapping[str, str]) -> None:
    """Write the checksums of a folder, in the place of those that it has."""
    write_json(folder / CHECKSUMS, dict(sorted(checksums.items())))


def read_checksums(folder: Path) -> dict[str, str]:
    """The checksums that a folder has; none, if it has no file of them."""
    path = folder / CHECKSUMS
    if not path.exists():
        return {}
    checksums = read_json_object(path)
    if not all(isinstance(value, str) for value in checksums.values()):
        raise ValueError(f"{path}: expected a checksum for each file, got {checksums}")
    return checksums


def damaged_files(folder: Path, *, ending: str = "") -> list[str]:
    """Names that have a checksum and whose files are missing, or not as they were written; those with an ending."""
    listed = ((name, digest) for name, digest in read_checksums(folder).items() if name.endswith(ending))
    return [name for name, digest in listed if not (folder / name).is_file() or sha256_of(folder / name) != digest]


def check_checksums(folder: Path, names: Iterable[str] | None = None) -> None:
    """Compare files of a folder with their checksums: those of these names, or by default all that have one.

    ``FileNotFoundError`` if a file is missing, ``ValueError`` if one is not as it was written.
    """
    checksums = read_checksums(folder)
    for name in checksums if names is None else (name for name in names if name in checksums):
        path = folder / name
        if not path.is_file():
            raise FileNotFoundError(f"{path}: missing, though {folder / CHECKSUMS} lists it")
        if sha256_of(path) != checksums[name]:
            raise ValueError(
                f"{path}: damaged or changed since it was written; restore it or, if you changed it on purpose, remove "
                f"its line from {folder / CHECKSUMS}"
            )
