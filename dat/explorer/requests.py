"""Requests of pages to their server, and the reading of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TEXT_BYTES = 1 << 20
"""Bytes of a request that holds a text."""

Json = dict[str, Any]


class Malformed(ValueError):
    """A request that no page of this server makes."""


@dataclass(frozen=True)
class Answer:
    """An answer to requests under one path.

    Attributes:
        answer: makes it from the JSON object of a request, or from its bytes: a JSON object, or several one after the
            other, of which the page shows each as it comes. A ``ValueError`` is for the person who asked.
        largest: bytes of a request.
        takes_bytes: whether the request is no JSON.
    """

    answer: Callable[[Any], Json | Iterator[Json]]
    largest: int = TEXT_BYTES
    takes_bytes: bool = False


def text_of(request: Mapping[str, Any], name: str = "text") -> str:
    """A text in a request."""
    value = request.get(name)
    if not isinstance(value, str):
        raise Malformed(f"The request needs a {name}.")
    return value


def number_of(request: Mapping[str, Any], name: str, low: float, high: float, default: float) -> float:
    """A number in a request, within bounds; ``ValueError`` for one that is not, which a person may have typed."""
    value = request.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{name}: expected a number from {low:,} to {high:,}, got {value!r}")
    return value


def choice_of(request: Mapping[str, Any], name: str, choices: Sequence[str]) -> Any:
    """One of some words in a request, by default the first; ``ValueError`` for another."""
    value = request.get(name, choices[0])
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
    return value


def integer_of(request: Mapping[str, Any], name: str, low: int, high: int, default: int) -> int:
    """An integer in a request, within bounds; ``ValueError`` for one that is not."""
    value = number_of(request, name, low, high, default)
    if value != int(value):
        raise ValueError(f"{name}: expected an integer, got {value!r}")
    return int(value)
