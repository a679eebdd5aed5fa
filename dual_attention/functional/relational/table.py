"""The table of implementations of relational attention. Each registers itself by name, whatever file it lives in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .inputs import RelationalAttentionOutput, RelationalInputs


class Choice(NamedTuple):
    """An implementation and why it was chosen; prints as ``name: reason``.

    >>> print(Choice("dense", "few pairs"))
    dense: few pairs
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class Verdict(NamedTuple):
    """Whether ``impl="auto"`` is to take an implementation, and why; or why not, where that is worth telling.

    Reasons are made of constants: a compiler walks through here too, and sizes may be symbols.
    """

    suits: bool
    why: str = ""


UNSUITED = Verdict(False)


class Implementation(NamedTuple):
    """One way to compute relational attention.

    Attributes:
        name: what a call may say as ``impl``.
        run: computes a call to which there is no obstacle.
        obstacle: why it cannot compute a call, as what follows "impl='name'"; None if it can.
        suits: whether ``impl="auto"`` is to take it. It is asked only if no implementation of a higher priority suits;
            what suits has no obstacle.
        priority: place in that order.
        instead: the implementation that serves a call by this name, if it is another.
        takes_padded: whether padded senders may hold anything; otherwise they are zeros by the time it runs.
        fused: whether ``suits`` is asked only where matrix units of a GPU are used, see :func:`.choice.prefers_fused`.
        observed: whether ``run`` takes an observer of its steps as well.
        hints: whether it never suits, and is asked only for what a user is told.
    """

    name: str
    run: Callable[..., RelationalAttentionOutput]
    obstacle: Callable[[RelationalInputs], str | None]
    suits: Callable[[RelationalInputs], Verdict] = lambda x: UNSUITED
    priority: int = 0
    instead: Callable[[RelationalInputs], Choice | None] = lambda x: None
    takes_padded: bool = False
    fused: bool = False
    observed: bool = False
    hints: bool = False


IMPLEMENTATIONS: dict[str, Implementation] = {}
"""Implementations by name, those of higher priority first."""


def register_implementation(implementation: Implementation) -> None:
    """Put an implementation into the table, in place of one of the same name."""
    others = [other for name, other in IMPLEMENTATIONS.items() if name != implementation.name]
    IMPLEMENTATIONS.clear()
    for entry in sorted([*others, implementation], key=lambda entry: -entry.priority):
        IMPLEMENTATIONS[entry.name] = entry
