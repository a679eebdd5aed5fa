"""Counts of what the images of four official files of Relational Games hold, which the generator must agree with.

``python -m tests.golden.count_official FOLDER`` writes ``relational_games_official.csv``, from the official files.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from dat.data.relational_games import load_official, read_scenes
from dat.data.relational_games.labels import pattern_of
from dat.data.relational_games.objects import ObjectSet, object_set
from dat.data.relational_games.tasks import CELLS, LINES, PATTERNS, get_task

TABLE = Path(__file__).with_name("relational_games_official.csv")
FILES = [(task, objects) for task in ("between", "column_patterns") for objects in ("hexominoes", "stripes")]
SHARED = ("nothing", "look", "colour", "both")

Counts = dict[tuple[str, str], dict[str, int]]
"""Numbers of images by statistic and condition (label and asked pattern), and by what was seen."""


def count(task: str, objects: str, scenes: Tensor, labels: Tensor, asked: Tensor) -> Counts:
    """Counts of scenes (n, 9) of three objects: their labels, the first object, the cells, what two of them share."""
    definition, drawn = get_task(task), object_set(objects)
    first = _things(scenes)[:, 0]
    found: Counts = {
        ("label", ""): _counted(labels, definition.classes.__getitem__),
        ("colour", ""): _counted(first % drawn.colours, lambda thing: _colour(drawn, thing)),
        ("look", ""): _counted(first // drawn.colours, lambda look: _look(drawn, look * drawn.colours)),
    }
    for label, meaning in enumerate(definition.classes):
        for question, pattern in enumerate(definition.asked or ("",)):
            given = f"{meaning}, asked {pattern}" if pattern else meaning
            some = scenes[(labels == label) & (asked == question)]
            found["cells", given] = _counted((some > 0).long() @ 2 ** torch.arange(CELLS), _cells)
            a, b, c = (things := _things(some)).unbind(1)
            if pattern:
                found["pattern", given] = _counted(pattern_of(things), list(PATTERNS).__getitem__)
                b = torch.where(a == b, c, b)  # the first object that is not the first of all
                a, b = a[a != b], b[a != b]
            else:
                on_line = (some > 0)[:, list(LINES)].all(2).any(1)
                a, b = a[on_line], c[on_line]
            share = (a // drawn.colours == b // drawn.colours).long() + 2 * (a % drawn.colours == b % drawn.colours)
            found["pair", given] = _counted(share, SHARED.__getitem__)
    return found


def _counted(values: Tensor, meaning: Callable[[int], str]) -> dict[str, int]:
    seen, counts = values.unique(return_counts=True)
    return {meaning(value): number for value, number in zip(seen.tolist(), counts.tolist(), strict=True)}


def _things(scenes: Tensor) -> Tensor:
    """The objects by their cells, (n, 3)."""
    return (scenes[scenes > 0] - 1).view(-1, 3)


def _cells(code: int) -> str:
    return " ".join(str(cell) for cell in range(CELLS) if code >> cell & 1)


def _colour(objects: ObjectSet, thing: int) -> str:
    """Colour of a sprite: of stripes the middle band's; the middle of other sprites may be empty."""
    sprite = objects.sprites[thing]
    return _levels(sprite.flatten(1).amax(1) if objects.near_misses else sprite[:, 4, 4])


def _look(objects: ObjectSet, thing: int) -> str:
    """The mask; of stripes the colour of the outer bands."""
    if not objects.near_misses:
        return _levels(objects.sprites[thing, :, 4, 0])
    mask = objects.sprites[thing].amax(0)[1::3, 1::3] > 0
    return "/".join("".join(".#"[square] for square in row) for row in mask.int().tolist())


def _levels(pixel: Tensor) -> str:
    return "-".join(map(str, pixel.tolist()))


def main(folder: str) -> None:
    """Write the table."""
    with open(TABLE, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["task", "objects", "statistic", "given", "counts"])
        for task, objects in FILES:
            games = load_official(folder, task, objects)
            scenes = read_scenes(games.images, object_set(objects))
            for (statistic, given), counts in count(task, objects, scenes, games.labels, games.asked).items():
                counted = "; ".join(f"{value}: {number}" for value, number in counts.items())
                writer.writerow([task, objects, statistic, given, counted])


if __name__ == "__main__":
    main(*sys.argv[1:])
