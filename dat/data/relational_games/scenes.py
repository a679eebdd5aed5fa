"""Scenes read back from images: what is in each of the nine cells."""

import torch
from torch import Tensor

from dual_attention._base.hashing import keys_of

from .objects import ObjectSet
from .render import CELL_SIZE, render
from .tasks import CELLS


def read_scenes(images: Tensor, objects: ObjectSet) -> Tensor:
    """The objects in the cells, the inverse of :func:`~.render.render`: (n, 3, 36, 36) uint8 -> (n, 9) int64.

    Raises:
        ValueError: naming the first image and cell with something else than one of ``objects``.
    """
    one_each = torch.zeros(len(objects) + 1, CELLS, dtype=torch.int64)
    one_each[:, 0] = torch.arange(len(objects) + 1)
    known, thing = keys_of_tiles(tiles(render(one_each, objects))[:, :1])[:, 0].sort()
    seen = keys_of_tiles(tiles(images)).flatten()
    place = torch.searchsorted(known, seen).clamp(max=len(known) - 1)
    wrong = (known[place] != seen).nonzero()[:, 0]
    if len(wrong):
        image, cell = divmod(int(wrong[0]), CELLS)
        raise ValueError(f"expected {objects.name} in the cells, got something else in cell {cell} of image {image}")
    return thing[place].view(-1, CELLS)


def occupied_cells(images: Tensor) -> Tensor:
    """The cells that hold anything: (n, 3, 36, 36) -> (n, 9) bool."""
    return tiles(images).flatten(2).amax(2) > 0


def tiles(images: Tensor) -> Tensor:
    """The nine cells of each image: (n, 3, 36, 36) uint8 -> (n, 9, 3, 12, 12)."""
    grid = images.view(-1, 3, 3, CELL_SIZE, 3, CELL_SIZE).permute(0, 2, 4, 1, 3, 5)
    return grid.reshape(-1, CELLS, 3, CELL_SIZE, CELL_SIZE)


def keys_of_tiles(cells: Tensor) -> Tensor:
    """A key of each cell or object, equal where all pixels are: (n, k, 3, 12, 12) uint8 -> (n, k) int64."""
    return keys_of(cells.flatten(0, 1).flatten(1).view(torch.int64)).view(cells.shape[:2])
