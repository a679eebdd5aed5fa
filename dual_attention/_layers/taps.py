"""Taps: modules through which a layer passes on what it computes, to be read or replaced by forward hooks.

A layer sends tensors through its taps only while one of them has a hook. If that is of a step within its operation, it
computes by readable steps that build every tensor (:mod:`~dual_attention.functional.reference`), equal to the fast ones
to rounding; otherwise it computes as if it had no taps. They have no parameters, and so no place in a state dict.
Compiled code does not see them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

OUTSIDE = ("symbols", "head_output")
"""Taps before and after the operation of a layer."""


class Tap(nn.Identity):
    """A place where a tensor can be read, or replaced by what a forward hook returns."""


class Taps(nn.Module):
    """The taps of a layer, by name.

    Attributes:
        first_receiver, first_sender: places, in their sequences, of the first receiver and the first sender of the last
            call that was watched; later ones than 0 with a cache.
        crosses: whether the receivers of that call were other objects than its senders.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.first_receiver = self.first_sender = 0
        self.crosses = False
        for name in names:
            self.add_module(name, Tap())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the taps."""
        return tuple(self._modules)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._modules)})"


def observer_of(
    layer: Any, first_receiver: int = 0, first_sender: int = 0, *, crosses: bool = False
) -> Observer | None:
    """Receiver of the tensors of a call; None if nobody watches, or while compiling."""
    if torch.compiler.is_compiling():
        return None
    taps, watched = layer._modules["taps"], []  # which is faster than an attribute
    for name, tap in taps._modules.items():
        # A call of a tap does something if it has hooks, or if another forward has taken the place of its own.
        own = tap.__dict__
        hooks = own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
        if (hooks or own["_backward_pre_hooks"] or "forward" in own) and isinstance(tap, Tap):
            watched.append(name)
    if not watched:
        return None
    taps.first_receiver, taps.first_sender, taps.crosses = first_receiver, first_sender, crosses
    return Observer(taps, tuple(watched))


class Observer:
    """Sends the tensors of a call through the taps of a layer."""

    def __init__(self, taps: Taps, watched: tuple[str, ...]) -> None:
        self._taps = taps
        self._watched = watched

    def __call__(self, name: str, x: Tensor) -> Tensor:
        """The tensor, or what hooks of the tap of that name return in its place."""
        return self._taps.get_submodule(name)(x)

    @property
    def steps(self) -> Observer | None:
        """This observer for the operation of the layer; None if nobody watches a step within it."""
        return None if set(self._watched) <= set(OUTSIDE) else self

    def watches(self, *names: str) -> bool:
        """Whether anybody watches one of these taps."""
        return any(name in self._watched for name in names)
