"""How layers continue from a cache: which they can continue from, where new tokens stand, and whom they see.

Shapes: B batch, H heads, N receivers, M senders, d width of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from torch import Tensor

from ..functional import MaskPattern, mask_pattern
from ..functional.masks import check_bias, last_columns
from .cache import Cache, CacheGroup, ContextCache, Shapes, TokenCache

P = ParamSpec("P")
T = TypeVar("T")


class Past(NamedTuple):
    """Where a layer's new tokens continue.

    Attributes:
        position: of the first new receiver in its sequence.
        senders: earlier senders.
        held: how many of them, the last, a cache holds.
        cache: which one, if any.
    """

    position: int = 0
    senders: int = 0
    held: int = 0
    cache: TokenCache | ContextCache | None = None

    @property
    def offset(self) -> int:
        """Place of the first new receiver among the senders held and the new ones."""
        return self.position - self.senders + self.held

    def append(self, batch: int, n: int, **new: Tensor) -> tuple[Tensor, ...]:
        """Append to the cache; returns what it held and the new tensors as one, or without a cache the latter alone."""
        return tuple(new.values()) if self.cache is None else self.cache.append(batch, n, **new)


def continue_from(
    cache: Cache | None, shapes: Shapes, *, window: int | None = None, is_causal: bool = True, segments: Any = None
) -> Past:
    """Check that a layer which keeps ``shapes`` can go on from the cache of earlier tokens, if there is one.

    Raises:
        TypeError: if it is not a :class:`TokenCache`.
        ValueError: if it is the cache of a layer of other sizes, or if earlier tokens would see later ones.
    """
    if cache is None:
        return Past()
    if not isinstance(cache, TokenCache):
        raise TypeError(f"cache: expected a TokenCache, as new_cache() returns, got {type(cache).__name__}")
    if cache.shapes != shapes or cache.window != window:
        raise ValueError(
            f"cache: expected one that keeps {dict(shapes)} of each token with window={window}, "
            f"got one that keeps {cache.shapes} with window={cache.window}"
        )
    if not is_causal:
        raise ValueError(
            "cache: needs is_causal=True, since earlier tokens are not computed again; got is_causal=False"
        )
    if segments is not None:
        raise ValueError("segments: sequences packed into one cannot be continued from a cache; give one or the other")
    return Past(cache.length, cache.length, cache.held, cache)


def continue_to_attend(cache: ContextCache, shapes: Shapes, key: Tensor, *, ordered: bool) -> Past:
    """Check that a cross-attention which keeps ``shapes`` can attend to the cached context, ``key`` ``(B, M, d)``.

    Raises:
        ValueError: if it is the cache of a layer of other sizes or of another context, or if order matters.
    """
    if cache.shapes != shapes:
        raise ValueError(f"cache: expected one that keeps {dict(shapes)} of each token, got {cache.shapes}")
    if ordered:
        raise ValueError("cache: a cached context has no order with the receivers; needs no is_causal and no window")
    held = (cache.batch, cache.context_length)
    if cache.filled and tuple(key.shape[:2]) != held:
        raise ValueError(f"cache: holds a context of (batch, length) = {held}, got {tuple(key.shape[:2])}")
    return Past(position=cache.length, cache=cache)


def who_sees_whom(
    past: Past,
    *,
    batch: int,
    heads: int,
    n: int,
    new: int,
    attn_mask: Tensor | None,
    padding_mask: Tensor | None,
    is_causal: bool,
    window: int | None,
    segments: Tensor | tuple[Tensor, Tensor] | None,
    attn_bias: Tensor | None,
) -> tuple[MaskPattern, Tensor | None]:
    """The pattern and the bias of N receivers with the senders held and the ``new`` ones.

    Masks and bias are for all senders, those which a window has let go of included.

    Raises:
        TypeError, ValueError: as :func:`~dual_attention.functional.mask_pattern`, or for a bias of another dtype or
            shape.
    """
    sizes: dict[str, Any] = {"batch": batch, "heads": heads, "n": n, "m": past.senders + new}
    pattern = mask_pattern(
        attn_mask, padding_mask, is_causal, window=window, segments=segments, offset=past.senders, **sizes
    )
    m = past.held + new
    return pattern.last_senders(m), last_columns(check_bias(attn_bias, **sizes), m)


def parts(cache: Cache | None, names: tuple[str, ...]) -> dict[str, Cache | None]:
    """The caches of a layer's parts, each None if there is no cache.

    Raises:
        TypeError: if it is not a :class:`CacheGroup`.
        ValueError: if it has other parts, or they have not seen as many tokens.
    """
    if cache is None:
        return dict.fromkeys(names)
    if not isinstance(cache, CacheGroup):
        raise TypeError(f"cache: expected a CacheGroup, as new_cache() returns, got {type(cache).__name__}")
    if set(cache.caches) != set(names):
        raise ValueError(f"cache: expected the parts {sorted(names)}, got {sorted(cache.caches)}")
    lengths = {name: part.length for name, part in cache.caches.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"cache: expected parts that have seen the same tokens, got lengths {lengths}")
    return dict(cache.caches)


def leaves_cache_whole(forward: Callable[P, T]) -> Callable[P, T]:
    """Let a ``forward`` that fails leave its argument ``cache`` as it was."""

    @wraps(forward)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        cache = kwargs.get("cache")
        if cache is None:
            return forward(*args, **kwargs)
        if not isinstance(cache, Cache):
            raise TypeError(f"cache: expected a cache, as new_cache() returns, got {type(cache).__name__}")
        with cache.transaction():
            return forward(*args, **kwargs)

    return call
