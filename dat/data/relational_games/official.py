"""The official files, from a folder that the user names. Nothing is downloaded.

A file ``{task}_{split}.npz`` holds ``images`` (n, 36, 36, 3), ``labels`` (n, 1) and ``tasks`` (n, 1), all int64. The
images of one file are 7.8 GB in that form, so they are read in pieces and kept as bytes.
"""

import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING

import torch
from torch import Tensor

from dual_attention._base.digests import stream_seed
from dual_attention._base.extras import require
from dual_attention._base.files import first_line
from dual_attention._base.hashing import keys_of
from dual_attention._base.words import shortened

from .arguments import check_layout, split_sizes, to_integer
from .dataset import GameImages
from .labels import labels_of
from .objects import OBJECT_SETS, object_set
from .render import IMAGE_SIZE
from .scenes import occupied_cells, read_scenes
from .splits import split_mask
from .tasks import get_task

if TYPE_CHECKING:
    import numpy as np

OFFICIAL_SPLITS = {
    "pentominoes": "pentos",
    "hexominoes": "hexos",
    "stripes": "stripes",
    "pentominoes_valid": "pentos_valid",
}
"""Our name of a split and the one in the file names."""

_CHUNK = 256


def load_official(
    folder: str | PathLike[str], task: str, split: str = "pentominoes", *, limit: int | None = None
) -> GameImages:
    """Read one official file, such as ``1task_between_pentos.npz``.

    Memory stays near the size of the result, 3,888 bytes an image. Labels are those of the file: whether it
    orders the patterns asked in ``row_patterns`` as we do is not known.

    Args:
        folder: contains the files.
        task: one of ``TASKS`` or ``EXTRA_TASKS``, by our names.
        split: "pentominoes", "hexominoes", "stripes" or "pentominoes_valid".
        limit: read only that many images from the beginning of the file.

    Raises:
        FileNotFoundError: the folder has no such file.
        ValueError: unknown task or split, a damaged file, a missing key, wrong shape, wrong dtype or value out of
            range in the file; or, in the first 256 images, objects where this task has none, labels that its rule
            would not give, or the objects of another split.
        ImportError: numpy is missing; ``pip install relational-attention[train]`` brings it.
        TypeError: limit is not an integer.
    """
    path = official_path(folder, task, split)
    if limit is not None:
        limit = to_integer("limit", limit, minimum=0)
    if not path.is_file():
        raise FileNotFoundError(f"folder: expected the official file {path.name} in {path.parent}, got none")
    require("numpy", extra="train")
    try:
        with zipfile.ZipFile(path) as archive:
            images = _read_images(archive, path, limit)
            labels = _read_column(archive, path, "labels", limit)
            patterns = len(get_task(task).asked)
            asked = _read_column(archive, path, "tasks", limit) if patterns else torch.zeros_like(labels)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the system; decompressors raise others
            raise
        raise ValueError(f"{path}: expected an npz file, but it cannot be read ({first_line(error)})") from error
    _check_range(path, "labels", labels, len(get_task(task).classes))
    _check_range(path, "tasks", asked, max(1, patterns))
    if not len(images) == len(labels) == len(asked):
        raise ValueError(
            f"{path}: expected equally many of each, got {len(images)} images, {len(labels)} labels and "
            f"{len(asked)} tasks"
        )
    try:
        _check_task(task, images[:_CHUNK], labels[:_CHUNK], asked[:_CHUNK])
        _check_objects(split.removesuffix("_valid"), images[:_CHUNK])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return GameImages(images, labels, asked)


def _check_task(task: str, images: Tensor, labels: Tensor, asked: Tensor) -> None:
    """Raises ValueError naming the first image that is not of the task, by its cells or its label."""
    check_layout(task, occupied_cells(images))
    expected = labels_of(task, images, asked) if len(images) else None
    wrong = torch.empty(0) if expected is None else (labels != expected).nonzero()[:, 0]
    if expected is not None and len(wrong):
        image, classes = int(wrong[0]), get_task(task).classes
        raise ValueError(
            f"expected images of task {task!r}, by whose rule the label of image {image} is {int(expected[image])} "
            f"({classes[expected[image]]}), got {int(labels[image])}; is this another task's file?"
        )


def _check_objects(objects: str, images: Tensor) -> None:
    """Raises ValueError if the images show other objects.

    Official hexominoes and stripes are ours to the pixel. Pentominoes are likely to be, but no file of them is public,
    so they are only told from the other two.
    """
    if objects != "pentominoes":
        read_scenes(images, object_set(objects))
        return
    for other in OBJECT_SETS:
        if len(images) and other != objects and _shows(images, other):
            raise ValueError(f"expected {objects} in the cells, got {other}; is this another split's file?")


def _shows(images: Tensor, objects: str) -> bool:
    try:
        read_scenes(images, object_set(objects))
    except ValueError:
        return False
    return True


def official_splits(
    folder: str | PathLike[str],
    task: str,
    n_train: int,
    *,
    n_val: int = 5000,
    n_test: int = 10000,
    seed: int,
    n_heldout: int | None = None,
) -> dict[str, GameImages]:
    """Split the official pentomino images, and add the held-out sets whose files are present.

    One permutation for each seed, without replacement, and no image occurs in two of train, val and test: copies of an
    image all belong to the same split. (The published script draws indices with replacement, so its splits overlap.)
    Copies within a split are kept, so each split follows the file's own distribution, and classes are as balanced as
    the file's. A smaller train split is a prefix of a larger one, and no split depends on the size of another.

    Args:
        folder, task: see ``load_official``.
        n_train, n_val, n_test, seed: see ``make_splits``.
        n_heldout: images from the beginning of each held-out file; None for all.

    Returns:
        ``{"train": ..., "val": ..., "test": ...}`` and "hexominoes" and "stripes" where their files are present.

    Raises:
        FileNotFoundError: the folder has no file of pentominoes.
        ValueError: see ``load_official``; also counts out of range or above what the file holds.
        TypeError: a count or the seed is not an integer.
    """
    sizes = split_sizes(n_train, n_val, n_test)
    if n_heldout is not None:
        n_heldout = to_integer("n_heldout", n_heldout, minimum=0)
    seed = to_integer("seed", seed)
    pool = load_official(folder, task, "pentominoes")
    keys = torch.cat([keys_of(piece.flatten(1).view(torch.int64)) for piece in pool.images.split(_CHUNK)])
    order = torch.randperm(len(keys), generator=torch.Generator().manual_seed(stream_seed("official", seed)))
    made: dict[str, GameImages] = {}
    for name, size in sizes.items():
        belongs = split_mask(keys, name, seed)
        rows = order[belongs[order]]
        if size > len(rows):
            raise ValueError(
                f"n_{name}: expected at most {len(rows)}, which is how many of the {len(keys)} images in "
                f"{official_path(folder, task, 'pentominoes')} belong to the {name} split, got {size}"
            )
        rows = rows[:size]
        made[name] = GameImages(pool.images[rows], pool.labels[rows], pool.asked[rows])
    for name in ("hexominoes", "stripes"):
        if official_path(folder, task, name).is_file():
            made[name] = load_official(folder, task, name, limit=n_heldout)
    return made


def official_path(folder: str | PathLike[str], task: str, split: str) -> Path:
    """Expected path of the official file of a task and split. Raises ValueError for an unknown task or split."""
    if split not in OFFICIAL_SPLITS:
        raise ValueError(f"split: expected one of {', '.join(OFFICIAL_SPLITS)}, got {split!r}")
    return Path(folder) / f"{get_task(task).official_name}_{OFFICIAL_SPLITS[split]}.npz"


def _read_images(archive: zipfile.ZipFile, path: Path, limit: int | None) -> Tensor:
    shape, pieces = _open_member(archive, path, "images", limit)
    if len(shape) != 4 or shape[1:] != (IMAGE_SIZE, IMAGE_SIZE, 3):
        raise ValueError(f"{path}: expected images of shape (n, 36, 36, 3), got {shape}")
    images = torch.empty(shape[0], 3, IMAGE_SIZE, IMAGE_SIZE, dtype=torch.uint8)
    start = 0
    for piece in pieces:
        low, high = int(piece.min(initial=0)), int(piece.max(initial=0))
        if low < 0 or high > 255:
            raise ValueError(f"{path}: expected images with values from 0 to 255, got {low} to {high}")
        images[start : start + len(piece)] = torch.from_numpy(piece.astype("uint8")).permute(0, 3, 1, 2)
        start += len(piece)
    return images


def _read_column(archive: zipfile.ZipFile, path: Path, key: str, limit: int | None) -> Tensor:
    shape, pieces = _open_member(archive, path, key, limit)
    if len(shape) not in (1, 2) or shape[1:] not in ((), (1,)):
        raise ValueError(f"{path}: expected {key} of shape (n, 1), got {shape}")
    return torch.cat([torch.from_numpy(piece.reshape(-1).astype("int64")) for piece in pieces])


def _check_range(path: Path, key: str, values: Tensor, count: int) -> None:
    if len(values) and not 0 <= int(values.min()) <= int(values.max()) < count:
        raise ValueError(
            f"{path}: expected {key} with values from 0 to {count - 1}, got {int(values.min())} to {int(values.max())}"
        )


def _open_member(
    archive: zipfile.ZipFile, path: Path, key: str, limit: int | None
) -> "tuple[tuple[int, ...], Iterator[np.ndarray]]":
    """Shape of a stored array, with at most ``limit`` rows, and its rows piece by piece."""
    if f"{key}.npy" not in archive.namelist():
        found = ", ".join(name.removesuffix(".npy") for name in archive.namelist())
        raise ValueError(f"{path}: expected the key {key!r}, got {found or 'none'}")
    with archive.open(f"{key}.npy") as stream:
        try:
            shape, by_column, dtype = _read_header(stream)
        except (ValueError, SyntaxError, tokenize.TokenError) as error:
            raise ValueError(f"{path}: expected {key} to be a stored array, but it cannot be read ({error})") from error
    if dtype.kind not in "iu" or by_column or not shape:
        raise ValueError(
            f"{path}: expected {key} to be an integer array in row-major order, got dtype {dtype}, shape {shape} and "
            f"{'column' if by_column else 'row'}-major order"
        )
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"{path}: expected {key} of a shape of integers, got {shortened(str(shape))}")
    if limit is not None:
        shape = (min(limit, shape[0]), *shape[1:])
    if math.prod(shape) * dtype.itemsize > (stored := archive.getinfo(f"{key}.npy").file_size):
        raise ValueError(f"{path}: expected {shortened(str(shape[0]))} rows of {key}, got {stored:,} bytes")
    return shape, _pieces(archive, path, key, shape, dtype)


def _read_header(stream: IO[bytes]) -> "tuple[tuple[int, ...], bool, np.dtype]":
    """Shape, whether in column-major order, and dtype; leaves the stream at the first value."""
    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    return npy.read_array_header_1_0(stream) if version == (1, 0) else npy.read_array_header_2_0(stream)


def _pieces(
    archive: zipfile.ZipFile, path: Path, key: str, shape: tuple[int, ...], dtype: "np.dtype"
) -> "Iterator[np.ndarray]":
    """At least one piece, perhaps empty."""
    import numpy as np

    row = math.prod(shape[1:]) * dtype.itemsize
    with archive.open(f"{key}.npy") as stream:
        _read_header(stream)
        for start in range(0, max(1, shape[0]), _CHUNK):
            rows = min(_CHUNK, shape[0] - start)
            data = stream.read(rows * row)
            if len(data) != rows * row:
                raise ValueError(f"{path}: expected {shape[0]} rows of {key}, got {start + len(data) // row}")
            yield np.frombuffer(data, dtype).reshape(rows, *shape[1:])
