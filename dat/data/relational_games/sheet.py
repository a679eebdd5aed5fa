"""A page of examples: tasks from top to bottom, object sets side by side, one line of images for each class."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor

from dual_attention._base.extras import require
from dual_attention._base.files import replaced_atomically

from .arguments import to_integer
from .dataset import GameImages, generate_images
from .objects import OBJECT_SETS, object_set
from .render import IMAGE_SIZE
from .tasks import TASKS, get_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK, _QUIET, _RULE = "#1b1f24", "#656d76", "#d0d7de"
_GAP = 3  # pixels between two images of a line


class _Page:
    """A figure addressed in inches from the top left corner: a column for each object set, a block for each task."""

    margin = 0.35
    header = 1.0
    names = 1.95  # of classes
    side = 0.72  # of an image
    column_gap = 0.35
    caption = 0.18
    line_gap = 0.08
    title = 0.52
    task_gap = 0.22

    def __init__(self, tasks: Sequence[str], columns: int, per_class: int) -> None:
        self.strip = self.side * (per_class * (IMAGE_SIZE + _GAP) - _GAP) / IMAGE_SIZE  # width of a line of images
        self.width = max(self.column(columns) - self.column_gap + self.margin, 7.0)
        self.height = self.header + sum(self.block(task) for task in tasks) + self.margin
        figure = require("matplotlib.figure", extra="train").Figure
        self.figure: Figure = figure(figsize=(self.width, self.height), facecolor="white")

    def column(self, index: int) -> float:
        """Left edge of a column."""
        return self.margin + self.names + index * (self.strip + self.column_gap)

    def line(self, captioned: bool) -> float:
        """Height of a line of images and the space below it."""
        return self.side + self.line_gap + (self.caption if captioned else 0)

    def block(self, task: str) -> float:
        """Height of a task."""
        described = get_task(task)
        return self.title + len(described.classes) * self.line(bool(described.asked)) + self.task_gap

    def text(self, x: float, y: float, text: str, *, size: float, weight: str = "normal", colour: str = _INK) -> None:
        where = x / self.width, 1 - y / self.height
        self.figure.text(*where, text, fontsize=size, fontweight=weight, color=colour, va="baseline")

    def rule(self, y: float) -> None:
        """A thin horizontal line across the page."""
        line, margin = require("matplotlib.lines", extra="train").Line2D, self.margin / self.width
        self.figure.add_artist(line([margin, 1 - margin], [1 - y / self.height] * 2, color=_RULE, linewidth=0.8))

    def images(self, x: float, y: float, images: Tensor) -> None:
        """A line of images, (k, 3, 36, 36) uint8, whose top left corner is at x, y."""
        line = F.pad(images, (0, _GAP), value=255).permute(2, 0, 3, 1).flatten(1, 2)[:, :-_GAP]
        corner = x / self.width, 1 - (y + self.side) / self.height
        axes = self.figure.add_axes((*corner, self.strip / self.width, self.side / self.height))
        axes.imshow(line.numpy(), interpolation="nearest", aspect="auto")
        axes.axis("off")


def contact_sheet(
    path: str | PathLike[str],
    *,
    tasks: Sequence[str] = TASKS,
    objects: Sequence[str] = OBJECT_SETS,
    per_class: int = 4,
    seed: int = 0,
) -> Path:
    """Write an image file that shows examples of every class of some tasks.

    Args:
        path: the file to write; its ending names the format, such as ``.png``.
        tasks: names of tasks, each a block of the page.
        objects: names of object sets, each a column; a task that does not support one leaves its place empty.
        per_class: examples of each class.
        seed: seed of ``generate_images``.

    Returns:
        The path of the file.

    Raises:
        ImportError: matplotlib is missing; ``pip install relational-attention[train]`` brings it.
        ValueError: an unknown name, no task, no object set, or per_class below 1.
        OSError: naming the file, of which nothing is left, if it cannot be written.
        TypeError: per_class or seed is not an integer, or a single string was given for several names.
    """
    per_class = to_integer("per_class", per_class, minimum=1)
    seed = to_integer("seed", seed)
    for name, chosen in (("tasks", tasks), ("objects", objects)):
        if isinstance(chosen, str):
            raise TypeError(f"{name}: expected a sequence of names, got the string {chosen!r}")
        if not chosen:
            raise ValueError(f"{name}: expected at least one name, got an empty sequence")
    for name in objects:
        object_set(name)
    page = _Page(tasks, len(objects), per_class)
    page.text(page.margin, 0.42, "Relational Games", size=15, weight="bold")
    for column, name in enumerate(objects):
        page.text(page.column(column), 0.84, name, size=9.5, weight="bold")
    top = page.header
    for task in tasks:
        _draw_task(page, top, task, objects, per_class, seed)
        top += page.block(task)
    path = Path(path)
    figure: Any = page.figure
    with replaced_atomically(path) as file:
        figure.savefig(file, format=path.suffix.removeprefix(".") or "png", dpi=150)
    return path


def _draw_task(page: _Page, top: float, task: str, objects: Sequence[str], per_class: int, seed: int) -> None:
    described = get_task(task)
    page.rule(top)
    page.text(page.margin, top + 0.3, task, size=11, weight="bold")
    page.text(page.column(0), top + 0.3, described.question, size=9, colour=_QUIET)
    drawn = {
        name: generate_images(task, per_class * len(described.classes), objects=name, seed=seed)
        for name in objects
        if name in described.objects
    }
    y = top + page.title
    # Positive examples come first, as a reader looks for what the relation is before what it is not.
    for label in reversed(range(len(described.classes))):
        page.text(page.margin, y + page.side / 2 + 0.04, described.classes[label], size=9)
        for column, name in enumerate(objects):
            if name in drawn:
                _draw_class(page, page.column(column), y, drawn[name], label, described.asked)
            elif label == 0:
                page.text(page.column(column), top + page.title + 0.12, "not defined", size=8, colour=_QUIET)
        y += page.line(bool(described.asked))


def _draw_class(page: _Page, x: float, y: float, drawn: GameImages, label: int, asked: tuple[str, ...]) -> None:
    rows = (drawn.labels == label).nonzero()[:, 0]
    page.images(x, y, drawn.images[rows])
    step = page.side * (IMAGE_SIZE + _GAP) / IMAGE_SIZE
    for index, pattern in enumerate(drawn.asked[rows].tolist() if asked else ()):
        page.text(x + index * step, y + page.side + 0.12, f"{asked[pattern]}?", size=7, colour=_QUIET)
