"""Multi-query associative recall (MQAR) as in Zoology (Arora et al. 2023, arXiv 2312.04927).

Shapes: n sequences, N length, K pairs, V vocabulary.
"""

import torch
from torch import Generator

from .common import Sequences, blank, check_least, distinct


def mqar(n: int, *, pairs: int, length: int, vocab_size: int, generator: Generator, power: float = 0.01) -> Sequences:
    """Keys with their values, and later the keys again: each time the value is to be predicted.

    ::

        keys 1 to V/2 - 1, values V/2 to V - 1, 0 fills
        tokens   3  9  1  7   0  0  1  0  3  0        K = 2, N = 10, V = 12
        targets  .  .  .  .   .  .  7  .  9  .

    The first 2K tokens are K pairs of different keys and different values. Every key is asked for once, in one of the
    (N - 2K) / 2 places 2K, 2K + 2, ... behind them. The g-th of these places is chosen with a probability in proportion
    to g^(power - 1), a power law as of gaps in text, without using a place twice. Only these positions are scored.
    The others hold 0, as in Zoology's published configurations; its code would by default fill them with random tokens.

    Args:
        pairs: K.
        length: N, even and at least 4K.
        vocab_size: V, even.
        power: 1 makes all places equally likely.

    Raises:
        ValueError: if the pairs do not fit the length or the vocabulary.
    """
    check_least("pairs", pairs, 1)
    check_least("length", length, 4 * pairs, f", twice the {pairs} pairs and as much again for queries")
    check_least("vocab_size", vocab_size, 2 * (pairs + 1), f" for {pairs} pairs")
    for name, value in (("length", length), ("vocab_size", vocab_size)):
        if value % 2:
            raise ValueError(f"{name}: expected an even number, got {value}")
    half, told = vocab_size // 2, 2 * pairs
    tokens, targets, sources = blank(n, length)
    keys = 1 + distinct(n, pairs, half - 1, generator)
    values = half + distinct(n, pairs, half, generator)
    tokens[:, 0:told:2], tokens[:, 1:told:2] = keys, values
    places = (length - told) // 2
    likely = torch.arange(1, places + 1, dtype=torch.float64) ** (power - 1)
    chosen = torch.multinomial(likely.expand(n, places), pairs, generator=generator)
    asked = told + 2 * chosen
    tokens.scatter_(1, asked, keys)
    targets.scatter_(1, asked, values)
    sources.scatter_(1, asked, torch.arange(1, told, 2).expand(n, pairs))
    return Sequences(tokens, targets, sources)
