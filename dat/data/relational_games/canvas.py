"""Scenes without a grid: objects at free positions on a square canvas, at least one pixel apart.

An object in a higher row of cells lies higher, and in the same row of cells one further left lies further left: that is
what the rules of :data:`FREE_TASKS` read from the cells. Everything else about positions is drawn. Shapes: n scenes.
"""

import torch
from torch import Tensor

from dual_attention._base.hashing import counter_words, uniform_of

from .arguments import to_integer
from .objects import SPRITE_SIZE, ObjectSet
from .render import render

FREE_TASKS = ("same", "occurs", "xoccurs", "match_pattern", "colour_and_or_shape")
"""Tasks whose rules hold on a canvas; those of the others ask for objects in line, or in columns."""

STEP = SPRITE_SIZE + 1
SMALLEST_CANVAS = 3 * STEP - 1
"""Side of a canvas on which three objects fit beside each other."""
LARGEST_CANVAS = 256
"""Side of the largest; its image takes fifty times the memory of a grid of nine cells."""


def positions_on_canvas(scenes: Tensor, canvas: int, seed: int) -> tuple[Tensor, Tensor]:
    """Row and column of the upper left pixel of what is in each cell, (n, 9) int64 each, of no meaning if it is empty.

    Those of a scene follow from its cells, its number and the seed, so that positions of a prefix are a prefix.
    """
    n, occupied = len(scenes), scenes.view(-1, 3, 3) > 0
    drawn = uniform_of(counter_words(20 * n, seed), seed).view(n, 20)
    # Beside each other, k objects leave canvas + 1 - k STEP pixels, among which their sorted draws choose.
    order = (occupied.cumsum(2) - 1).clamp_min(0)
    sorted_draws = drawn[:, :9].view(n, 3, 3).masked_fill(~occupied, 1.0).sort(2).values.gather(2, order)
    room = canvas + 1 - STEP * occupied.sum(2, keepdim=True)
    columns = (sorted_draws * (room + 1)).long() + STEP * order
    # Rows of cells share the height likewise; each object is somewhere between the cuts around its row.
    used = occupied.any(2)
    number = used.sum(1, keepdim=True)
    cuts = torch.where(number == 3, drawn[:, 18:].sort(1).values, drawn[:, 18:])
    cuts = (cuts * (canvas + 2 - STEP * number)).long() + STEP * torch.tensor([1, 2])
    cuts = torch.where(number > torch.tensor([1, 2]), cuts, canvas + 1)
    cuts = torch.cat((torch.zeros(n, 1, dtype=torch.int64), cuts, torch.full((n, 1), canvas + 1)), 1)
    band = (used.cumsum(1) - 1).clamp_min(0)
    top, height = cuts.gather(1, band), cuts.diff(dim=1).gather(1, band)
    rows = top[..., None] + (drawn[:, 9:18].view(n, 3, 3) * (height - STEP + 1)[..., None]).long()
    return rows.flatten(1), columns.flatten(1)


def render_scenes(scenes: Tensor, objects: ObjectSet, canvas: int | None, seed: int) -> Tensor:
    """Draw scenes in the cells of a grid or, with the side of a canvas, at free positions: (n, 3, side, side) uint8."""
    if canvas is None:
        return render(scenes, objects)
    images = torch.zeros(len(scenes), 3, canvas, canvas, dtype=torch.uint8)
    rows, columns = positions_on_canvas(scenes, canvas, seed)
    side = torch.arange(SPRITE_SIZE)
    for cell in range(scenes.shape[1]):
        image = scenes[:, cell].nonzero()[:, 0]
        place = [(of[image, cell, None] + side) for of in (rows, columns)]
        sprites = objects.sprites[scenes[image, cell] - 1]
        images[image[:, None, None], :, place[0][:, :, None], place[1][:, None, :]] = sprites.permute(0, 2, 3, 1)
    return images


def check_canvas(task: str, canvas: int | None, name: str = "canvas") -> None:
    """Raise TypeError or ValueError, by that name, unless there is no canvas or the task can be drawn on it."""
    if canvas is None:
        return
    if not SMALLEST_CANVAS <= to_integer(name, canvas) <= LARGEST_CANVAS:
        expected = f"{SMALLEST_CANVAS} (three objects side by side) to {LARGEST_CANVAS} pixels"
        raise ValueError(f"{name}: expected {expected}, got {canvas}")
    if task not in FREE_TASKS:
        raise ValueError(
            f"{name}: expected null, or one of the tasks {', '.join(FREE_TASKS)}, got {canvas} with {task!r}"
        )
