"""Statistics of images: facts by which a generator is compared with the official files.

A row counts images: ``{"task", "objects", "statistic", "given", "value", "count"}``. ``given`` is a condition (label
and asked pattern), ``value`` what was seen. Rows that are equal in the first four count independent
images, each once.
"""

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from .arguments import check_layout, check_task_objects
from .labels import pattern_of
from .objects import ObjectSet, object_set
from .official import load_official, official_path
from .scenes import read_scenes
from .tasks import CELLS, LINES, PATTERNS, Task, get_task

STATISTICS = {
    "label": "meaning of the label",
    "colour": "colour of the object in the first cell that holds one; of stripes, of its middle band",
    "look": "its mask in its orientation; of stripes, the colour of its outer bands",
    "cells": "the cells that hold objects",
    "pair": "what two objects share: the only two, the outer ones on a line, or the first of a pattern and the first "
    "other one in it",
    "copies": "how many of the objects below equal the one on top",
    "near misses": "how many of them share either its look or its colour",
    "pattern": "the pattern that is seen, or the upper and the lower one",
}
"""Everything that is counted, where it applies: the first three over all images, the others by label and question."""

SHARED = ("nothing", "look", "colour", "both")

Row = dict[str, Any]
Counted = tuple[str, Tensor, Sequence[str]]
"""A statistic's name, an index for each image (m,), and what the index means."""


def official_statistics(folder: str | PathLike[str], tasks: Sequence[str], objects: Sequence[str]) -> list[Row]:
    """Statistics of the official files of all ``tasks`` with all ``objects`` that they have.

    Raises:
        FileNotFoundError: naming every file that is missing.
        ValueError: unknown names; as :func:`~.official.load_official`; for images of other objects or another task.
    """
    for name in objects:
        object_set(name)
    wanted = [(task, name) for task in tasks for name in objects if name in get_task(task).objects]
    missing = [path.name for task, name in wanted if not (path := official_path(folder, task, name)).is_file()]
    if missing:
        raise FileNotFoundError(
            f"official_folder: expected {', '.join(missing)} in {folder}, found none of that name; name only the "
            "tasks and objects whose files are there"
        )
    rows: list[Row] = []
    for task, name in wanted:
        games = load_official(folder, task, name)
        try:
            scenes = read_scenes(games.images, object_set(name))
            rows += scene_statistics(task, name, scenes, games.labels, games.asked)
        except ValueError as error:
            raise ValueError(f"{official_path(folder, task, name)}: {error}") from error
    return rows


def scene_statistics(task: str, objects: str, scenes: Tensor, labels: Tensor, asked: Tensor) -> list[Row]:
    """Count what applies to the task in ``scenes`` (n, 9) with ``labels`` and ``asked`` (n,), int64.

    Raises:
        ValueError: unknown task or objects, or an image with objects in other cells than the task has them.
    """
    definition, drawn_from = check_task_objects(task, objects), object_set(objects)
    check_layout(task, scenes > 0)
    rows: list[Row] = []

    def count(given: str, statistics: Iterator[Counted]) -> None:
        for name, indices, meanings in statistics:
            values, counts = indices.unique(return_counts=True)
            for value, number in zip(values.tolist(), counts.tolist(), strict=True):
                columns = {"task": task, "objects": objects, "statistic": name, "given": given}
                rows.append({**columns, "value": meanings[value], "count": number})

    count("", _of_images(definition, drawn_from, scenes, labels))
    for label, meaning in enumerate(definition.classes):
        for question, pattern in enumerate(definition.asked or ("",)):
            given = f"{meaning}, asked {pattern}" if pattern else meaning
            count(given, _of_relations(definition, drawn_from, scenes[(labels == label) & (asked == question)]))
    return rows


def _of_images(definition: Task, objects: ObjectSet, scenes: Tensor, labels: Tensor) -> Iterator[Counted]:
    first = _things(scenes)[:, 0]
    yield "label", labels, definition.classes
    yield "colour", first % objects.colours, [_colour(objects, colour) for colour in range(objects.colours)]
    looks = range(0, len(objects), objects.colours)
    yield "look", first // objects.colours, [_look(objects, thing) for thing in looks]


def _of_relations(definition: Task, objects: ObjectSet, scenes: Tensor) -> Iterator[Counted]:
    occupied, things = scenes > 0, _things(scenes)
    yield "cells", occupied.long() @ 2 ** torch.arange(CELLS), [_cells(code) for code in range(2**CELLS)]
    number = things.shape[1]
    if number == 2:
        yield "pair", _shared(objects, things[:, 0], things[:, 1]), SHARED
    elif number == 4:
        shared = _shared(objects, things[:, :1], things[:, 1:])
        yield "copies", (shared == 3).sum(1), "0123"
        yield "near misses", ((shared == 1) | (shared == 2)).sum(1), "0123"
    elif number == 6:
        upper, lower = pattern_of(things[:, :3]), pattern_of(things[:, 3:])
        pairs = [f"{above} {below}" for above in PATTERNS for below in PATTERNS]
        yield "pattern", len(PATTERNS) * upper + lower, pairs
        yield "pair", _pair_in_pattern(objects, things[:, :3]), SHARED
    elif definition.asked:
        yield "pattern", pattern_of(things), list(PATTERNS)
        yield "pair", _pair_in_pattern(objects, things), SHARED
    else:
        on_line = (occupied[:, list(LINES)].all(2)).any(1)
        yield "pair", _shared(objects, things[on_line, 0], things[on_line, 2]), SHARED


def _things(scenes: Tensor) -> Tensor:
    """The objects of scenes with equally many, by their cells: (n, 9) -> (n, k)."""
    occupied = scenes > 0
    return (scenes[occupied] - 1).view(len(scenes), int(occupied[:1].sum()))


def _shared(objects: ObjectSet, one: Tensor, other: Tensor) -> Tensor:
    """Index into ``SHARED``, in the shape of the two."""
    colours = objects.colours
    return (one // colours == other // colours).long() + 2 * (one % colours == other % colours).long()


def _pair_in_pattern(objects: ObjectSet, things: Tensor) -> Tensor:
    """Index into ``SHARED`` of the first object and the first other one, in the triplets (n, 3) that have one: (m,)."""
    a, b, c = things.unbind(1)
    other = torch.where(a == b, c, b)
    return _shared(objects, a[a != other], other[a != other])


def _cells(code: int) -> str:
    return " ".join(str(cell) for cell in range(CELLS) if code >> cell & 1)


def _levels(pixel: Tensor) -> str:
    return "-".join(str(level) for level in pixel.tolist())


def _colour(objects: ObjectSet, thing: int) -> str:
    """The colour of an object, of stripes that of the middle band; the middle of its sprite may be empty."""
    if not objects.near_misses:
        return _levels(objects.sprites[thing, :, 4, 4])
    return _levels(objects.sprites[thing].flatten(1).amax(1))


def _look(objects: ObjectSet, thing: int) -> str:
    if not objects.near_misses:
        return _levels(objects.sprites[thing, :, 4, 0])
    mask = objects.sprites[thing].amax(0)[1::3, 1::3] > 0
    return "/".join("".join(".#"[square] for square in row) for row in mask.int().tolist())
