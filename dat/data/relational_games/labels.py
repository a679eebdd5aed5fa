"""Labels that the rules of the tasks give to images, by their pixels alone.

Shapes: n images, k objects in each, in the order of their cells. Objects are equal if all their pixels are.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .scenes import keys_of_tiles, occupied_cells, tiles
from .tasks import COLUMN_PATTERNS, LINES, PATTERNS

_BY_EQUALITIES = {0: "ABC", 1: "AAB", 2: "ABB", 4: "ABA", 7: "AAA"}
_PATTERN_INDEX = torch.tensor([list(PATTERNS).index(_BY_EQUALITIES.get(code, "AAA")) for code in range(8)])
_ASKED_OF_COLUMNS = torch.tensor([list(PATTERNS).index(name) for name in COLUMN_PATTERNS])


def pattern_of(things: Tensor) -> Tensor:
    """Index into ``PATTERNS`` of triplets: (n, 3) -> (n,)."""
    a, b, c = things.unbind(1)
    return _PATTERN_INDEX[(a == b).long() + 2 * (b == c).long() + 4 * (a == c).long()]


def labels_of(task: str, images: Tensor, asked: Tensor) -> Tensor | None:
    """The labels by the rule of a task, (n,) int64, of images (n, 3, 36, 36) uint8 with objects where it has them.

    None for the tasks of which that is not known: in the official files of ``row_patterns`` the order of the patterns
    asked is not, and of ``left_of`` there are none.
    """
    rule = _RULES.get(task)
    if rule is None:
        return None
    occupied = occupied_cells(images)
    objects = tiles(images)[occupied].unflatten(0, (len(images), -1))
    return rule(objects, occupied, asked).long()


def _between(objects: Tensor, occupied: Tensor, asked: Tensor) -> Tensor:
    keys, lines = keys_of_tiles(objects), list(LINES)
    return occupied[:, lines].all(2).any(1) & (keys[:, 0] == keys[:, 2])


def _copies(objects: Tensor) -> Tensor:
    keys = keys_of_tiles(objects)
    return (keys[:, 1:] == keys[:, :1]).sum(1)


def _match_pattern(objects: Tensor, occupied: Tensor, asked: Tensor) -> Tensor:
    keys = keys_of_tiles(objects)
    return pattern_of(keys[:, :3]) == pattern_of(keys[:, 3:])


def _shared(objects: Tensor, occupied: Tensor, asked: Tensor) -> Tensor:
    """0 for the same object, 1 for the same colour only, 2 for the same mask only, 3 for neither."""
    colours, masks = objects.amax((3, 4)), objects.amax(2).flatten(2) > 0
    other_mask, other_colour = ((of[:, 0] != of[:, 1]).any(1) for of in (masks, colours))
    return other_mask + 2 * other_colour


_RULES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "same": lambda objects, occupied, asked: _copies(objects),
    "occurs": lambda objects, occupied, asked: _copies(objects) > 0,
    "xoccurs": lambda objects, occupied, asked: _copies(objects) == 1,
    "between": _between,
    "match_pattern": _match_pattern,
    "column_patterns": lambda objects, occupied, asked: pattern_of(keys_of_tiles(objects)) == _ASKED_OF_COLUMNS[asked],
    "colour_and_or_shape": _shared,
}
"""Objects (n, k, 3, 12, 12), cells that hold any (n, 9) and what is asked (n,) to labels (n,)."""
