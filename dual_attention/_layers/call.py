"""One call of a layer: what its receivers see, and where its new tokens stand after those of a cache.

What a caller gave is checked here, once, and operations do not check it again. A pattern remembers that it was checked,
so that the layers of a model, which share one, do not look at it again either.

Shapes: B batch, H heads, N receivers, M senders, d width of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional import MaskPattern, apply_rotary, mask_pattern
from ..functional.masks import Segments, check_parts
from .cache import Cache, CacheGroup, ContextCache, Shapes, TokenCache
from .taps import Observer


class Given(NamedTuple):
    """Masks and tables of a layer's call, as the caller gave them; :mod:`dual_attention.functional.masks` tells what
    masks mean.
    """

    attn_mask: Tensor | MaskPattern | None
    padding_mask: Tensor | None
    is_causal: bool
    segments: Segments | None
    attn_bias: Tensor | None = None
    freqs_cos: Tensor | None = None
    freqs_sin: Tensor | None = None

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

    def offset(self) -> Any:
        """Place of the first new receiver among the senders held and the new ones: a number, or a tensor ``(1,)``."""
        fixed = None if self.cache is None else self.cache.steps
        return self.position - self.senders + self.held if fixed is None else fixed.place

    def once(self, table: Tensor | int, make: Callable[[], Tensor]) -> Tensor:
        """Make what a layer needs of a table that serves all tokens, once for all that a cache sees."""
        return self.cache.once(table, make) if isinstance(self.cache, TokenCache) else make()

    def append(self, batch: int, n: int, **new: Tensor) -> tuple[Tensor, ...]:
        """Append to the cache; returns what it held and the new tensors as one, or without a cache only the latter."""
        return tuple(new.values()) if self.cache is None else self.cache.append(batch, n, **new)


NO_PAST = Past()


def continue_from(
    cache: Cache | None, shapes: Shapes, *, window: int | None = None, given: Given | None = None
) -> Past:
    """Check that a layer which keeps ``shapes`` can go on from the cache of earlier tokens, if there is one.

    ``TypeError`` for another kind of cache; ``ValueError`` for other sizes, or if earlier tokens would see later ones.
    """
    if cache is None:
        return NO_PAST
    if not isinstance(cache, TokenCache):
        raise TypeError(f"cache: expected a TokenCache, as new_cache() returns, got {type(cache).__name__}")
    if list(cache.shapes.items()) != list(shapes.items()) or cache.window != window:  # PyTorch 2.8 compiles no ==
        raise ValueError(
            f"cache: expected one that keeps {dict(shapes)} of each token with window={window}, "
            f"got one that keeps {cache.shapes} with window={cache.window}"
        )
    if given is not None:
        given.check_continued(cache)
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


def checked_pattern(
    given: Given, x: Tensor, *, heads: int, earlier: int, new: int, window: int | None = None
) -> MaskPattern:
    """The pairs of receivers ``x`` ``(B, N, ...)`` and all senders, ``earlier`` and ``new``; checked."""
    attn_mask, padding_mask, is_causal, segments, *_ = given
    (batch, n), m = x.shape[:2], earlier + new
    shared = attn_mask if isinstance(attn_mask, MaskPattern) else None
    pattern = None
    if padding_mask is None and segments is None and window is None:  # nothing but order is added to a mask
        if attn_mask is None and n == new:
            return MaskPattern(n, m, causal=is_causal, offset=earlier)
        if shared is not None and (shared.n, shared.m, shared.offset) == (n, m, earlier) and shared.causal >= is_causal:
            pattern = shared
    if pattern is None:
        sizes: dict[str, Any] = {"batch": batch, "heads": heads, "n": n, "m": m, "offset": earlier}
        pattern = mask_pattern(attn_mask, padding_mask, is_causal, window=window, segments=segments, **sizes)
    check_parts(pattern, x, heads, shaped=shared is None, name="the receivers")
    return pattern


def shared_pattern(
    x: Tensor, m: int, *, padding: Tensor | None, segments: Tensor | None = None, causal: bool = False, earlier: int = 0
) -> MaskPattern:
    """One pattern for all layers of a model that is given ``x`` ``(B, N, ...)`` and M senders, ``earlier`` included.

    Types and shapes of padding ``(B, M)`` and segments ``(B or 1, M)`` have been checked by the model, under the names
    that it has for them; devices are checked here, and no layer will check anything of it again.
    """
    receivers = None if segments is None else segments[:, earlier:]
    pattern = MaskPattern(x.shape[1], m, None, padding, receivers, segments, causal, offset=earlier)
    if padding is not None or segments is not None:
        check_parts(pattern, x, 1, shaped=True, name="the receivers")
    return pattern


class HeadsCall(NamedTuple):
    """One call of heads, checked: what its receivers see, where they stand, and what is asked for.

    Attributes:
        batch, n, new: examples, receivers and new senders.
        pattern: pairs that may be attended, of N receivers and the M senders that are held or new.
        bias: added to the scaled scores, broadcastable to ``(B, H, N, M)``.
        past: place at which the new tokens continue.
        freqs: RoPE tables, cosines and sines, if there are any.
        dropout: rate on the attention weights.
        observe: observer of the call; None if nobody watches.
        steps: the same for the steps within the operation.
    """

    batch: int
    n: int
    new: int
    pattern: MaskPattern
    bias: Tensor | None
    past: Past
    freqs: tuple[Tensor | None, Tensor | None] | None
    dropout: float
    observe: Observer | None
    steps: Observer | None

    def how(self) -> dict[str, Any]:
        """The visible pairs, the bias, the rate and the observer, as operations take them."""
        return {"mask": self.pattern, "bias": self.bias, "dropout": self.dropout, "observe": self.steps}

    def rotate_receivers(self, q: Tensor) -> Tensor:
        """Queries ``(B, H, N, D)`` with RoPE."""
        return q if self.freqs is None else rotate(q, *self.freqs, self.past.position)

    def rotate_senders(self, k: Tensor) -> Tensor:
        """New keys ``(B, G, new, D)`` with RoPE."""
        return k if self.freqs is None else rotate(k, *self.freqs, self.past.senders)

    def with_earlier(self, **new: Any) -> tuple[Any, ...]:
        """Tensors of all senders, earlier ones first; relative symbols name those of a cache already."""
        kept = {name: x for name, x in new.items() if isinstance(x, Tensor)}
        held = dict(zip(kept, self.past.append(self.batch, self.n, **kept), strict=True))
        return tuple(held.get(name, x) for name, x in new.items())


def rotate(x: Tensor, freqs_cos: Tensor | None, freqs_sin: Tensor | None, offset: int = 0) -> Tensor:
    """Apply RoPE to queries or keys if there are tables, whose row ``offset`` belongs to the first token."""
    if freqs_cos is None and freqs_sin is None:
        return x
    if freqs_cos is None or freqs_sin is None:
        raise ValueError("freqs_cos, freqs_sin: expected both tables or neither")
    return apply_rotary(x, freqs_cos, freqs_sin, offset=offset)


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
