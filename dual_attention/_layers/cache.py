"""Caches of the tokens that decoding has seen, so that a new token costs no second pass over the earlier ones.

A layer that is given a cache takes only the new tokens, one or several, and returns for them what it would return in
one pass over all tokens::

    cache = block.new_cache(max_length=1024)
    with torch.no_grad():
        block(prompt, symbols, cos, sin, cache=cache)  # cache.length == prompt.shape[1]
        block(token, symbol, cos, sin, cache=cache)

Caches are for inference. They keep no graph unless they are told to (``keeps_graph``): keys that require gradients are
refused, so that no gradient is silently partial. In training mode dropout acts as in one pass, since each token's
weights are drawn once either way. A call that fails leaves the cache as it was.

Shapes: B batch, L tokens held.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor

from .inputs import check_indices, check_no_gradient, check_positive

Shapes = Mapping[str, tuple[int, ...]]
"""Tensors kept of one token: name to shape, ``(heads, width)`` or ``(width,)``."""


class Cache(ABC):
    """Base of all caches."""

    gathers: bool = False
    """Whether its tokens are gathered from other processes, and so are there again when a layer is computed again."""
    keeps_graph: bool = False
    """Whether it takes tensors that require gradients, and each call then writes into memory of its own."""
    steps: Any = None
    """The slots of caches of a fixed size, :class:`.fixed.Steps`; None of others."""
    _length: int

    @property
    def length(self) -> int:
        """Tokens seen so far, padding and tokens dropped by a window included."""
        return self._length

    @property
    @abstractmethod
    def batch(self) -> int | None:
        """Examples, or None while the cache is empty."""

    @property
    @abstractmethod
    def numbers_per_token(self) -> int:
        """Numbers kept of each token of each example."""

    @abstractmethod
    def numel(self) -> int:
        """Numbers held now."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes allocated now, with what is reserved for tokens to come."""

    @abstractmethod
    def reorder(self, indices: Tensor) -> None:
        """Let row ``b`` continue what row ``indices[b]`` was, as beam search does.

        Indices are integers ``(B',)`` below B; one example may be chosen often, so B' may be larger or smaller than B.
        """

    @abstractmethod
    def crop(self, length: int) -> None:
        """Forget all but the first ``length`` tokens; a context is kept.

        ``ValueError`` if there are fewer, or a window has already dropped tokens that the next one would attend to.
        """

    @abstractmethod
    def reserve(self, length: int) -> None:
        """Reserve memory for ``length`` tokens in all, to be taken when the next come, so that it need not grow before.

        More may come nevertheless. With a window, or of a context, memory does not grow with the tokens.
        """

    @abstractmethod
    def record_past(self, on: bool = True) -> None:
        """Hold what a window would drop until the next :meth:`crop`, which may so go back behind it."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything, a context too, and free the memory."""

    @abstractmethod
    def _state(self) -> Any:
        """State from which :meth:`_restore` undoes later appends; no tensor is copied."""

    @abstractmethod
    def _restore(self, state: Any) -> None: ...

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Undo what was appended within if an exception leaves the ``with`` block; crop before, not within."""
        state = self._state()
        try:
            yield
        except BaseException:
            self._restore(state)
            raise


class TokenCache(Cache):
    """Tensors that grow with the tokens; with no tensors at all, a count of tokens.

    Memory is reserved ahead, so that appending does not copy what is held: for ``max_length`` tokens at once, or else
    for as many again whenever it runs out. With a window, what no later token can attend to is dropped, and memory for
    no more than ``2 * window`` tokens is kept.

    Args:
        shapes: what is kept of one token.
        window: tokens a receiver sees, itself included; earlier ones are dropped.
        max_length: most tokens that will ever be seen.
        wide: names of what is kept in float32 where the layer computes in half precision.

    >>> layer, x = Attention(d_model=64, n_heads=4), torch.randn(2, 3, 64)
    >>> cache = layer.new_cache()
    >>> with torch.no_grad():
    ...     outputs = [layer(token, token, token, is_causal=True, cache=cache).output for token in x.split(1, dim=1)]
    >>> torch.allclose(torch.cat(outputs, dim=1), layer(x, x, x, is_causal=True).output, atol=1e-6), cache.length
    (True, 3)
    """

    def __init__(
        self, shapes: Shapes, *, window: int | None = None, max_length: int | None = None, wide: Collection[str] = ()
    ) -> None:
        check_positive(window=1 if window is None else window, max_length=1 if max_length is None else max_length)
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self.wide = frozenset(wide)
        self.window = window
        self.max_length = max_length
        self._reserved = 0
        self._records_past = False
        self.reset()

    def reserve(self, length: int) -> None:
        check_positive(length=length)
        self._reserved = length

    def reset(self) -> None:
        self._buffers: dict[str, Tensor] = {}  # each (B, ..., capacity, width), the tokens held from _start on
        self._made: dict[int | None, tuple[Tensor | int, Tensor]] = {}  # keys of :meth:`once`, and what was made
        self._batch: int | None = None
        self._length = self._start = self._dropped = 0

    def record_past(self, on: bool = True) -> None:
        self._records_past = on

    @property
    def held(self) -> int:
        """Tokens held, L: all that were seen, or with a window the last ``window - 1``, unless the past is recorded."""
        return self._length - self._dropped

    @property
    def batch(self) -> int | None:
        return self._batch

    @property
    def numbers_per_token(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes that are kept of each token while it is held, of a layer that computes in ``dtype``."""
        wide = torch.promote_types(dtype, torch.float32)
        types = {name: wide if name in self.wide else dtype for name in self.shapes}
        return sum(prod(shape) * types[name].itemsize for name, shape in self.shapes.items())

    def numel(self) -> int:
        return (self._batch or 0) * self.held * self.numbers_per_token

    def nbytes(self) -> int:
        return sum(x.nbytes for x in (*self._buffers.values(), *(made for _, made in self._made.values())))

    def once(self, key: Tensor | int, make: Callable[[], Tensor]) -> Tensor:
        """Make what a layer needs of a table that serves all tokens, when the first of them come.

        It is kept as what is made of the tokens is, whatever becomes of the weights meanwhile.

        Args:
            key: that table, of which one is kept, or a number that tells it from others.
        """
        name = key if isinstance(key, int) else None
        known = name in self._made and (name is not None or self._made[name][0] is key)
        if not known or not self._length or self._in_graph():
            self._made = {**self._made, name: (key, make())}
        return self._made[name][1]

    def append(self, batch: int, n: int, **new: Tensor) -> tuple[Tensor, ...]:
        """Append ``n`` tokens of ``batch`` examples.

        What does not fit the tokens held is refused, and so are tensors that require gradients, unless it keeps graphs.

        Args:
            new: for each name a tensor ``(B, heads, n, width)`` or ``(B, n, width)``; one example may stand for all.

        Returns:
            For each name the tokens held before and the new ones, ``(B, heads, L + n, width)``: views, valid until the
            next call.
        """
        self._check(batch, n, new)
        if self._in_graph() or not self._has_room(batch, n, new):
            self._move(batch, self._capacity_for(self.held + n), new)
        start, held = self._start, self.held
        for name, tensor in new.items():
            self._buffers[name][..., start + held : start + held + n, :] = tensor
        everything = tuple(self._buffers[name][..., start : start + held + n, :] for name in self.shapes)
        self._length += n
        self._batch = batch if self._length else None
        if self.window is not None and not self._records_past:
            self._drop()
            if self._capacity() > 2 * self.window:  # a long chunk came
                self._move(batch, self._capacity_for(self.held), new)
        return everything

    def reorder(self, indices: Tensor) -> None:
        chosen = check_indices(indices, self._batch)
        if self._batch is not None:
            self._move(chosen.shape[0], self._capacity(), self._buffers, chosen)
            self._batch = chosen.shape[0]

    def crop(self, length: int) -> None:
        _check_crop(length, self._length)
        needed = length if self.window is None else min(length, self.window - 1)
        if needed and self._dropped > length - needed:
            raise ValueError(
                f"length: to continue after {length} tokens, {needed} must be held, but the window of {self.window} "
                f"left the last {self.held} of {self._length}; record_past() before the tokens come holds them"
            )
        self._length, self._dropped = length, min(self._dropped, length)
        self._drop()
        if length == 0:
            self._batch, self._made = None, {}

    def _drop(self) -> None:
        """Drop what no later token can attend to."""
        needed = self._length if self.window is None else min(self._length, self.window - 1)
        self._start += self.held - needed
        self._dropped = self._length - needed

    def _state(self) -> tuple[Any, ...]:
        return self._buffers, self._made, self._batch, self._length, self._start, self._dropped

    def _restore(self, state: tuple[Any, ...]) -> None:
        # Tokens are only ever written behind those held, and what moves goes into new buffers: the old ones are whole.
        self._buffers, self._made, self._batch, self._length, self._start, self._dropped = state

    def _capacity(self) -> int:
        capacities = [buffer.shape[-2] for buffer in self._buffers.values()]  # compilers know no `min(..., default=0)`
        return min(capacities) if capacities else 0

    def _capacity_for(self, needed: int) -> int:
        if self.window is None and self.max_length is not None:
            return self.max_length
        ahead = max(needed, max(2 * self.held, self._reserved) if self.window is None else 2 * self.window)
        return ahead if self.max_length is None else min(ahead, self.max_length)

    def _has_room(self, batch: int, n: int, new: Mapping[str, Tensor]) -> bool:
        """Whether there are buffers for these tokens; after ``crop(0)`` another batch or dtype may come."""
        return self._buffers.keys() == self.shapes.keys() and all(
            (b.shape[0], b.dtype, b.device) == (batch, new[name].dtype, new[name].device)
            and b.shape[-2] >= self._start + self.held + n
            for name, b in self._buffers.items()
        )

    def _in_graph(self) -> bool:
        """Whether a graph needs what is held as it is, or what comes will be part of one."""
        kept = (buffer.requires_grad for buffer in self._buffers.values())
        return self.keeps_graph and (torch.is_grad_enabled() or any(kept))

    def _move(self, batch: int, capacity: int, like: Mapping[str, Tensor], chosen: Tensor | None = None) -> None:
        moved = {}
        for name, shape in self.shapes.items():
            # A tensor made in inference mode could not be written to outside it.
            with torch.inference_mode(False):
                size = (batch, *shape[:-1], capacity, shape[-1])
                moved[name] = torch.empty(size, dtype=like[name].dtype, device=like[name].device)
            if self.held:
                old = self._buffers[name][..., self._start : self._start + self.held, :]
                old = old if chosen is None else old.index_select(0, chosen.to(old.device))
                moved[name][..., : self.held, :] = old
        self._buffers, self._start = moved, 0

    def _check(self, batch: int, n: int, new: Mapping[str, Tensor]) -> None:
        if new.keys() != self.shapes.keys():
            raise ValueError(f"cache: expected the tensors {sorted(self.shapes)}, got {sorted(new)}")
        if self._batch is not None and batch != self._batch:
            raise ValueError(f"cache: holds a batch of {self._batch}, got {batch} (reorder chooses other examples)")
        if self.max_length is not None and self._length + n > self.max_length:
            raise ValueError(f"cache: max_length={self.max_length} exceeded by {n} tokens after {self._length}")
        for name, tensor in new.items():
            wanted = (*self.shapes[name][:-1], n, self.shapes[name][-1])
            if tuple(tensor.shape[1:]) != wanted or tensor.shape[0] not in (1, batch):
                raise ValueError(f"{name}: expected shape {(batch, *wanted)}, got {tuple(tensor.shape)}")
            if not self.keeps_graph:
                check_no_gradient(name, tensor)
            buffer = self._buffers.get(name)
            if self._length and buffer is not None and (buffer.dtype, buffer.device) != (tensor.dtype, tensor.device):
                raise TypeError(
                    f"{name}: expected {buffer.dtype} on {buffer.device}, as the cache holds, got {tensor.dtype} on "
                    f"{tensor.device}; make all calls of a cache under autocast, or none"
                )


class ContextCache(Cache):
    """Keys and values of a context, computed at the first call and kept; counts the tokens that attended to it.

    >>> layer, context = Attention(d_model=64, n_heads=4), torch.randn(2, 5, 64)
    >>> cache = layer.new_context_cache()
    >>> with torch.no_grad():
    ...     out = layer(torch.randn(2, 1, 64), context, context, cache=cache).output
    >>> out.shape, cache.filled
    (torch.Size([2, 1, 64]), True)
    """

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self.reset()

    def reserve(self, length: int) -> None:
        check_positive(length=length)

    def record_past(self, on: bool = True) -> None:
        """Do nothing: a context is held whole."""

    def reset(self) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._length = 0

    @property
    def filled(self) -> bool:
        """Whether the context has been seen."""
        return bool(self._tensors)

    @property
    def context_length(self) -> int | None:
        """Tokens of the context, or None before it was seen."""
        return next(iter(self._tensors.values())).shape[-2] if self._tensors else None

    @property
    def batch(self) -> int | None:
        return next(iter(self._tensors.values())).shape[0] if self._tensors else None

    @property
    def numbers_per_token(self) -> int:
        """Zero: what is kept does not grow with the tokens that attend to the context."""
        return 0

    def numel(self) -> int:
        return sum(tensor.numel() for tensor in self._tensors.values())

    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def append(self, batch: int, n: int, **new: Tensor) -> tuple[Tensor, ...]:
        """Count ``n`` tokens that attend to the context, and return its tensors, ``(B, heads, M, width)``.

        The first call gives them, later ones give none.
        """
        expected = [] if self.filled else sorted(self.shapes)
        if sorted(new) != expected:
            raise ValueError(f"cache: expected the tensors {expected}, got {sorted(new)}")
        for name, tensor in new.items():
            check_no_gradient(name, tensor)
        if new:
            self._tensors = {name: new[name].contiguous() for name in self.shapes}
        self._length += n
        return tuple(self._tensors.values())

    def reorder(self, indices: Tensor) -> None:
        chosen = check_indices(indices, self.batch)
        self._tensors = {name: t.index_select(0, chosen.to(t.device)) for name, t in self._tensors.items()}

    def crop(self, length: int) -> None:
        _check_crop(length, self._length)
        self._length = length

    def _state(self) -> tuple[Any, ...]:
        return self._tensors, self._length

    def _restore(self, state: tuple[Any, ...]) -> None:
        self._tensors, self._length = state


class CacheGroup(Cache):
    """Caches by name that see the same tokens: of a layer's parts, of a block's, or of a whole model's.

    A model's may be ``CacheGroup({"symbols": retriever.new_cache(), "0": blocks[0].new_cache(), ...})``.

    Args:
        caches: at least one, each of them once.

    >>> cache = DualAttention(d_model=64, n_heads_sa=2, n_heads_ra=2).new_cache()
    >>> list(cache.caches), cache.length
    (['self_attention', 'relational_attention'], 0)
    """

    def __init__(self, caches: Mapping[str, Cache]) -> None:
        if not caches or len({id(cache) for cache in caches.values()}) < len(caches):
            raise ValueError(f"caches: expected one or more, each of them once, got {list(caches)}")
        self.caches = dict(caches)
        self.gathers = all(cache.gathers for cache in caches.values())
        self.steps = next(iter(caches.values())).steps

    def __getitem__(self, name: str) -> Cache:
        return self.caches[name]

    @property
    def length(self) -> int:
        return next(iter(self.caches.values())).length

    @property
    def batch(self) -> int | None:
        return next(iter(self.caches.values())).batch

    @property
    def numbers_per_token(self) -> int:
        return sum(cache.numbers_per_token for cache in self.caches.values())

    def numel(self) -> int:
        return sum(cache.numel() for cache in self.caches.values())

    def nbytes(self) -> int:
        return sum(cache.nbytes() for cache in self.caches.values())

    def reorder(self, indices: Tensor) -> None:
        with self.transaction():
            for cache in self.caches.values():
                cache.reorder(indices)

    def crop(self, length: int) -> None:
        with self.transaction():
            for cache in self.caches.values():
                cache.crop(length)

    def reserve(self, length: int) -> None:
        for cache in self.caches.values():
            cache.reserve(length)

    def record_past(self, on: bool = True) -> None:
        for cache in self.caches.values():
            cache.record_past(on)

    def reset(self) -> None:
        for cache in self.caches.values():
            cache.reset()

    def _state(self) -> dict[str, Any]:
        return {name: cache._state() for name, cache in self.caches.items()}

    def _restore(self, state: dict[str, Any]) -> None:
        for name, cache in self.caches.items():
            cache._restore(state[name])


def _check_crop(length: int, seen: int) -> None:
    if not 0 <= length <= seen:
        raise ValueError(f"length: expected 0 to {seen}, the tokens seen, got {length}")
