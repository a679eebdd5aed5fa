"""Headers of the files of a sharded checkpoint: the block of a tensor that each holds.

The library that reads the parts takes a tensor for as large as its farthest part says, and leaves what no part covers
as it lay in memory. So they are compared with the tensors before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dual_attention._base.extras import require
from dual_attention._base.files import first_line
from dual_attention._base.words import shortened
from dual_attention.checkpoints.weights import DTYPES

from .weights_file import SAFETENSORS

SHARDS = "shards"
"""Folder with the parts of weights and optimiser that processes have written."""

PLACES, PLACE = "DCP_SHARDING_INFO", "saved_offsets"
"""Entry of a file's metadata, and of a tensor in it, where torch.distributed.checkpoint writes the place of a part."""


class StoredBlock(NamedTuple):
    """A block of a tensor.

    Attributes:
        place: index of its first number in the tensor.
        shape: of the block.
        dtype: as safetensors files name it.
        file: that holds it.
    """

    place: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    file: Path

    @property
    def end(self) -> tuple[int, ...]:
        """Index after its last number, in each dimension."""
        return tuple(first + n for first, n in zip(self.place, self.shape, strict=True))

    def overlaps(self, other: StoredBlock) -> bool:
        """Whether a number is in both."""
        return all(a < d and c < b for a, b, c, d in zip(self.place, self.end, other.place, other.end, strict=True))


def parts_in(folder: Path) -> dict[str, list[StoredBlock]]:
    """The parts of each tensor in the files of a folder; ValueError naming a file that is damaged."""
    library = require("safetensors", extra="train")
    found: dict[str, list[StoredBlock]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with library.safe_open(str(path), framework="pt") as file:
                places = json.loads((file.metadata() or {}).get(PLACES, "{}"))
                for name in file.keys():  # noqa: SIM118 (it is no dict)
                    shape, dtype = tuple(file.get_slice(name).get_shape()), file.get_slice(name).get_dtype()
                    place = places[name][PLACE] if places else [0] * len(shape)
                    if [type(first) for first in place] != [int] * len(shape) or min(place, default=0) < 0:
                        raise ValueError(f"the place of {name} is {shortened(str(place))}")
                    found.setdefault(name, []).append(StoredBlock(tuple(place), shape, dtype, path))
        except Exception as error:  # the library has an exception of its own for files
            raise ValueError(f"{path}: damaged or incomplete ({first_line(error)})") from error
    return found


def read_whole(folder: Path, *, meta: bool = False) -> dict[str, Tensor]:
    """The tensors in the files of a folder, each put together of its parts.

    Args:
        meta: only shapes and dtypes, as tensors on the meta device.

    Raises:
        ValueError: naming the folder or a file, if parts do not make up a tensor, each number once.
    """
    parts = parts_in(folder)
    whole: dict[str, Tensor] = {}
    for name, blocks in parts.items():
        shape = tuple(map(max, zip(*(block.end for block in blocks), strict=False)))
        fits = math.prod(shape) == sum(math.prod(block.shape) for block in blocks)  # so that a tensor can be made
        whole[name] = torch.empty(shape if fits else (0,), dtype=DTYPES[blocks[0].dtype], device="meta")
    if problems := misfits_of_parts(parts, whole):
        raise ValueError(f"{folder}: the parts of a tensor do not make it up: {'; '.join(problems[:8])}")
    if meta:
        return whole
    whole = {name: torch.empty_like(tensor, device="cpu") for name, tensor in whole.items()}
    for name, blocks in parts.items():
        for block in blocks:
            with require("safetensors", extra="train").safe_open(str(block.file), framework="pt") as file:
                where = tuple(slice(first, end) for first, end in zip(block.place, block.end, strict=True))
                whole[name][where] = file.get_tensor(name)
    return whole


def misfits_of_parts(parts: Mapping[str, Sequence[StoredBlock]], wanted: Mapping[str, Tensor]) -> list[str]:
    """Sentences about each tensor that is missing, unexpected, of another shape or dtype, or not covered just once."""
    problems = [f"{name} is missing" for name in wanted if name not in parts]
    problems += [f"{name} is unexpected" for name in parts if name not in wanted]
    for name in (name for name in wanted if name in parts):
        expected, found = _differing(parts[name], wanted[name])
        if expected != found:
            problems.append(f"{name}: expected {expected}, got {found}")
    return problems


def _differing(parts: Sequence[StoredBlock], tensor: Tensor) -> tuple[str, str]:
    """The expected and the actual extent of the parts of a tensor; equal if they are right."""
    shape, dtype, size = tuple(tensor.shape), SAFETENSORS[tensor.dtype], tensor.numel()
    if other := next((part for part in parts if len(part.shape) != len(shape)), None):
        return f"{len(shape)} dimensions", f"{len(other.shape)}"
    extent = tuple(max(part.end[dimension] for part in parts) for dimension in range(len(shape)))
    if extent != shape:
        return f"shape {shape}", f"{shortened(str(extent))}"
    if other := next((part for part in parts if part.dtype != dtype), None):
        return dtype, other.dtype
    held = sum(math.prod(part.shape) for part in parts)
    if held == size and _overlap(parts):
        return "parts apart from each other", "some that overlap"
    return f"{size:,} numbers", f"{held:,} numbers"


def _overlap(parts: Sequence[StoredBlock]) -> bool:
    ordered = sorted(part for part in parts if 0 not in part.shape)
    for number, part in enumerate(ordered):
        for other in ordered[number + 1 :]:
            if part.end[:1] and other.place[0] >= part.end[0]:
                break
            if part.overlaps(other):
                return True
    return False
