"""A page of examples: tasks from top to bottom, object sets side by side, one line of images for each class."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch.nn.functional as F

from dual_attention._base.files import replaced_atomically
from dual_attention._base.plots import empty_figure

from .arguments import to_integer
from .dataset import generate_images
from .objects import OBJECT_SETS, object_set
from .render import IMAGE_SIZE
from .tasks import TASKS, get_task

_GAP = 3  # pixels between two images of a line
_SIDE = 0.72  # inches of an image


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
    heights = [len(get_task(task).classes) for task in tasks]
    figure: Any = empty_figure((2.5 + _SIDE * per_class * len(objects), 1.3 * _SIDE * sum(heights) + 0.6 * len(tasks)))
    blocks = figure.subfigures(len(tasks), 1, squeeze=False, height_ratios=[0.5 + height for height in heights])
    for task, block in zip(tasks, blocks[:, 0], strict=True):
        _draw_task(block, task, objects, per_class, seed)
    path = Path(path)
    with replaced_atomically(path) as file:
        figure.savefig(file, format=path.suffix.removeprefix(".") or "png", dpi=150)
    return path


def _draw_task(block: Any, task: str, objects: Sequence[str], per_class: int, seed: int) -> None:
    """Draw the question of a task, and below it a line of images for each class, positive examples first."""
    described = get_task(task)
    n = len(described.classes)
    block.suptitle(f"{task}: {described.question}", x=0.01, y=1 - 0.3 / (n + 0.5), ha="left", fontsize=10)
    axes = block.subplots(n, len(objects), squeeze=False)
    block.subplots_adjust(left=0.22, right=0.99, top=1 - 0.85 / (n + 0.5), bottom=0.03, hspace=0.25, wspace=0.08)
    for row, label in enumerate(reversed(range(n))):
        axes[row, 0].set_ylabel(described.classes[label], rotation=0, ha="right", va="center", fontsize=9)
        for axis in axes[row]:
            axis.set(xticks=[], yticks=[], frame_on=False)
    for column, name in zip(axes.T, objects, strict=True):
        column[0].set_title(name, fontsize=9, fontweight="bold")
        if name not in described.objects:
            column[0].text(0.5, 0.5, "not defined", ha="center", fontsize=8)
            continue
        drawn = generate_images(task, per_class * n, objects=name, seed=seed)
        for axis, label in zip(column, reversed(range(n)), strict=True):
            rows = drawn.labels == label
            axis.imshow(F.pad(drawn.images[rows], (0, _GAP), value=255).permute(2, 0, 3, 1).flatten(1, 2).numpy())
            for image, pattern in enumerate(drawn.asked[rows].tolist() if described.asked else ()):
                middle = image * (IMAGE_SIZE + _GAP) + IMAGE_SIZE / 2
                axis.text(middle, IMAGE_SIZE + 7, f"{described.asked[pattern]}?", ha="center", fontsize=7)
