"""Continuing from a cache: which cache a layer can continue from, where its new tokens stand, and what they see.

Shapes: B batch, H heads, N receivers, M senders, d width of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional import MaskPattern, mask_pattern
from ..functional.mask_patterns import last_columns
from ..functional.masks import Segments, check_bias
from .cache import Cache, CacheGroup, ContextCache, Shapes, TokenCache


class Masks(NamedTuple):
    """Masks of a layer's call, as the caller gave them; :mod:`dual_attention.functional.masks` tells what they mean."""

    attn_mask: Tensor | MaskPattern | None
    padding_mask: Tensor | None
    is_causal: bool
    segments: Segments | None
    attn_bias: Tensor | None = None

    @property
    def ordered(self) -> bool:
        """Whether the places of receivers and senders matter."""
        return self.is_causal or (isinstance(self.attn_mask, MaskPattern) and self.attn_mask.ordered)

    def check_continued(self, cache: Cache) -> None:
        """Raise ``ValueError`` if with these masks the receivers cannot continue from the cache."""
        given = self.attn_mask if isinstance(self.attn_mask, MaskPattern) else None
        if not (self.is_causal or (given is not None and given.causal)):
            raise ValueError("cache: needs is_causal=True, since earlier tokens are not computed again")
        if cache.gathers:  # which has the segments of the earlier tokens, too
            return
        if self.segments is not None or (given is not None and given.receiver_segments is not None):
            raise ValueError("segments: packed sequences cannot be continued from a cache; give one or the other")


class Past(NamedTuple):
    """Place at which a layer's new tokens continue.

    Attributes:
        position: place of the first new receiver in its sequence.
        senders: number of earlier senders.
        held: how many of them, the last ones, a cache holds.
        cache: that cache, if there is one.
    """

    position: int = 0
    senders: int = 0
    held: int = 0
    cache: TokenCache | ContextCache | None = None

    @property
    def offset(self) -> int:
        """Place of the first new receiver among the senders held and the new ones."""
        return self.position - self.senders + self.held

    def once(self, table: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """Make what a layer needs of a table that serves all tokens, once for all that a cache sees."""
        return self.cache.once(table, make) if isinstance(self.cache, TokenCache) else make()

    def append(self, batch: int, n: int, **new: Tensor) -> tuple[Tensor, ...]:
        """Append to the cache; returns what it held and the new tensors as one, or without a cache only the latter."""
        return tuple(new.values()) if self.cache is None else self.cache.append(batch, n, **new)


def continue_from(
    cache: Cache | None, shapes: Shapes, *, window: int | None = None, masks: Masks | None = None
) -> Past:
    """Check that a layer which keeps ``shapes`` can go on from the cache of earlier tokens, if there is one.

    ``TypeError`` for another kind of cache; ``ValueError`` for other sizes, or if earlier tokens would see later ones.
    """
    if cache is None:
        return Past()
    if not isinstance(cache, TokenCache):
        raise TypeError(f"cache: expected a TokenCache, as new_cache() returns, got {type(cache).__name__}")
    if list(cache.shapes.items()) != list(shapes.items()) or cache.window != window:  # PyTorch 2.8 compiles no ==
        raise ValueError(
            f"cache: expected one that keeps {dict(shapes)} of each token with window={window}, "
            f"got one that keeps {cache.shapes} with window={cache.window}"
        )
    if masks is not None:
        masks.check_continued(cache)
    return Past(cache.length, cache.length, cache.held, cache)


def continue_to_attend(cache: ContextCache, shapes: Shapes, key: Tensor, *, ordered: bool) -> Past:
    """Check that a cross-attention which keeps ``shapes`` can attend to the cached context, ``key`` ``(B, M, d)``."""
    if cache.shapes != shapes:
        raise ValueError(f"cache: expected one that keeps {dict(shapes)} of each token, got {cache.shapes}")
    if ordered:
        raise ValueError("cache: a cached context has no order with the receivers; needs no is_causal and no window")
    held = (cache.batch, cache.context_length)
    if cache.filled and tuple(key.shape[:2]) != held:
        raise ValueError(f"cache: holds a context of (batch, length) = {held}, got {tuple(key.shape[:2])}")
    return Past(position=cache.length, cache=cache)


def visibility(
    masks: Masks, past: Past, *, batch: int, heads: int, n: int, new: int, window: int | None
) -> tuple[MaskPattern, Tensor | None]:
    """The pattern and the bias of N receivers with the senders held and the ``new`` ones.

    Masks and bias are for all senders, those which a window has let go of included. A pattern that was built for all
    layers of a model is narrowed by what belongs to this one: its window, and the senders that its cache still holds.
    """
    attn_mask, padding_mask, is_causal, segments, attn_bias = masks
    sizes: dict[str, Any] = {"batch": batch, "heads": heads, "n": n, "m": past.senders + new}
    pattern = mask_pattern(
        attn_mask, padding_mask, is_causal, window=window, segments=segments, offset=past.senders, **sizes
    )
    m = past.held + new
    return pattern.last_senders(m), last_columns(check_bias(attn_bias, **sizes), m)


def cache_parts(cache: Cache | None, names: tuple[str, ...]) -> dict[str, Cache | None]:
    """The caches of a layer's parts, which have seen the same tokens; each None if there is no cache."""
    if cache is None:
        return dict.fromkeys(names)
    if not isinstance(cache, CacheGroup):
        raise TypeError(f"cache: expected a CacheGroup, as new_cache() returns, got {type(cache).__name__}")
    if set(cache.caches) != set(names):
        raise ValueError(f"cache: expected the parts {sorted(names)}, got {sorted(cache.caches)}")
    if any(part.length != cache.length for part in cache.caches.values()):  # a set would fix sizes left open
        lengths = {name: part.length for name, part in cache.caches.items()}
        raise ValueError(f"cache: expected parts that have seen the same tokens, got lengths {lengths}")
    return dict(cache.caches)


def transaction(cache: Cache | None) -> AbstractContextManager[None]:
    """Have a ``with`` block that fails leave the cache as it was. A compiled one does so by itself."""
    if cache is None or torch.compiler.is_compiling():
        return nullcontext()
    if not isinstance(cache, Cache):
        raise TypeError(f"cache: expected a cache, as new_cache() returns, got {type(cache).__name__}")
    return cache.transaction()
