"""Copying: of scattered tokens (Gu & Dao 2023, arXiv 2312.00752), and of what has come before (Olsson et al. 2022).

Shapes: n sequences, N length, M tokens to remember.
"""

import torch
from torch import Generator

from .common import Sequences, blank, check_least, distinct


def selective_copying(n: int, *, remembered: int, length: int, alphabet: int, generator: Generator) -> Sequences:
    """Tokens scattered among noise, and then markers, at which they are to be repeated in order.

    ::

        letters 1 to A, noise 0, marker A + 1
        tokens   0  2  0  0  3  0  1   4  4  4        M = 3, A = 3, N = 10
        targets  .  .  .  .  .  .  .   2  3  1

    The last M tokens are markers, and only they are scored. The letters stand at random places before them, each drawn
    from all of the alphabet. Markers are all alike: which letter is wanted follows from their number.

    Args:
        remembered: M.
        length: N, at least 2M.
        alphabet: A, so that there are A + 2 tokens.

    Raises:
        ValueError: if that does not fit.
    """
    check_least("remembered", remembered, 1)
    check_least("length", length, 2 * remembered, f", {remembered} letters and as many markers")
    check_least("alphabet", alphabet, 1)
    tokens, targets, sources = blank(n, length)
    letters = torch.randint(1, alphabet + 1, (n, remembered), generator=generator)
    places = distinct(n, remembered, length - remembered, generator).sort(-1).values
    tokens.scatter_(1, places, letters)
    tokens[:, -remembered:] = alphabet + 1
    targets[:, -remembered:] = letters
    sources[:, -remembered:] = places
    return Sequences(tokens, targets, sources)


def in_context_copying(n: int, *, length: int, vocab_size: int, generator: Generator) -> Sequences:
    """Random tokens of which the last ones repeat the ones before: what an induction head predicts.

    ::

        tokens   7  4  8  1  5   8  1  5      a repeated part of 3, N = 8
        targets  .  .  .  .  .   1  5  .

    The tokens before the repetition are all different, so what follows is told by the one earlier place of a token and
    by nothing else. The repeated part is of a random length from N/4 to N/2, drawn for each sequence: no fixed
    distance tells where to look. The repetition is scored except for its last token.

    Args:
        length: N, at least 4.
        vocab_size: at least N less N/4, or less 2.

    Raises:
        ValueError: if that does not fit.
    """
    shortest = max(2, length // 4)
    check_least("length", length, 2 * shortest, ", twice the shortest repeated part")
    check_least("vocab_size", vocab_size, length - shortest, ", since tokens before the repetition differ")
    part = torch.randint(shortest, length // 2 + 1, (n, 1), generator=generator)
    fresh = distinct(n, length - shortest, vocab_size, generator)
    places = torch.arange(length).expand(n, length)
    repeated = places >= length - part
    tokens = fresh.gather(1, torch.where(repeated, places - part, places))
    scored = repeated & (places < length - 1)
    _, targets, sources = blank(n, length)
    targets = torch.where(scored, tokens.roll(-1, 1), targets)
    sources = torch.where(scored, places - part + 1, sources)
    return Sequences(tokens, targets, sources)
