"""Hashes of tensors: keys of rows of integers, and numbers drawn from them.

Integers are hashed rather than drawn, because the result for one image must not depend on the others. 64-bit
words are held as int64, whose arithmetic wraps. Shapes: n images, w words for each.
"""

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


def mix(words: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea & Flood 2014): a bijection of 64-bit words that scatters close ones."""
    words = (words ^ _shift(words, 30)) * _FIRST
    words = (words ^ _shift(words, 27)) * _SECOND
    return words ^ _shift(words, 31)


def _shift(words: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros, where ``>>`` would copy the sign."""
    return (words >> bits) & (2 ** (64 - bits) - 1)


def counter_words(n: int, seed: int) -> Tensor:
    """The first n words of the SplitMix64 sequence of a seed, (n,) int64; a shorter sequence is a prefix."""
    return mix(torch.arange(1, n + 1) * _GOLDEN + seed)


def keys_of(words: Tensor) -> Tensor:
    """A 64-bit key of each row of ``words``: (n, w) -> (n,) int64. Equal rows have equal keys.

    Different rows share a key with probability 2**-64 a pair; then one of them is needlessly taken for a repeat.
    """
    position = torch.arange(1, words.shape[1] + 1) * _GOLDEN
    return mix(mix(words + position).sum(1))


def uniform_of(keys: Tensor, seed: int) -> Tensor:
    """A number in [0, 1) for each key, fixed by key and seed: (n,) -> (n,) float64."""
    return _shift(mix(keys + seed), 11).double() * 2.0**-53


def first_occurrences(keys: Tensor) -> Tensor:
    """Positions, ascending, at which a key appears for the first time: (n,) -> (m,) int64."""
    ordered, position = keys.sort(stable=True)
    is_first = torch.ones(len(keys), dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return position[is_first].sort().values
