"""The tasks of the experiment, each with one number that says how hard it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Generator

from ...data.sequences import (
    Sequences,
    in_context_copying,
    mqar,
    parity,
    permutation_products,
    permutation_states,
    selective_copying,
)

TaskName = Literal["in-context-copying", "mqar", "selective-copying", "parity", "s3", "s5"]
TASK_NAMES: tuple[TaskName, ...] = get_args(TaskName)


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        size: what its number counts.
        length: tokens of a sequence of that size.
        vocab_size: tokens that there are.
        draw: ``draw(n, size, length, vocab_size, generator)``.
        fixed: whether the vocabulary follows from the task.
        least: smallest size.
    """

    size: str
    length: Callable[[int], int]
    vocab_size: int
    draw: Callable[[int, int, int, int, Generator], Sequences]
    fixed: bool = False
    least: int = 1


def _copying(n: int, size: int, length: int, vocab_size: int, generator: Generator) -> Sequences:
    return in_context_copying(n, length=length, vocab_size=vocab_size, generator=generator)


def _associations(n: int, size: int, length: int, vocab_size: int, generator: Generator) -> Sequences:
    return mqar(n, pairs=size, length=length, vocab_size=vocab_size, generator=generator)


def _selective(n: int, size: int, length: int, vocab_size: int, generator: Generator) -> Sequences:
    return selective_copying(n, remembered=size, length=length, alphabet=vocab_size - 2, generator=generator)


def _parity(n: int, size: int, length: int, vocab_size: int, generator: Generator) -> Sequences:
    return parity(n, length=length, generator=generator)


def _permutations(degree: int) -> Task:
    def draw(n: int, size: int, length: int, vocab_size: int, generator: Generator) -> Sequences:
        return permutation_states(n, degree=degree, length=length, generator=generator)

    return Task("permutations", lambda size: size, len(permutation_products(degree)), draw, fixed=True)


TASKS: dict[TaskName, Task] = {
    "in-context-copying": Task("tokens of the longest repeated part", lambda size: 2 * size, 64, _copying, least=2),
    "mqar": Task("pairs of key and value", lambda size: 8 * size, 64, _associations),
    "selective-copying": Task("letters to remember", lambda size: 6 * size, 10, _selective),
    "parity": Task("bits", lambda size: size, 2, _parity, fixed=True),
    "s3": _permutations(3),
    "s5": _permutations(5),
}
"""Every task, in the order of tables."""


def draw_task(name: TaskName, n: int, size: int, vocab_size: int, seed: int) -> Sequences:
    """Draw n sequences of a task, which depend on the arguments only."""
    task = TASKS[name]
    return task.draw(n, size, task.length(size), vocab_size, torch.Generator().manual_seed(seed))
