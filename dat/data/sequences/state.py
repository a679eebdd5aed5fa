"""State tracking: what is the state after each step? Parity, and products of permutations (Merrill et al. 2024,
arXiv 2404.08819).

Shapes: n sequences, N length.
"""

from functools import lru_cache
from itertools import permutations

import torch
from torch import Generator, Tensor

from .common import Sequences, blank, check_least


def parity(n: int, *, length: int, generator: Generator) -> Sequences:
    """Random bits; at each position, whether the ones so far, this one included, are odd in number. All are scored."""
    check_least("length", length, 1)
    bits = torch.randint(2, (n, length), generator=generator)
    return Sequences(bits, bits.cumsum(1) % 2, blank(n, length).sources)


@lru_cache(maxsize=8)
def permutation_products(degree: int) -> Tensor:
    """The number of the permutation "first b, then a" for each a, b: integers ``(degree!, degree!)``.

    Permutations are numbered in lexicographic order, and the number 0 leaves everything in place.
    """
    elements = list(permutations(range(degree)))
    numbers = {element: number for number, element in enumerate(elements)}
    rows = [[numbers[tuple(a[place] for place in b)] for b in elements] for a in elements]
    return torch.tensor(rows)


def permutation_states(n: int, *, degree: int, length: int, generator: Generator) -> Sequences:
    """Random permutations of ``degree`` things; at each position, the product of all so far: the word problem of S_n.

    A token is the number of a permutation, see :func:`permutation_products`, and so is a target. All positions are
    scored. From degree 5 on the group is not solvable and its word problem is complete for NC1. A Transformer, whose
    depth does not grow with the length, can then solve it at all lengths only if TC0 = NC1.

    Raises:
        ValueError: if the degree is not 2 to 6.
    """
    check_least("length", length, 1)
    if not 2 <= degree <= 6:
        raise ValueError(f"degree: expected 2 to 6, got {degree}")
    products = permutation_products(degree)
    tokens = torch.randint(len(products), (n, length), generator=generator)
    states = [tokens[:, 0]]
    for place in range(1, length):
        states.append(products[tokens[:, place], states[-1]])
    return Sequences(tokens, torch.stack(states, 1), blank(n, length).sources)
