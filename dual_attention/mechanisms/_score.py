"""The base of all scores.

Shapes: ``query (..., L, d_q)`` and ``key (..., S, d_k)`` give ``(..., L, S)``; a score with ``multidim`` gives
``(..., L, S, d_v)``, one for each feature of the value. With ``heads`` every parameter has an axis of heads in front,
and queries and keys are ``(B, heads, L, d_q)`` and ``(B, heads, S, d_k)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from .._layers.calls import TypedModule
from .._layers.inputs import check_positive
from ..functional.checks import is_autocast, without_autocast

Factors = tuple[Tensor, Tensor, float]
"""Queries ``(..., L, p)`` and keys ``(..., S, p)``, of one type, and the factor of their inner products."""


class Score(TypedModule, ABC):
    """A function of query and key. Subclasses implement ``forward(query, key)``, which must not mask.

    Args:
        heads: number of heads with parameters of their own, which then have an axis of heads in front.
        shown: settings shown in the representation, where they are not None.

    Attributes:
        multidim: whether there is a score for each feature of the value.
        n_queries: number of rows of a score that takes no query; None for scores that take one.

    >>> isinstance(Dot(), Score), isinstance(Additive(d_q=6, d_k=8), Score)
    (True, True)
    """

    multidim: bool = False
    n_queries: int | None = None

    def __init__(self, heads: int | None = None, **shown: object) -> None:
        super().__init__()
        check_positive(heads=1 if heads is None else heads)
        self.heads = heads
        self._shown = shown

    @abstractmethod
    def forward(self, query: Any, key: Tensor) -> Tensor:
        """Scores ``(..., L, S)`` of every key for every query, a tensor unless the score takes none."""

    def factors(self, query: Tensor, key: Tensor) -> Factors | None:
        """Vectors and a number ``(q, k, scale)`` whose inner products ``scale <q, k>`` are the scores.

        None where scores are no inner products, or not exact enough in the dtype of the vectors. Relations by scores
        with factors are summed under attention without being built. A class implements this beside its ``forward``; a
        subclass that replaces only ``forward`` has none.
        """
        return None

    def for_softmax(self, query: Tensor | None, key: Tensor) -> Tensor:
        """As ``forward``, but inner products of float16, also by autocast, in float32, since they may lie beyond it."""
        if query is None or not self.factorises:
            return self(query, key)
        narrowed = is_autocast(query) and torch.float32 in (query.dtype, key.dtype)
        if not narrowed and not query.dtype == key.dtype == torch.float16:
            return self(query, key)
        wide = {name: parameter.float() for name, parameter in self.named_parameters()}
        with without_autocast(query):
            return functional_call(self, wide, (query.float(), key.float()))

    @property
    def factorises(self) -> bool:
        """Whether :meth:`factors` belongs to this score, and not to a class whose ``forward`` it has replaced."""
        owner = next(kind for kind in type(self).__mro__ if "forward" in vars(kind))
        return "factors" in vars(owner)

    def require_query(self, query: Tensor | None) -> Tensor:
        """The query; ``ValueError`` if there is none."""
        if query is None:
            raise ValueError(f"query: {type(self).__name__} compares keys with a query, got None")
        return query

    def extra_repr(self) -> str:
        shown = {**self._shown, "heads": self.heads}
        return ", ".join(f"{name}={value}" for name, value in shown.items() if value is not None)


def check_kind_made(name: str, part: object, made: object, kind: type, such_as: str) -> None:
    """Raise ``TypeError`` unless a part, perhaps a user's own, made an object of that kind."""
    if not isinstance(made, kind):
        raise TypeError(f"{name}: expected {type(part).__name__} to give {such_as}, got {type(made).__name__}")


def check_made(name: str, part: object, made: object, axes: str, shape: tuple[int | None, ...]) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless a part, perhaps a user's own, made a tensor of that shape; another
    one may mix examples.

    None in ``shape`` is any width.
    """
    if not isinstance(made, Tensor):
        raise TypeError(f"{name}: expected {type(part).__name__} to give {axes}, got {type(made).__name__}")
    if made.dim() != len(shape) or any(want not in (None, have) for have, want in zip(made.shape, shape, strict=True)):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name}: expected {type(part).__name__} to give {axes} = ({wanted}), got {tuple(made.shape)}")
