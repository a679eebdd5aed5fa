"""Checks of arguments, whose errors name the argument and say what was expected and what came."""

import operator
from typing import SupportsIndex

import torch
from torch import Tensor

from .objects import OBJECT_SETS
from .tasks import Task, get_task


def to_integer(name: str, value: object, *, minimum: int | None = None) -> int:
    """``value`` as an int; TypeError unless it is one (a bool is not), ValueError below ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name}: expected an integer, got {value!r} of type {type(value).__name__}")
    integer = operator.index(value)
    if minimum is not None and integer < minimum:
        raise ValueError(f"{name}: expected at least {minimum}, got {integer}")
    return integer


def split_sizes(n_train: int, n_val: int, n_test: int) -> dict[str, int]:
    """The number of images of each split, by its name. Errors as in :func:`to_integer`."""
    sizes = {"train": n_train, "val": n_val, "test": n_test}
    return {split: to_integer(f"n_{split}", size, minimum=0) for split, size in sizes.items()}


def share_of(task: Task, independent_share: float | None) -> float:
    """The share, or the task's default for None. Raises ValueError when it is outside 0 .. 1."""
    share = task.independent_share if independent_share is None else independent_share
    if not 0 <= share <= 1:
        raise ValueError(f"independent_share: expected a number between 0 and 1, got {share!r}")
    return float(share)


def check_layout(task: str, occupied: Tensor) -> None:
    """Check which cells hold objects, (n, 9) bool. Raises ValueError naming the first image that is not of the task."""
    layouts = torch.zeros(len(layouts_of := get_task(task).layouts), occupied.shape[1], dtype=torch.bool)
    for row, cells in enumerate(layouts_of):
        layouts[row, list(cells)] = True
    wrong = (occupied[:, None] != layouts).any(2).all(1).nonzero()[:, 0]
    if len(wrong):
        image, example = int(wrong[0]), ", ".join(map(str, layouts_of[0]))
        found = ", ".join(map(str, occupied[image].nonzero()[:, 0].tolist())) or "none"
        raise ValueError(
            f"expected images of task {task!r}, with objects in cells such as {example}, got objects in cells {found} "
            f"in image {image}; is this another task's file?"
        )


def check_task_objects(task: str, objects: str) -> Task:
    """Definition of a task that can be drawn with ``objects``. Raises ValueError otherwise, or for an unknown name."""
    found = get_task(task)
    if objects not in OBJECT_SETS:
        raise ValueError(f"objects: expected one of {', '.join(OBJECT_SETS)}, got {objects!r}")
    if objects not in found.objects:
        raise ValueError(f"objects: expected one of {', '.join(found.objects)} for task {task!r}, got {objects!r}")
    return found
