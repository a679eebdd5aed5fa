"""Sorting of objects with an order (Altabaa et al. 2023, arXiv 2304.00195), by a causal model and in any length.

Shapes: n sequences, M objects of a sequence, at most ``longest``.
"""

import torch
from torch import Generator

from .common import UNSCORED, Sequences, blank, check_least, distinct


def argsort(n: int, *, shortest: int, longest: int, objects: int, places: int, generator: Generator) -> Sequences:
    """Objects, each after the name of its place, and then the names in the order of their objects.

    ::

        objects 1 to O in this order, names O + 1 to O + P, then the sign to sort, O + P + 1; 0 fills
        tokens   8  5   9  1  11  4   13   9 11      O = 6, P = 6, three objects
        targets  .  .   .  .   .  .    9  11  8

    The objects of a sequence are different, random ones of all. The names of their places are random ones of all, too,
    and ascend: so every name is met in training, whatever the lengths there. Of the answer's M positions all are
    scored, each given the right names before it.

    Args:
        shortest, longest: M is drawn between them, for each sequence. All have 3 ``longest`` tokens, fillers last.
        objects: O, at least ``longest``.
        places: P, at least ``longest``.

    Raises:
        ValueError: if that does not fit.
    """
    check_least("shortest", shortest, 1)
    check_least("longest", longest, shortest)
    check_least("objects", objects, longest, f" for {longest} different ones")
    check_least("places", places, longest, f" for {longest} objects")
    tokens, targets, sources = blank(n, 3 * longest)
    count = torch.randint(shortest, longest + 1, (n, 1), generator=generator)
    drawn = 1 + distinct(n, longest, objects, generator)
    names = objects + 1 + _ascending(distinct(n, longest, places, generator), count)
    rank = torch.arange(longest).expand(n, longest)
    held = rank < count
    order = drawn.masked_fill(~held, objects + 1).argsort(-1)
    answer = names.gather(1, order)
    both = torch.stack((names, drawn), -1).flatten(1)
    tokens[:, : 2 * longest] = both * held.repeat_interleave(2, -1)
    sign = 2 * count
    tokens.scatter_(1, sign, objects + places + 1)
    asked = torch.where(held, sign + rank, 0)  # place 0 is no answer's; it is put right below
    targets.scatter_(1, asked, answer)
    sources.scatter_(1, asked, 2 * order)
    targets[:, 0] = sources[:, 0] = UNSCORED
    # Each name but the last is read after it was asked for.
    read = torch.where(rank < count - 1, sign + 1 + rank, 0)
    first = tokens[:, 0].clone()
    tokens.scatter_(1, read, answer)
    tokens[:, 0] = first
    return Sequences(tokens, targets, sources)


def _ascending(numbers: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """The first ``count`` of the numbers of each row, sorted; what follows is of no use."""
    beyond = torch.arange(numbers.shape[1]) >= count
    return numbers.masked_fill(beyond, int(numbers.max()) + 1).sort(-1).values.masked_fill(beyond, 0)
