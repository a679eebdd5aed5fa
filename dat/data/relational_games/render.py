"""From scenes to pixels.

An image is 36 x 36: nine cells of 12 x 12 on black. An object fills rows and columns 1 .. 9 of its cell, so a model
that cuts the image into 12 x 12 patches sees one cell in each.
"""

import torch
from torch import Tensor

from .objects import SPRITE_SIZE, ObjectSet

CELL_SIZE = 12
MARGIN = 1
IMAGE_SIZE = 36
_CHUNK = 2048


def render(scenes: Tensor, objects: ObjectSet) -> Tensor:
    """Draw scenes.

    Args:
        scenes: (n, 9) integers, each 0 for an empty cell or an object's integer plus one.
        objects: the object set that the integers refer to.

    Returns:
        (n, 3, 36, 36) uint8.
    """
    tiles = torch.zeros(len(objects) + 1, 3, CELL_SIZE, CELL_SIZE, dtype=torch.uint8)
    tiles[1:, :, MARGIN : MARGIN + SPRITE_SIZE, MARGIN : MARGIN + SPRITE_SIZE] = objects.sprites
    return render_tiles(scenes, tiles)


def render_tiles(scenes: Tensor, tiles: Tensor) -> Tensor:
    """Put tiles into cells.

    Args:
        scenes: (n, 9) integers, the tile of each cell.
        tiles: (t, 3, 12, 12) uint8; the first is that of empty cells.

    Returns:
        (n, 3, 36, 36) uint8.
    """
    images = torch.empty(len(scenes), 3, IMAGE_SIZE, IMAGE_SIZE, dtype=torch.uint8)
    grid = images.view(-1, 3, 3, CELL_SIZE, 3, CELL_SIZE)  # image, channel, row of cells, y, column of cells, x
    # A few thousand images at a time keeps the gathered tiles in cache and the memory near that of the result.
    for start in range(0, len(scenes), _CHUNK):
        part = scenes[start : start + _CHUNK].long()
        cells = tiles[part].view(-1, 3, 3, 3, CELL_SIZE, CELL_SIZE)  # image, row, column, channel, y, x
        grid[start : start + _CHUNK] = cells.permute(0, 3, 1, 4, 2, 5)
    return images
