"""Texts with labelled pairs of words, from a labeller or from a file.

A file of labels has one text a line, as JSON:

    {"text": "The dog saw a cat.", "words": [[0, 3], [4, 7], [8, 11], [12, 13], [14, 17]],
     "pairs": {"same kind": [[4, 1]]}, "groups": {"same kind": [-1, 0, -1, -1, 0]}}

``words`` are spans of characters; without them, words are found by :func:`find_words`. ``pairs`` are of numbers of
words, in either order. ``groups`` are optional: pairs count for a label if both words are of one group, and words of
group -1 never do; by default all words are of one group. So a line says which pairs have a label, which do not, and
about which it knows nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..._base.files import json_text, replaced_atomically

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
            one group. Pairs count within groups.

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


def write_labels(path: Path, texts: Iterable[LabelledText]) -> None:
    """Write a file of labels, which :func:`read_labels` reads.

    >>> from pathlib import Path
    >>> write_labels(Path("labels.jsonl"), [label_same_words("a rose")])
    >>> len(Path("labels.jsonl").read_text().splitlines())
    1
    """
    with replaced_atomically(path) as file:
        for one in texts:
            pairs = {label: sorted(map(list, found)) for label, found in one.pairs.items()}
            line = {"text": one.text, "words": one.words, "pairs": pairs, "groups": dict(one.groups)}
            file.write((json_text(line) + "\n").encode())


def read_labels(path: Path) -> Iterator[LabelledText]:
    """Texts of a file of labels; ``ValueError`` naming file and line, if it is not what the module describes.

    >>> from pathlib import Path
    >>> write_labels(Path("labels.jsonl"), [label_same_words("a rose is a rose")])
    >>> [labelled.text for labelled in read_labels(Path("labels.jsonl"))]
    ['a rose is a rose']
    """
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield _read_line(json.loads(line))
                except (ValueError, TypeError, KeyError, IndexError) as error:
                    problem = f"has no {error}" if isinstance(error, KeyError) else str(error)
                    raise ValueError(f"{path}, line {number}: {problem}") from error


def _read_line(value: Any) -> LabelledText:
    if not isinstance(value, dict):
        raise TypeError(f"expected a JSON object, got {type(value).__name__}")
    text = value["text"]
    if not isinstance(text, str):
        raise TypeError(f"text: expected a string, got {type(text).__name__}")
    words = tuple((int(a), int(b)) for a, b in value["words"]) if "words" in value else find_words(text)
    pairs = {label: unordered(found) for label, found in value["pairs"].items()}
    groups = {label: tuple(map(int, found)) for label, found in value.get("groups", {}).items()}
    return LabelledText(text, words, pairs, groups)
