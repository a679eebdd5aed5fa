"""The tasks, each with one number that says how hard it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Generator

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
        draw: ``draw(n, shortest, size, length, vocab_size, generator)``; sizes are drawn from ``shortest`` on where the
            task knows several in one batch.
        fixed: whether the vocabulary follows from the task.
        least: smallest size.
    """

    size: str
    length: Callable[[int], int]
    vocab_size: int
    draw: Callable[[int, int, int, int, int, Generator], Sequences]
    fixed: bool = False
    least: int = 1


TASKS: dict[str, SequenceTask] = {
    "in-context-copying": SequenceTask(
        "tokens of the longest repeated part",
        lambda size: 2 * size,
        64,
        lambda n, _, size, length, vocab, generator: in_context_copying(
            n, length=length, vocab_size=vocab, generator=generator
        ),
        least=2,
    ),
    "mqar": SequenceTask(
        "pairs of key and value",
        lambda size: 8 * size,
        64,
        lambda n, _, size, length, vocab, generator: mqar(
            n, pairs=size, length=length, vocab_size=vocab, generator=generator
        ),
    ),
    "selective-copying": SequenceTask(
        "letters to remember",
        lambda size: 6 * size,
        10,
        lambda n, _, size, length, vocab, generator: selective_copying(
            n, remembered=size, length=length, alphabet=vocab - 2, generator=generator
        ),
    ),
    "parity": SequenceTask(
        "bits",
        lambda size: size,
        2,
        lambda n, _, size, length, vocab, generator: parity(n, length=length, generator=generator),
        fixed=True,
    ),
    **{
        f"s{degree}": SequenceTask(
            "permutations",
            lambda size: size,
            len(permutation_products(degree)),
            lambda n, _, size, length, vocab, generator, degree=degree: permutation_states(
                n, degree=degree, length=length, generator=generator
            ),
            fixed=True,
        )
        for degree in (3, 5)
    },
    "argsort": SequenceTask(
        "objects",
        lambda size: 3 * size,
        2 * OBJECTS + 2,
        lambda n, shortest, size, length, vocab, generator: argsort(
            n, shortest=shortest, longest=size, objects=OBJECTS, places=OBJECTS, generator=generator
        ),
        fixed=True,
    ),
    "equation": SequenceTask(
        "constants",
        lambda size: size + 3,
        VOCABULARY,
        lambda n, shortest, size, length, vocab, generator: linear_equation(
            n, shortest=shortest, longest=size, generator=generator
        ),
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
    return task.draw(n, shortest or size, size, task.length(size), vocab_size, generator)
