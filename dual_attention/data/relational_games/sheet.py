"""A page of examples: tasks from top to bottom, object sets side by side, one line of images for each class."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from .arguments import to_integer
from .dataset import RelationalGames, generate_images
from .objects import OBJECT_SETS, object_set
from .render import IMAGE_SIZE
from .tasks import TASKS, get_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK, _QUIET, _RULE = "#1b1f24", "#656d76", "#d0d7de"
_GAP = 3  # pixels between two images of a line


@dataclass(frozen=True)
class _Layout:
    """Lengths in inches, measured from the top left corner of the page."""

    columns: int
    per_class: int
    page_margin: float = 0.35
    header: float = 1.0
    names: float = 1.95
    image: float = 0.72
    column_gap: float = 0.35
    caption: float = 0.18
    line_gap: float = 0.08
    title: float = 0.52
    task_gap: float = 0.22

    @property
    def strip(self) -> float:
        """Width of a line of images."""
        return self.image * (self.per_class * (IMAGE_SIZE + _GAP) - _GAP) / IMAGE_SIZE

    @property
    def width(self) -> float:
        body = max(1, self.columns) * (self.strip + self.column_gap) - self.column_gap
        return max(2 * self.page_margin + self.names + body, 7.0)

    def column(self, index: int) -> float:
        """Left edge of a column."""
        return self.page_margin + self.names + index * (self.strip + self.column_gap)

    def line(self, captioned: bool) -> float:
        """Height of a line of images and the space below it."""
        return self.image + self.line_gap + (self.caption if captioned else 0)

    def block(self, task: str) -> float:
        """Height of a task."""
        described = get_task(task)
        return self.title + len(described.classes) * self.line(bool(described.asked)) + self.task_gap


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
        ImportError: matplotlib is missing; ``pip install dual-attention[train]`` brings it.
        ValueError: an unknown name, no task, no object set, or per_class below 1.
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
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("contact_sheet needs matplotlib: pip install dual-attention[train]") from error
    layout = _Layout(columns=len(objects), per_class=per_class)
    height = layout.header + sum(layout.block(task) for task in tasks) + layout.page_margin
    page = _Page(Figure(figsize=(layout.width, height), facecolor="white"), layout, height)
    page.text(layout.page_margin, 0.42, "Relational Games", size=15, weight="bold")
    for column, name in enumerate(objects):
        page.text(layout.column(column), 0.84, name, size=9.5, weight="bold")
    top = layout.header
    for task in tasks:
        _draw_task(page, top, task, objects, per_class, seed)
        top += layout.block(task)
    path = Path(path)
    page.figure.savefig(path, dpi=150)
    return path


@dataclass(frozen=True)
class _Page:
    """A figure addressed in inches from the top left corner."""

    figure: "Figure"
    layout: _Layout
    height: float

    def text(self, x: float, y: float, text: str, *, size: float, weight: str = "normal", colour: str = _INK) -> None:
        where = x / self.layout.width, 1 - y / self.height
        self.figure.text(*where, text, fontsize=size, fontweight=weight, color=colour, va="baseline")

    def rule(self, y: float) -> None:
        """A thin horizontal line across the page."""
        from matplotlib.lines import Line2D

        margin = self.layout.page_margin / self.layout.width
        ends = [margin, 1 - margin]
        self.figure.add_artist(Line2D(ends, [1 - y / self.height] * 2, color=_RULE, linewidth=0.8))

    def strip(self, x: float, y: float, images: Tensor) -> None:
        """A line of images, (k, 3, 36, 36) uint8, whose top left corner is at x, y."""
        line = F.pad(images, (0, _GAP), value=255).permute(2, 0, 3, 1).flatten(1, 2)[:, :-_GAP]
        image_height = self.layout.image
        box = (
            x / self.layout.width,
            1 - (y + image_height) / self.height,
            self.layout.strip / self.layout.width,
            image_height / self.height,
        )
        axes = self.figure.add_axes(box)
        axes.imshow(line.numpy(), interpolation="nearest", aspect="auto")
        axes.axis("off")


def _draw_task(page: _Page, top: float, task: str, objects: Sequence[str], per_class: int, seed: int) -> None:
    layout, described = page.layout, get_task(task)
    page.rule(top)
    page.text(layout.page_margin, top + 0.3, task, size=11, weight="bold")
    page.text(layout.column(0), top + 0.3, described.question, size=9, colour=_QUIET)
    drawn = {
        name: generate_images(task, per_class * len(described.classes), objects=name, seed=seed)
        for name in objects
        if name in described.objects
    }
    y = top + layout.title
    # Positive examples come first, as a reader looks for what the relation is before what it is not.
    for label in reversed(range(len(described.classes))):
        page.text(layout.page_margin, y + layout.image / 2 + 0.04, described.classes[label], size=9)
        for column, name in enumerate(objects):
            if name in drawn:
                _draw_class(page, layout.column(column), y, drawn[name], label, described.asked)
            elif label == 0:
                page.text(layout.column(column), top + layout.title + 0.12, "not defined", size=8, colour=_QUIET)
        y += layout.line(bool(described.asked))


def _draw_class(page: _Page, x: float, y: float, drawn: RelationalGames, label: int, asked: tuple[str, ...]) -> None:
    rows = (drawn.labels == label).nonzero()[:, 0]
    page.strip(x, y, drawn.images[rows])
    step = page.layout.image * (IMAGE_SIZE + _GAP) / IMAGE_SIZE
    for index, pattern in enumerate(drawn.asked[rows].tolist() if asked else ()):
        page.text(x + index * step, y + page.layout.image + 0.12, f"{asked[pattern]}?", size=7, colour=_QUIET)
