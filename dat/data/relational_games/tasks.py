"""Tasks: rules that put objects into cells.

A scene is (n, 9) int64, one entry for each cell of the 3 x 3 grid, row by row: 0 for an empty cell, otherwise the
object's integer plus one. Every rule takes the wanted labels, so classes can be balanced exactly.

The official generator is not public. Each rule says what it rests on: on genuine official files ("official file": the
samples of ``between`` and ``column_patterns`` in deepmind/deepmind-research, folder PrediNet), on words of the authors
of arXiv 1905.10307, 2405.16727 or 2310.03240 ("authors' text"; the last has the most precise, in its table of tasks),
on official images reproduced in papers and public notebooks ("public pictures"), or on nothing better than a choice of
ours ("choice"). Those of ``occurs`` and ``xoccurs`` were chosen, among several, because they come nearest to published
accuracies, which therefore confirm nothing of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import torch
from torch import Tensor

from .objects import OBJECT_SETS, ObjectSet

CELLS = 9

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
"""The eight straight lines of three cells: outer, middle, outer."""

DRAWN_LINES = (*LINES, LINES[1])
"""The lines as the official files draw them: the middle row is twice as frequent as each other line."""

PATTERNS: dict[str, tuple[int, int, int]] = {
    "AAA": (0, 0, 0),
    "AAB": (0, 0, 1),
    "ABA": (0, 1, 0),
    "ABB": (0, 1, 1),
    "ABC": (0, 1, 2),
}
"""The ways in which three objects can be equal or different."""

COLUMN_PATTERNS = ("ABA", "AAB", "ABB")
"""Patterns behind the values of ``asked`` of ``column_patterns``; ``row_patterns`` asks for all."""


@dataclass(frozen=True, eq=False)
class ObjectSource:
    """Objects and randomness that a rule draws from.

    Attributes:
        objects: the object set.
        generator: the only source of randomness.
        independent_share: probability that a non-matching object of ``same``, ``occurs`` and ``xoccurs`` is an
            independent draw rather than a near miss.
        others_differ: whether the objects of ``occurs`` and ``xoccurs`` that differ from the top one differ from each
            other, too.
    """

    objects: ObjectSet
    generator: torch.Generator
    independent_share: float
    others_differ: bool = True

    def integers(self, high: int, n: int) -> Tensor:
        """(n,) int64, uniform in 0 .. high - 1."""
        return torch.randint(high, (n,), generator=self.generator)

    def coin(self, probability: float, n: int) -> Tensor:
        """(n,) bool, each true with the given probability."""
        return torch.rand(n, dtype=torch.float64, generator=self.generator) < probability

    def choice(self, table: Tensor, n: int) -> Tensor:
        """n rows of ``table``, each uniform."""
        return table[self.integers(len(table), n)]


Rule = Callable[[Tensor, Tensor, ObjectSource], Tensor]
"""(labels (n,), asked (n,), source) -> scenes (n, 9)."""


def place(cells: Tensor, objects: Tensor) -> Tensor:
    """Put ``objects`` (n, k) into the ``cells`` (n, k) of empty grids: (n, 9)."""
    return torch.zeros(len(cells), CELLS, dtype=torch.int64).scatter_(1, cells, objects + 1)


def _two_cells(source: ObjectSource, n: int) -> Tensor:
    return source.choice(torch.tensor(list(permutations(range(CELLS), 2))), n)


def same(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """Two random cells hold the same object (1), or different ones (0): an independent draw, or a ``diff``.

    The relation rests on the authors' text. That negatives are near misses by default (``independent_share`` 0) is a
    choice; of eleven negatives in public pictures eight share neither colour nor mask, so it is probably too hard.
    """
    n, objects, generator = len(labels), source.objects, source.generator
    first = objects.draw(n, generator)
    other = objects.diff(first, generator)
    cells = _two_cells(source, n)
    if source.independent_share > 0:  # the default draws no more numbers, so that its images stay what they were
        independent = source.coin(source.independent_share, n)
        other = torch.where(independent, objects.draw_outside(first[:, None], generator), other)
    return place(cells, torch.stack((first, torch.where(labels == 1, first, other)), 1))


def between(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """Three objects lie on a line and the outer two are the same (1), or that is not so (0).

    Rests on the official files of hexominoes and stripes, with which its statistics agree; for pentominoes the same is
    assumed. The line is the middle row twice as often as each other one, the middle object is free. Negatives lie on a
    line with the second outer object a ``diff`` of the first, or, for a quarter of the pentominoes and hexominoes and
    half of the stripes, hold three independent objects in random cells.
    """
    n, objects, generator = len(labels), source.objects, source.generator
    outer, middle = objects.draw(n, generator), objects.draw(n, generator)
    other = torch.where(labels == 1, outer, objects.diff(outer, generator))
    on_line = place(source.choice(torch.tensor(DRAWN_LINES), n), torch.stack((outer, middle, other), 1))

    # Random cells lie on a line now and then; drawing the third object outside the first keeps the label true.
    other = objects.draw_outside(outer[:, None], generator)
    triples = torch.tensor(list(combinations(range(CELLS), 3)))
    free = objects.draw(n, generator)
    cells = source.choice(triples, n)
    is_line = (cells[:, None] == torch.tensor(LINES).sort(1).values).all(2).any(1)
    scattered = place(cells, torch.stack((outer, middle, torch.where(is_line, other, free)), 1))

    scatter = source.coin(0.25 if objects.near_misses else 0.5, n) & (labels == 0)
    return torch.where(scatter[:, None], scattered, on_line)


def _top_and_bottom(matches: Tensor, source: ObjectSource) -> Tensor:
    """An object in the top centre and three below, of which ``matches`` (n,) are copies of it, in random order."""
    n, objects, generator = len(matches), source.objects, source.generator
    pool = objects.draw(n, generator)[:, None]
    for _ in range(3):
        independent = source.coin(source.independent_share, n)
        other = torch.empty(n, dtype=torch.int64)
        avoided = pool if source.others_differ else pool[:, :1]
        other[independent] = objects.draw_outside(avoided[independent], generator)
        other[~independent] = objects.distinct(avoided[~independent], generator)
        pool = torch.cat((pool, other[:, None]), 1)
    top, others = pool[:, :1], pool[:, 1:]
    # Copies replace the objects placed last, so that no other object's pool holds more than the scene does.
    bottom = torch.where(torch.arange(3) >= 3 - matches[:, None], top, others)
    bottom_cells = source.choice(torch.tensor(list(permutations((6, 7, 8)))), n)
    return place(torch.cat((torch.ones(n, 1, dtype=torch.int64), bottom_cells), 1), torch.cat((top, bottom), 1))


def occurs(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """Exactly one (1) or none (0) of the three bottom objects is a copy of the top one.

    The authors' text says "at least one"; the four positives in public pictures have exactly one. The share of near
    misses among the others is a choice.
    """
    return _top_and_bottom(labels, source)


def xoccurs(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """Exactly one (1), or none or two, equally often (0), of the three bottom objects copy the top one.

    "Exactly one" is the authors' text. Negatives with two copies are a choice (both in public pictures have none). Of
    24 other objects in public pictures nine are near misses, which fits ``independent_share`` 1/2 best and excludes 0
    and 1.
    """
    none_or_two = 2 * source.integers(2, len(labels))
    return _top_and_bottom(torch.where(labels == 1, 1, none_or_two), source)


def _triplet(pattern: Tensor, source: ObjectSource) -> Tensor:
    """Three objects that follow the pattern with the given index into ``PATTERNS``: (n,) -> (n, 3)."""
    a = source.objects.draw(len(pattern), source.generator)
    b = source.objects.diff(a, source.generator)
    c = source.objects.distinct(torch.stack((a, b), 1), source.generator)
    return torch.stack((a, b, c), 1).gather(1, torch.tensor(list(PATTERNS.values()))[pattern])


def _another_pattern(pattern: Tensor, source: ObjectSource) -> Tensor:
    return (pattern + 1 + source.integers(len(PATTERNS) - 1, len(pattern))) % len(PATTERNS)


def match_pattern(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """Top and bottom row follow the same pattern, with fresh objects (1), or different patterns (0).

    Public pictures show the layout and the pattern AAA, which the authors' text lists, too. That patterns are uniform
    and differing objects a ``diff`` is a choice, as ``column_patterns`` has it.
    """
    n = len(labels)
    top = source.integers(len(PATTERNS), n)
    bottom = torch.where(labels == 1, top, _another_pattern(top, source))
    cells = torch.tensor((0, 1, 2, 6, 7, 8)).expand(n, -1)
    return place(cells, torch.cat((_triplet(top, source), _triplet(bottom, source)), 1))


def _asked_pattern(names: Sequence[str], cells: Tensor, labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    index = torch.tensor([list(PATTERNS).index(name) for name in names])[asked]
    shown = torch.where(labels == 1, index, _another_pattern(index, source))
    return place(source.choice(cells, len(labels)), _triplet(shown, source))


def column_patterns(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """A random column follows the asked pattern (1) or another of the five (0).

    Rests on the official files of hexominoes and stripes, with which its statistics agree.
    """
    return _asked_pattern(COLUMN_PATTERNS, torch.tensor(LINES[3:6]), labels, asked, source)


def row_patterns(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """A random row follows the asked pattern (1) or another of the five (0).

    The patterns are the authors' text; their order, and all else, is a choice, as ``column_patterns`` has it.
    """
    return _asked_pattern(tuple(PATTERNS), torch.tensor(LINES[:3]), labels, asked, source)


def left_of(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """Is the left one of two objects in different columns the brighter (1) or the darker (0)?

    A choice: the objects are a near miss whose luma differs. Others derived this task from ``same``; there is no
    official file.
    """
    n, objects = len(labels), source.objects
    first = objects.draw(n, source.generator)
    second = objects.diff(first, source.generator)
    while len(tie := (objects.brightness[first] == objects.brightness[second]).nonzero()[:, 0]):
        first[tie] = objects.draw(len(tie), source.generator)
        second[tie] = objects.diff(first[tie], source.generator)
    swap = (objects.brightness[first] > objects.brightness[second]) != (labels == 1)
    pair = torch.stack((torch.where(swap, second, first), torch.where(swap, first, second)), 1)
    left_right = [(a, b) for a, b in permutations(range(CELLS), 2) if a % 3 < b % 3]
    return place(source.choice(torch.tensor(left_right), n), pair)


def colour_and_or_shape(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """Two objects in random cells are the same (0), share only their colour (1), only their shape (2), or neither (3).

    Public pictures, 28 labelled official images, show the order of the classes, and that shape means the mask in its
    orientation. Equal frequency of the classes is a choice.
    """
    first = source.objects.draw(len(labels), source.generator)
    second = source.objects.change(first, look=labels % 2 == 1, colour=labels >= 2, generator=source.generator)
    return place(_two_cells(source, len(labels)), torch.stack((first, second), 1))


@dataclass(frozen=True)
class Task:
    """Definition of a task.

    Attributes:
        rule: draws its scenes.
        official_name: its name in the official files.
        question: what is asked.
        layouts: sets of cells that hold objects, each sorted.
        classes: meanings of the labels.
        objects: object sets that it can be drawn with.
        asked: patterns asked for.
        independent_share: default of :attr:`ObjectSource.independent_share`.
        generator: number of the rule that draws its images; it rises when they change.
    """

    rule: Rule
    official_name: str
    question: str
    layouts: tuple[tuple[int, ...], ...]
    classes: tuple[str, ...] = ("does not hold", "holds")
    objects: tuple[str, ...] = OBJECT_SETS
    asked: tuple[str, ...] = ()
    independent_share: float = 0.5
    generator: int = 1


_PAIRS = tuple(combinations(range(CELLS), 2))
_TOP_AND_BOTTOM = ((1, 6, 7, 8),)

_TASKS: dict[str, Task] = {
    "same": Task(
        same, "same", "Are the two objects the same?", _PAIRS, classes=("different", "same"), independent_share=0.0
    ),
    "occurs": Task(occurs, "occurs", "Does the top object occur in the bottom row?", _TOP_AND_BOTTOM),
    "xoccurs": Task(xoccurs, "xoccurs", "Does the top object occur exactly once in the bottom row?", _TOP_AND_BOTTOM),
    "between": Task(
        between,
        "1task_between",
        "Does an object lie between two that are the same?",
        tuple(combinations(range(CELLS), 3)),
        generator=2,
    ),
    "match_pattern": Task(
        match_pattern, "1task_match_patt", "Do both rows follow the same pattern?", ((0, 1, 2, 6, 7, 8),)
    ),
    "column_patterns": Task(
        column_patterns,
        "3task_col_patts",
        "Does the column follow the asked pattern?",
        LINES[3:6],
        asked=COLUMN_PATTERNS,
    ),
    "row_patterns": Task(
        row_patterns, "5task_row_patts", "Does the row follow the asked pattern?", LINES[:3], asked=tuple(PATTERNS)
    ),
    "left_of": Task(
        left_of,
        "left_of",
        "Is the left object brighter than the right one?",
        tuple(pair for pair in _PAIRS if pair[0] % 3 != pair[1] % 3),
        classes=("left is darker", "left is brighter"),
    ),
    "colour_and_or_shape": Task(
        colour_and_or_shape,
        "colour_and_or_shape",
        "What do the two objects share?",
        _PAIRS,
        classes=("colour and shape", "colour", "shape", "nothing"),
        objects=("pentominoes", "hexominoes"),
        generator=2,
    ),
}

TASKS: tuple[str, ...] = ("same", "occurs", "xoccurs", "between", "match_pattern")
"""The five tasks of Altabaa & Lafferty (2024)."""

EXTRA_TASKS: tuple[str, ...] = tuple(name for name in _TASKS if name not in TASKS)
"""Further tasks of Shanahan et al. (2020), and ``left_of``, which others derived from ``same``."""


def get_task(task: str) -> Task:
    """The description of a task. Raises ValueError for an unknown name."""
    if task not in _TASKS:
        raise ValueError(f"task: expected one of {', '.join(_TASKS)}, got {task!r}")
    return _TASKS[task]


def num_classes(task: str) -> int:
    """Number of classes: four for ``colour_and_or_shape``, otherwise two. Raises ValueError for an unknown task."""
    return len(get_task(task).classes)


def class_names(task: str) -> tuple[str, ...]:
    """Meanings of the labels, in their order. Raises ValueError for an unknown task."""
    return get_task(task).classes


def asked_patterns(task: str) -> tuple[str, ...]:
    """The pattern behind each value of ``asked``; empty for a task that asks one question only.

    Raises ValueError for an unknown task.
    """
    return get_task(task).asked


def generator_version(task: str) -> int:
    """Number of the rule that draws a task's images; results of different numbers are of different images.

    ``between`` has 2 since its middle row is drawn twice as often, ``colour_and_or_shape`` since its classes have the
    official order; the images of the others are those of the first release. Raises ValueError for an unknown task.
    """
    return get_task(task).generator


def supported_objects(task: str) -> tuple[str, ...]:
    """The object sets that a task can be drawn with. Raises ValueError for an unknown task."""
    return get_task(task).objects
