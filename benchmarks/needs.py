"""About how much memory a training step takes in forms that build relations or symbols for all pairs.

With this a comparison leaves out what cannot run. The factors were measured, in float32, as the memory suite measures;
half precision takes less.
"""

from __future__ import annotations

BYTES = 4


def of_published(batch: int, n: int, heads: int, relations: int, *, symbols: int = 0, layers: int = 1) -> float:
    """Of the published package; ``symbols``: width of position-relative ones, which it makes and projects for pairs."""
    return layers * batch * n * n * BYTES * (2 * relations + 4 * heads) + n * n * BYTES * 3 * symbols


def of_reference(
    batch: int, n: int, heads: int, width: int, relations: int, *, symbols: int = 0, layers: int = 1
) -> float:
    """Of the readable reference, which makes a message of the width of a head for each pair and head."""
    messages = 2 * heads * width + relations + 5 * heads
    return (0.4 + 0.6 * layers) * batch * n * n * BYTES * messages + n * n * BYTES * 2 * symbols


def of_dense(batch: int, n: int, heads: int, *, layers: int = 1) -> float:
    """Of attention weights alone, and a mask."""
    return layers * batch * n * n * BYTES * 5 * heads
