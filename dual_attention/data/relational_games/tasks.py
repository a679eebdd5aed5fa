"""Tasks: rules that put objects into cells.

A scene is (n, 9) int64, one entry for each cell of the 3 x 3 grid, row by row: 0 for an empty cell, otherwise the
object's integer plus one. Every rule takes the wanted labels, so classes can be balanced exactly.

How far the rules are known to agree with the official files: ``between`` and ``column_patterns`` were compared with
samples of them. All other rules are inferred from the descriptions in arXiv 1905.10307 and arXiv 2405.16727; those of
``occurs`` and ``xoccurs`` were moreover chosen, among several, because they come nearest to published accuracies.
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
        independent_share: probability that a non-matching object of ``occurs`` and ``xoccurs`` is an independent draw
            rather than a near miss.
    """

    objects: ObjectSet
    generator: torch.Generator
    independent_share: float = 0.5

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
    """Two random cells hold the same object (1), or an object and its ``diff`` (0). Inferred."""
    first = source.objects.draw(len(labels), source.generator)
    other = source.objects.diff(first, source.generator)
    second = torch.where(labels == 1, first, other)
    return place(_two_cells(source, len(labels)), torch.stack((first, second), 1))


def between(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """Three objects lie on a line and the outer two are the same (1), or that is not so (0). Checked.

    The middle object is free. Negatives lie on a line with the second outer object a ``diff`` of the first, or, for a
    quarter of the pentominoes and hexominoes and half of the stripes, hold three independent objects in random cells.
    """
    n, objects, generator = len(labels), source.objects, source.generator
    outer, middle = objects.draw(n, generator), objects.draw(n, generator)
    other = torch.where(labels == 1, outer, objects.diff(outer, generator))
    on_line = place(source.choice(torch.tensor(LINES), n), torch.stack((outer, middle, other), 1))

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
        other[independent] = objects.draw_outside(pool[independent], generator)
        other[~independent] = objects.distinct(pool[~independent], generator)
        pool = torch.cat((pool, other[:, None]), 1)
    top, others = pool[:, :1], pool[:, 1:]
    # Copies replace the objects placed last, so that no other object's pool holds more than the scene does.
    bottom = torch.where(torch.arange(3) >= 3 - matches[:, None], top, others)
    bottom_cells = source.choice(torch.tensor(list(permutations((6, 7, 8)))), n)
    return place(torch.cat((torch.ones(n, 1, dtype=torch.int64), bottom_cells), 1), torch.cat((top, bottom), 1))


def occurs(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """Exactly one (1) or none (0) of the three bottom objects is a copy of the top one. Inferred and fitted."""
    return _top_and_bottom(labels, source)


def xoccurs(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """Exactly one (1), or none or two, equally often (0), of the three bottom objects copy the top one.

    Inferred and fitted ("exclusive occurs").
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
    """Top and bottom row follow the same pattern, with fresh objects (1), or different patterns (0). Inferred.

    Whether the official files use the pattern AAA here is unknown; this rule does.
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
    """A random column follows the asked pattern (1) or another of the five (0). Checked."""
    return _asked_pattern(COLUMN_PATTERNS, torch.tensor(LINES[3:6]), labels, asked, source)


def row_patterns(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """A random row follows the asked pattern (1) or another of the five (0). Inferred, with the order of patterns."""
    return _asked_pattern(tuple(PATTERNS), torch.tensor(LINES[:3]), labels, asked, source)


def left_of(labels: Tensor, asked: Tensor, source: ObjectSource) -> Tensor:
    """Of two objects in different columns, the left one is the brighter (1) or the darker (0).

    Inferred: the objects are those of a negative of ``same`` whose luma differs; the official files have no such task.
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
    """Two objects in random cells share nothing (0), their colour (1), their shape (2) or both (3).

    Shape means the mask in its orientation. Inferred; the order of the classes in the official files is unknown.
    """
    first = source.objects.draw(len(labels), source.generator)
    second = source.objects.change(first, look=labels < 2, colour=labels % 2 == 0, generator=source.generator)
    return place(_two_cells(source, len(labels)), torch.stack((first, second), 1))


@dataclass(frozen=True)
class Task:
    """Definition of a task: its rule, its name in the official files, its question and its object sets."""

    rule: Rule
    official_name: str
    question: str
    classes: tuple[str, ...] = ("does not hold", "holds")
    objects: tuple[str, ...] = OBJECT_SETS
    asked: tuple[str, ...] = ()


_TASKS: dict[str, Task] = {
    "same": Task(same, "same", "Are the two objects the same?"),
    "occurs": Task(occurs, "occurs", "Does the top object occur in the bottom row?"),
    "xoccurs": Task(xoccurs, "xoccurs", "Does the top object occur exactly once in the bottom row?"),
    "between": Task(between, "1task_between", "Does an object lie between two that are the same?"),
    "match_pattern": Task(match_pattern, "1task_match_patt", "Do both rows follow the same pattern?"),
    "column_patterns": Task(
        column_patterns, "3task_col_patts", "Does the column follow the asked pattern?", asked=COLUMN_PATTERNS
    ),
    "row_patterns": Task(
        row_patterns, "5task_row_patts", "Does the row follow the asked pattern?", asked=tuple(PATTERNS)
    ),
    "left_of": Task(
        left_of,
        "left_of",
        "Is the left object brighter than the right one?",
        classes=("left is darker", "left is brighter"),
    ),
    "colour_and_or_shape": Task(
        colour_and_or_shape,
        "colour_and_or_shape",
        "What do the two objects share?",
        classes=("nothing", "colour", "shape", "colour and shape"),
        objects=("pentominoes", "hexominoes"),
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


def supported_objects(task: str) -> tuple[str, ...]:
    """The object sets that a task can be drawn with. Raises ValueError for an unknown task."""
    return get_task(task).objects
