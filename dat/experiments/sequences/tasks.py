"""The tasks, each with one number that says how hard it is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch

from ...data.sequences import (
    Sequences,
    argsort,
    in_context_copying,
    linear_equation,
    mqar,
    parity,
    permutation_products,
    permutation_states,
    selective_copying,
)
from ...data.sequences.equations import VOCABULARY

RecallName = Literal["in-context-copying", "mqar", "selective-copying", "parity", "s3", "s5"]
"""Tasks whose sequences all have the same size."""
LengthName = Literal["argsort", "equation"]
"""Tasks that are trained on short sequences and measured by length."""
RECALL_TASKS: tuple[RecallName, ...] = get_args(RecallName)
LENGTH_TASKS: tuple[LengthName, ...] = get_args(LengthName)

OBJECTS = 48
"""Objects that are sorted, and names of places."""


@dataclass(frozen=True)
class SequenceTask:
    """A task.

    Attributes:
        size: what its number counts.
        length: tokens of a sequence of that size.
        vocab_size: tokens that there are.
        draw: ``draw(shortest, size, length, vocab_size)`` is the function that draws n of them by a generator; sizes
            are drawn from ``shortest`` on where the task knows several in one batch.
        fixed: whether the vocabulary follows from the task.
        least: smallest size.
    """

    size: str
    length: Callable[[int], int]
    vocab_size: int
    draw: Callable[[int, int, int, int], Callable[..., Sequences]]
    fixed: bool = False
    least: int = 1


TASKS: dict[str, SequenceTask] = {
    "in-context-copying": SequenceTask(
        "tokens of the longest repeated part",
        lambda size: 2 * size,
        64,
        lambda _, size, length, vocab: partial(in_context_copying, length=length, vocab_size=vocab),
        least=2,
    ),
    "mqar": SequenceTask(
        "pairs of key and value",
        lambda size: 8 * size,
        64,
        lambda _, size, length, vocab: partial(mqar, pairs=size, length=length, vocab_size=vocab),
    ),
    "selective-copying": SequenceTask(
        "letters to remember",
        lambda size: 6 * size,
        10,
        lambda _, size, length, vocab: partial(selective_copying, remembered=size, length=length, alphabet=vocab - 2),
    ),
    "parity": SequenceTask(
        "bits",
        lambda size: size,
        2,
        lambda _, size, length, vocab: partial(parity, length=length),
        fixed=True,
    ),
    **{
        f"s{degree}": SequenceTask(
            "permutations",
            lambda size: size,
            len(permutation_products(degree)),
            lambda _, size, length, vocab, degree=degree: partial(permutation_states, degree=degree, length=length),
            fixed=True,
        )
        for degree in (3, 5)
    },
    "argsort": SequenceTask(
        "objects",
        lambda size: 3 * size,
        2 * OBJECTS + 2,
        lambda shortest, size, *_: partial(argsort, shortest=shortest, longest=size, objects=OBJECTS, places=OBJECTS),
        fixed=True,
    ),
    "equation": SequenceTask(
        "constants",
        lambda size: size + 3,
        VOCABULARY,
        lambda shortest, size, *_: partial(linear_equation, shortest=shortest, longest=size),
        fixed=True,
    ),
}
"""Every task, in the order of tables."""


def draw_task(name: str, n: int, size: int, vocab_size: int, seed: int, *, shortest: int | None = None) -> Sequences:
    """Draw n sequences of a task, which depend on the arguments only.

    Args:
        shortest: of the sizes that are drawn; None takes ``size``.
    """
    task, generator = TASKS[name], torch.Generator().manual_seed(seed)
    return task.draw(shortest or size, size, task.length(size), vocab_size)(n, generator=generator)
