"""Named elementwise activations, and the one that normalises over senders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from .._base.words import suggestion

Activation = Callable[[Tensor], Tensor]


def identity(x: Tensor) -> Tensor:
    """The tensor itself."""
    return x


ACTIVATIONS: dict[str, Activation] = {
    "identity": identity,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": partial(F.gelu, approximate="tanh"),
    "gelu_erf": F.gelu,
    "silu": F.silu,
    "softmax": partial(torch.softmax, dim=-1),
}
"""Activations by name. ``gelu`` is the tanh form, as in the published models, and ``gelu_erf`` the exact one;
``softmax`` is over the last axis."""


def activation_function(
    name: str | Activation, argument: str = "activation", *, besides: tuple[str, ...] = ()
) -> Activation:
    """The activation of that name; a function is returned as it is.

    ``besides``: names that the argument may have, too.

    Raises:
        TypeError: for what is neither, by the name of the argument that it was given as.
        ValueError: for a name that is not in :data:`ACTIVATIONS`.

    >>> activation_function("relu")(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    if callable(name):
        return name
    if not isinstance(name, str):
        raise TypeError(f"{argument}: expected a name or a function, got {name!r}")
    if name not in ACTIVATIONS:
        known = (*ACTIVATIONS, *besides)
        near = suggestion(name, known)
        raise ValueError(f"{argument}: expected one of {', '.join(known)} or a function, got {name!r}{near}")
    return ACTIVATIONS[name]


def activation_name(activation: str | Activation) -> str:
    """The name in :data:`ACTIVATIONS` if it has one, otherwise what the function calls itself."""
    if isinstance(activation, str):
        return activation
    known = (name for name, function in ACTIVATIONS.items() if function is activation)
    return next(known, getattr(activation, "__name__", repr(activation)))
