"""Rules of one attribute along the rows of a matrix, and what they put into its last place.

Shapes: n grids of nine values, row by row; values are integers from 0 to ``values - 1``.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, permutations, product
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

RuleName = Literal["constant", "progression", "arithmetic", "distribution"]
RULES: tuple[RuleName, ...] = get_args(RuleName)
ORDERED: tuple[RuleName, ...] = ("progression", "arithmetic")
"""Rules that need an order of values."""
LEAST_VALUES, MOST_VALUES = 4, 12
"""Values of an attribute: with fewer, some rule has one answer only; of more, all grids are too many to be listed."""

Row = tuple[int, ...]


class FilledGrids(NamedTuple):
    """All grids of a rule that are clear without their last value, sorted by it.

    Attributes:
        grids: ``(n, 9)``.
        answers: last values that occur, ascending ``(k,)``.
        starts, counts: where the grids of each of them begin, and how many there are, ``(k,)``.
    """

    grids: Tensor
    answers: Tensor
    starts: Tensor
    counts: Tensor


def completions(context: Tensor, values: int) -> Tensor:
    """Last values that rules give eight ones ``(..., 8)``: ``(..., 5)``, -1 where a rule does not hold.

    Rules are constant, progression, sum, difference and distribution of three. They hold of the first two rows and of
    the beginning of the third, and what they give is a value.
    """
    a, b, c, d, e, f, g, h = context.unbind(-1)
    step = b - a
    same = (a == b) & (b == c) & (d == e) & (e == f) & (g == h)
    moved = (step != 0) & (c - b == step) & (e - d == step) & (f - e == step) & (h - g == step)
    first, second = torch.stack((a, b, c), -1), torch.stack((d, e, f), -1)
    latin = (a != b) & (b != c) & (a != c) & (first != second).all(-1) & (g != h)
    latin &= (first.sort(-1).values == second.sort(-1).values).all(-1)
    for mine, column in ((g, (a, d)), (h, (b, e))):
        latin &= (first == mine[..., None]).any(-1) & (mine != column[0]) & (mine != column[1])
    found = (
        (same, g),
        (moved, h + step),
        ((a + b == c) & (d + e == f), g + h),
        ((a - b == c) & (d - e == f), g - h),
        (latin, a + b + c - g - h),
    )
    parts = [torch.where(holds & (last >= 0) & (last < values), last, -1) for holds, last in found]
    return torch.stack(parts, -1)


def _families(rule: RuleName, values: int) -> list[list[Row]]:
    """Rows that may stand in one grid, in any order and number; of the other rule all of its grids, as one row."""
    within = range(values)
    if rule == "constant":
        return [[(v, v, v) for v in within]]
    if rule == "progression":
        steps = [step for step in range(-(values // 2), values // 2 + 1) if step]
        return [[(v, v + s, v + 2 * s) for v in within if 0 <= v + 2 * s < values] for s in steps]
    return [
        [(v, w, v + w) for v in within for w in within if v + w < values],
        [(v, w, v - w) for v in within for w in within if v >= w],
    ]


@lru_cache(maxsize=64)
def filled_grids(rule: RuleName, values: int, held_out: int, unseen: bool) -> FilledGrids:
    """Grids of a rule whose rows have no held-out value, or which all have one, if ``unseen``.

    The last ``held_out`` of the values are those. Grids to whose first eight values some rule gives another last value
    are left out.
    """
    if rule == "distribution":
        squares = [
            (*first, *second, *third)
            for chosen in combinations(range(values), 3)
            for first, second, third in product(permutations(chosen), repeat=3)
            if all(len({*column}) == 3 for column in zip(first, second, third, strict=True))
        ]
        grids = torch.tensor(squares, dtype=torch.int64).reshape(-1, 9)
    else:
        families = [torch.tensor(rows) for rows in _families(rule, values) if rows]
        places = [torch.cartesian_prod(*[torch.arange(len(rows))] * 3) for rows in families]
        grids = torch.cat([rows[place].flatten(1) for rows, place in zip(families, places, strict=True)])
    held = (grids >= values - held_out).unflatten(1, (3, 3))
    grids = grids[held.any(2).all(1) if unseen else ~held.flatten(1).any(1)]
    given = completions(grids[:, :8], values)
    grids = grids[((given == grids[:, 8:]) | (given == -1)).all(1)]
    grids = grids[grids[:, 8].argsort(stable=True)]
    answers, counts = grids[:, 8].unique(return_counts=True)
    return FilledGrids(grids, answers, counts.cumsum(0) - counts, counts)
