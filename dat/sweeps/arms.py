"""Table of what arms were given: learning rates of their own, and what makes them match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..training.metrics import Row
from .experiment import MATCH, AnySwept
from .grid import Cell
from .results import LENGTHS, LR, OPERATIONS, SECONDS, WIDTH

COLUMNS = {
    LR: ("learning rate", "g"),
    "parameters": ("parameters", ",.0f"),
    WIDTH: ("feed-forward width", ",.0f"),
    OPERATIONS: ("operations a step", ".4g"),
    SECONDS: ("seconds a step", ".3g"),
    LENGTHS["steps"]: ("steps", ",.0f"),
    LENGTHS["epochs"]: ("epochs", ",.0f"),
}
"""Titles and formats of columns."""


def numbers_by_arm(
    experiment: AnySwept, given: Iterable[tuple[str, str, Mapping[str, Any]]]
) -> tuple[list[str], list[list[str]]]:
    """Titles and lines of a table with a line for each panel and arm, from panels, arms and numbers.

    Where the points of a panel differ, an entry is the range.
    """
    found: dict[tuple[str, str], dict[str, set[float]]] = {}
    for panel, arm, numbers in given:
        own = found.setdefault((panel, arm), {})
        for name in COLUMNS:
            if name in numbers:
                own.setdefault(name, set()).add(float(numbers[name]))
    names = [name for name in COLUMNS if any(name in own for own in found.values())]
    lines = [
        [
            *([panel] if panel else []),
            experiment.curve_axis.label(arm),
            *(_entry(name, own.get(name)) for name in names),
        ]
        for (panel, arm), own in found.items()
    ]
    head = [axis.name for axis in experiment.axes[:-1][-2:]]
    return [*head, *(COLUMNS[name][0] for name in names)], lines


def _entry(name: str, values: set[float] | None) -> str:
    if not values:
        return "–"
    ends = dict.fromkeys(format(value, COLUMNS[name][1]) for value in (min(values), max(values)))
    return " to ".join(ends)


def arms_text(experiment: AnySwept, rows: Sequence[Row]) -> str:
    """Table of arms as Markdown; an empty text if no arm was given anything."""
    if not any(LR in row or MATCH in row for row in rows):
        return ""
    curve = experiment.curve_axis
    ordered = sorted(rows, key=lambda row: curve.ordered(rows).index(row[curve.name]))
    head, lines = numbers_by_arm(experiment, ((experiment.panel(row), row[curve.name], row) for row in ordered))
    matched = sorted({row[MATCH] for row in rows if MATCH in row})
    title = f"## Arms, matched in {matched[0]}" if matched else "## Arms"
    table = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines)]
    return "\n".join([title, "", *table])


def given_lines(experiment: AnySwept, every: Sequence[Cell]) -> list[str]:
    """A line for each arm that is given something."""
    curve, panels = experiment.curve_axis.name, experiment.axes[:-2]
    given = [
        (str(cell[panels[-1].name]) if panels else "", cell[curve], dict(cell.given.numbers))
        for cell in every
        if cell.given.numbers
    ]
    head, lines = numbers_by_arm(experiment, given)
    start = len(experiment.axes[:-1][-2:])
    return [
        f"{' '.join(line[:start])}: "
        + ", ".join(f"{what} {x}" for what, x in zip(head[start:], line[start:], strict=True))
        for line in lines
    ]
