"""The objects that fill the cells: pentominoes, hexominoes and stripes, and ways to change one into another.

An object is one integer, ``look * colours + colour``. For pentominoes and hexominoes the look is a 3 x 3 mask in a
given orientation; for stripes it is the colour of the two outer bands and ``colour`` is that of the middle one. Two
objects are the same exactly when their integers are equal, which is when their pixels are.

Shapes: n scenes, k objects in a pool.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from torch import Tensor

OBJECT_SETS: tuple[str, ...] = ("pentominoes", "hexominoes", "stripes")
"""The training objects, then the two held-out sets."""

SPRITE_SIZE = 9
"""Side of an object in pixels: a 3 x 3 mask whose squares are 3 pixels wide."""

PENTOMINOES = {
    "F": ".##/##./.#.",
    "P": "##./##./#..",
    "T": "###/.#./.#.",
    "U": "#.#/###/...",
    "V": "#../#../###",
    "W": "#../##./.##",
    "X": ".#./###/.#.",
    "Z": "##./.#./.##",
}
"""The eight pentominoes that fit in a 3 x 3 square."""

HEXOMINOES = (
    "###/.##/.#.",
    "##./#../###",
    "..#/.##/###",
    "#.#/###/..#",
    ".#./###/.##",
    "###/###/...",
    "#../###/.##",
    "##./.##/##.",
)
"""The eight held-out hexominoes."""

PENTOMINO_LEVELS = (0, 128, 255)
HELD_OUT_LEVELS = (64, 144, 192)
LUMA = (299, 587, 114)


@dataclass(frozen=True, eq=False)
class ObjectSet:
    """One set of objects and the distribution they are drawn from. Build it with :func:`object_set`.

    Attributes:
        name: one of ``OBJECT_SETS``.
        sprites: (objects, 3, 9, 9) uint8, the pixels of each object.
        brightness: (objects,) int64, luma of the object's mean colour in arbitrary units.
        colours: number of colours.
        slots: (s,) int64, equally likely draws of a look, sorted; a look that several rotations and mirrorings of
            its base shape produce fills several slots, so looks are not uniform.
        first_slot: (looks,) int64, where a look's slots begin.
        slot_count: (looks,) int64, how many slots it fills.
        near_misses: whether :meth:`diff` may keep the look or the colour (not so for stripes).
    """

    name: str
    sprites: Tensor
    brightness: Tensor
    colours: int
    slots: Tensor
    first_slot: Tensor
    slot_count: Tensor
    near_misses: bool

    def __len__(self) -> int:
        return self.sprites.shape[0]

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """n independent objects, (n,) int64."""
        look = self.slots[torch.randint(len(self.slots), (n,), generator=generator)]
        return look * self.colours + torch.randint(self.colours, (n,), generator=generator)

    def draw_outside(self, pool: Tensor, generator: torch.Generator) -> Tensor:
        """For each row of ``pool`` (n, k), an independent object that is not in it, (n,) int64."""
        return _until_outside(pool, lambda pool: self.draw(len(pool), generator))

    def change(self, objects: Tensor, look: Tensor, colour: Tensor, generator: torch.Generator) -> Tensor:
        """Redraw the look where ``look`` holds and the colour where ``colour`` holds, each until it differs.

        All arguments and the result have shape (n,). A conditional draw needs no retries: the slots (or colours) other
        than the present ones are contiguous on a circle.
        """
        old_look, old_colour = objects // self.colours, objects % self.colours
        count = self.slot_count[old_look]
        step = (torch.rand(len(objects), dtype=torch.float64, generator=generator) * (len(self.slots) - count)).long()
        new_look = self.slots[(self.first_slot[old_look] + count + step) % len(self.slots)]
        step = torch.randint(1, self.colours, (len(objects),), generator=generator)
        new_colour = (old_colour + step) % self.colours
        return torch.where(look, new_look, old_look) * self.colours + torch.where(colour, new_colour, old_colour)

    def diff(self, objects: Tensor, generator: torch.Generator) -> Tensor:
        """An object that differs from each given one, (n,) -> (n,).

        Pentominoes and hexominoes change their colour only, their look only, or both, each with probability 1/3, so
        two thirds of the results are near misses. Stripes are redrawn as a whole.
        """
        if not self.near_misses:
            return (objects + torch.randint(1, len(self), objects.shape, generator=generator)) % len(self)
        kind = torch.randint(3, objects.shape, generator=generator)
        return self.change(objects, look=kind != 0, colour=kind != 1, generator=generator)

    def distinct(self, pool: Tensor, generator: torch.Generator) -> Tensor:
        """For each row of ``pool`` (n, k), ``diff`` of one of its objects that is none of the others, (n,)."""

        def draw(pool: Tensor) -> Tensor:
            chosen = torch.randint(pool.shape[1], (len(pool), 1), generator=generator)
            return self.diff(pool.gather(1, chosen)[:, 0], generator)

        return _until_outside(pool, draw)


def _until_outside(pool: Tensor, draw: Callable[[Tensor], Tensor]) -> Tensor:
    """``draw(pool)``, an object for each row, drawn again for the rows that hold it."""
    drawn = draw(pool)
    while len(clash := (drawn[:, None] == pool).any(1).nonzero()[:, 0]):
        drawn[clash] = draw(pool[clash])
    return drawn


@cache
def object_set(name: str) -> ObjectSet:
    """The object set called ``name``. Raises ValueError unless it is in ``OBJECT_SETS``."""
    if name == "pentominoes":
        return _polyominoes(name, tuple(PENTOMINOES.values()), _palette(PENTOMINO_LEVELS))
    if name == "hexominoes":
        return _polyominoes(name, HEXOMINOES, _palette(HELD_OUT_LEVELS))
    if name == "stripes":
        return _stripes(name, _palette(HELD_OUT_LEVELS))
    raise ValueError(f"objects: expected one of {', '.join(OBJECT_SETS)}, got {name!r}")


def _palette(levels: Sequence[int]) -> Tensor:
    """All colours whose channels take the levels, less the darkest and the brightest grey: (25, 3) uint8."""
    colours = list(product(levels, repeat=3))[1:-1]
    return torch.tensor(colours, dtype=torch.uint8)


def _polyominoes(name: str, bases: Sequence[str], palette: Tensor) -> ObjectSet:
    drawings = torch.stack([mask for base in bases for mask in _orientations(base)])
    codes = drawings.flatten(1).long() @ (2 ** torch.arange(9))
    _, look_of_drawing = codes.unique(return_inverse=True)
    slots = look_of_drawing.sort().values
    looks = int(slots[-1]) + 1
    masks = torch.empty(looks, 3, 3, dtype=torch.bool)
    masks[look_of_drawing] = drawings
    large = masks.repeat_interleave(3, 1).repeat_interleave(3, 2)
    sprites = large[:, None, None] * palette[None, :, :, None, None]
    luma = palette.long() @ torch.tensor(LUMA)
    return _assemble(name, sprites, luma.repeat(looks), slots, near_misses=True)


def _orientations(base: str) -> list[Tensor]:
    """The eight equally likely drawings of a base shape: the whole 3 x 3 square rotated, then perhaps mirrored."""
    mask = torch.tensor([[square == "#" for square in row] for row in base.split("/")])
    rotated = [torch.rot90(mask, turns) for turns in range(4)]
    return rotated + [turned.flip(1) for turned in rotated]


def _stripes(name: str, palette: Tensor) -> ObjectSet:
    count = len(palette)
    sprites = palette[:, None, :, None, None].expand(count, count, 3, SPRITE_SIZE, SPRITE_SIZE).clone()
    sprites[..., 3:6] = palette[None, :, :, None, None]
    luma = palette.long() @ torch.tensor(LUMA)
    return _assemble(name, sprites, (2 * luma[:, None] + luma).flatten(), torch.arange(count), near_misses=False)


def _assemble(name: str, sprites: Tensor, brightness: Tensor, slots: Tensor, *, near_misses: bool) -> ObjectSet:
    """``sprites`` is (looks, colours, 3, 9, 9)."""
    count = torch.bincount(slots)
    return ObjectSet(
        name=name,
        sprites=sprites.flatten(0, 1).contiguous(),
        brightness=brightness,
        colours=sprites.shape[1],
        slots=slots,
        first_slot=count.cumsum(0) - count,
        slot_count=count,
        near_misses=near_misses,
    )
