"""Checks of what the caller passes, so that every message names the argument, what came and what was expected."""

import operator
from typing import SupportsIndex

from .objects import OBJECT_SETS
from .tasks import Task, get_task


def check_integer(name: str, value: object, *, minimum: int | None = None) -> int:
    """``value`` as an int.

    Raises:
        TypeError: it is not an integer (a bool is none).
        ValueError: it is below ``minimum``.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name}: received {value!r} of type {type(value).__name__}, expected an integer")
    integer = operator.index(value)
    if minimum is not None and integer < minimum:
        raise ValueError(f"{name}: received {integer}, expected at least {minimum}")
    return integer


def check_sizes(n_train: int, n_val: int, n_test: int) -> dict[str, int]:
    """The number of images of each split, by its name. Errors as in :func:`check_integer`."""
    return {
        "train": check_integer("n_train", n_train, minimum=0),
        "val": check_integer("n_val", n_val, minimum=0),
        "test": check_integer("n_test", n_test, minimum=0),
    }


def check_share(name: str, value: float) -> float:
    """``value`` as a probability. Raises ValueError when it is outside 0 .. 1."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: received {value!r}, expected a number between 0 and 1")
    return float(value)


def check_shares(shares: tuple[float, float, float]) -> None:
    """Raises ValueError unless ``shares`` are three positive numbers whose sum is at most 1."""
    if len(shares) != 3 or min(shares) <= 0 or sum(shares) > 1 + 1e-9:
        raise ValueError(f"shares: received {shares!r}, expected three positive numbers with a sum of at most 1")


def check_task_objects(task: str, objects: str) -> Task:
    """The task, if it can be drawn with ``objects``. Raises ValueError otherwise, or for an unknown name."""
    found = get_task(task)
    if objects not in OBJECT_SETS:
        raise ValueError(f"objects: received {objects!r}, expected one of {', '.join(OBJECT_SETS)}")
    if objects not in found.objects:
        raise ValueError(f"objects: task {task!r} has no {objects}, expected one of {', '.join(found.objects)}")
    return found
