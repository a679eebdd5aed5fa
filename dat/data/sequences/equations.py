"""Linear equations in one unknown, number by number, with as many terms as one likes.

Shapes: n sequences, K constants, at most ``longest``.
"""

import torch
from torch import Generator, Tensor

from .common import Sequences, blank, check_least

LARGEST = 9
"""Largest absolute value of the unknown and of constants."""
FACTORS = (1, 2, 3)
"""Factors of the unknown."""
FARTHEST = 20
"""Largest right side, in absolute value."""
NUMBERS = 2 * FARTHEST + 1
VOCABULARY = 1 + NUMBERS + len(FACTORS) + 1
"""A filler, numbers, the unknown with its factors, and the sign of equality."""
EQUALS = VOCABULARY - 1


def number_token(number: Tensor) -> Tensor:
    """Token of a number from -20 to 20."""
    return number + FARTHEST + 1


def linear_equation(n: int, *, shortest: int, longest: int, generator: Generator) -> Sequences:
    """Sums of constants and one multiple of the unknown, and what they equal: the unknown is to be predicted.

    ::

        tokens   3   2x  -5   =  -8      3 + 2x - 5 = -8
        targets  .   .    .   .  -3

    There are K constants from -9 to 9 without 0, the multiple of the unknown (one, two or three times) stands anywhere
    among them, and the unknown is -9 to 9. Equations whose right side exceeds 20 are drawn again, so long ones have the
    same numbers as short ones. Only the last token is scored.

    Args:
        shortest, longest: K is drawn between them, for each sequence. Sequences have ``longest`` + 3 tokens, fillers
            last.

    Raises:
        ValueError: if that does not fit.
    """
    check_least("shortest", shortest, 1)
    check_least("longest", longest, shortest)
    count = torch.randint(shortest, longest + 1, (n, 1), generator=generator)
    held = torch.arange(longest) < count
    constants, factor, unknown = (torch.zeros(n, width, dtype=torch.int64) for width in (longest, 1, 1))
    left = torch.arange(n)
    while len(left):
        size = (len(left), longest)
        signs = 2 * torch.randint(2, size, generator=generator) - 1
        constants[left] = signs * torch.randint(1, LARGEST + 1, size, generator=generator) * held[left]
        factor[left] = torch.randint(len(FACTORS), (len(left), 1), generator=generator)
        unknown[left] = torch.randint(-LARGEST, LARGEST + 1, (len(left), 1), generator=generator)
        left = left[_right_side(constants, factor, unknown)[left, 0].abs() > FARTHEST]
    at = (torch.rand(n, 1, generator=generator) * (count + 1)).long()
    places = torch.arange(longest).expand(n, longest)
    tokens, targets, sources = blank(n, longest + 3)
    # Fillers of the shorter ones are written first and then written over.
    tokens.scatter_(1, places + (places >= at), number_token(constants) * held)
    tokens.scatter_(1, at, factor + NUMBERS + 1)
    tokens.scatter_(1, count + 1, EQUALS)
    tokens.scatter_(1, count + 2, number_token(_right_side(constants, factor, unknown)))
    targets.scatter_(1, count + 2, number_token(unknown))
    return Sequences(tokens, targets, sources)


def _right_side(constants: Tensor, factor: Tensor, unknown: Tensor) -> Tensor:
    return torch.tensor(FACTORS)[factor] * unknown + constants.sum(-1, keepdim=True)
