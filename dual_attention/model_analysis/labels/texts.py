"""Texts with labelled pairs of words, from a labeller."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Span = tuple[int, int]
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class LabelledText:
    """A text with labelled pairs of its words.

    Attributes:
        text: of any length.
        words: first character and end of each, ascending, not overlapping.
        pairs: numbers of two words that have a label, by label; without an order, the larger number first.
        groups: number of each word's group by label, -1 for a word that it says nothing about; by default all are of
            one group. Pairs count for a label if both words are of one group, so that a text says which pairs have a
            label, which do not, and about which it knows nothing.

    >>> text = label_same_words("a rose is a rose")
    >>> text.words, sorted(text.pairs["same word"])
    (((0, 1), (2, 6), (7, 9), (10, 11), (12, 16)), [(3, 0), (4, 1)])
    """

    text: str
    words: tuple[Span, ...]
    pairs: Mapping[str, frozenset[tuple[int, int]]]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        place = 0
        for start, stop in self.words:
            if not place <= start < stop <= len(self.text):
                raise ValueError(f"words: expected ascending spans within {len(self.text)}, got {start} to {stop}")
            place = stop
        for label, pairs in self.pairs.items():
            for pair in pairs:
                if not 0 <= pair[1] < pair[0] < len(self.words):
                    raise ValueError(f"pairs: expected two of {len(self.words)} words for {label!r}, got {pair}")
        for label, groups in self.groups.items():
            if len(groups) != len(self.words):
                raise ValueError(f"groups: expected {len(self.words)} of {label!r}, got {len(groups)}")

    def groups_of(self, label: str) -> tuple[int, ...]:
        """Group of each word for a label; ``ValueError`` if the text was not labelled with it."""
        if label not in self.pairs:
            raise ValueError(f"label: expected one of {', '.join(self.pairs) or 'none'}, got {label!r}")
        return self.groups.get(label, (0,) * len(self.words))


def find_words(text: str) -> tuple[Span, ...]:
    """Spans of what is written in letters.

    >>> find_words("Is a rose?")
    ((0, 2), (3, 4), (5, 9))
    """
    return tuple(match.span() for match in _WORD.finditer(text))


def unordered(pairs: Iterable[Sequence[int]]) -> frozenset[tuple[int, int]]:
    """Pairs of different numbers without their order, the larger first."""
    return frozenset((max(pair), min(pair)) for pair in pairs if pair[0] != pair[1])


def pairs_of_equal(values: Sequence[Any]) -> frozenset[tuple[int, int]]:
    """Pairs of places that hold equal values, other than None."""
    places: dict[Any, list[int]] = {}
    for place, value in enumerate(values):
        if value is not None:
            places.setdefault(value, []).append(place)
    return unordered((i, j) for found in places.values() for i in found for j in found if j < i)


def label_same_words(text: str) -> LabelledText:
    """Label pairs of the same word, ignoring case, as ``same word``.

    >>> sorted(label_same_words("a rose is a rose").pairs["same word"])
    [(3, 0), (4, 1)]
    """
    words = find_words(text)
    return LabelledText(text, words, {"same word": pairs_of_equal([text[a:b].casefold() for a, b in words])})
