"""Caches of a fixed size, for a step that is recorded once and then repeated: how much they hold only the device knows.

Shapes: B batch, C slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor

from .cache import Cache, CacheGroup, TokenCache

SLOTS = 256
"""Unit of the sizes of caches, so that sums over senders can be split; one step so serves many lengths."""


class Steps:
    """The slots that fixed caches hold, all of them the same.

    Attributes:
        size: C.
        real: boolean ``(B or 1, C)``, False where a slot holds padding.
        padding: number of those slots in each row, int64 ``(B or 1, 1)``.
        place: slot of the next token, int64 ``(1,)``, on the device.
    """

    def __init__(self, place: int, real: Tensor) -> None:
        self.size = real.shape[1]
        self.real = real
        self.padding = (~real).sum(dim=1, keepdim=True)
        self.place = torch.full((1,), place, device=real.device)

    def positions(self, n: int) -> Tensor:
        """Position of the next token in each row, ``(B or 1, 1)``; ``ValueError`` for several tokens."""
        if n != 1:
            raise ValueError(f"cache: of a fixed size takes one token at a time, got {n}")
        return self.place - self.padding

    def seen(self, window: int | None = None) -> Tensor:
        """The slots that the next token may attend to, its own included: boolean ``(B or 1, 1, 1, C)``."""
        slots = torch.arange(self.size, device=self.place.device)
        seen = (slots <= self.place) & self.real
        if window is not None:
            seen = seen & (slots > self.place - window)
        return seen[:, None, None]

    def advance(self) -> None:
        """Let the next token be the one after."""
        self.place += 1


class FixedCache(TokenCache):
    """A copy of another cache in tensors of C slots, which are returned whole; it takes one token at a time.

    To the layers it holds C - 1 tokens, always. Slots that hold none are zeros, and hidden. With a window, all slots
    are kept nevertheless.
    """

    def __init__(self, filled: TokenCache, steps: Steps) -> None:
        super().__init__(filled.shapes, window=filled.window, max_length=steps.size, wide=filled.wide)
        if filled.held != filled.length:
            raise ValueError(f"cache: holds only the last {filled.held} of {filled.length} tokens")
        self.steps = steps
        self._made, self._batch = filled._made, filled._batch
        self._length = steps.size - 1
        unreached = steps.real[:, : filled.held].cumsum(dim=1) == 0  # other padding may be a token's neighbour
        for name, buffer in filled._buffers.items():
            held = buffer[..., filled._start : filled._start + filled.held, :]
            hidden = unreached[:, None, :, None] if held.dim() == 4 else unreached[..., None]
            with torch.inference_mode(False):  # a tensor made in inference mode could not be written to outside it
                kept = held.clone().masked_fill(hidden.to(held.device), 0.0)
                self._buffers[name] = F.pad(kept, (0, 0, 0, steps.size - filled.held))

    def append(self, batch: int, n: int, **new: Tensor) -> tuple[Tensor, ...]:
        """Write a token's tensors into the slot of :attr:`steps`; returns all slots."""
        self._check(batch, n, new)
        for name, tensor in new.items():
            buffer = self._buffers[name]
            buffer.index_copy_(-2, self.steps.place, tensor.expand(batch, *tensor.shape[1:]))
        return tuple(self._buffers[name] for name in self.shapes)

    def once(self, key: Tensor | int, make: Callable[[], Tensor]) -> Tensor:
        """Take what the prompt has left, if there is such: the table of a recorded step stays the same.

        Not told by identity, which the compiler of PyTorch 2.11 does not follow.
        """
        name = key if isinstance(key, int) else None
        return self._made[name][1] if name in self._made else super().once(key, make)

    def _refuse(self, *arguments: Any, **named: Any) -> NoReturn:
        raise ValueError("cache: of a fixed size is neither reordered nor cropped")

    reorder = crop = _refuse


def slots_for(length: int) -> int:
    """Slots of caches for so many tokens."""
    return -(-length // SLOTS) * SLOTS


def after_prompt(cache: Cache, size: int, prompt: Tensor, padding_mask: Tensor | None) -> Cache:
    """Caches of a fixed size, with what these hold of a prompt.

    Args:
        cache: has read the prompt, and held what windows drop.
        size: C.
        prompt: of its first two sizes and device, ``(B, L)`` or ``(B, L, d)``.
        padding_mask: of the prompt.
    """
    real = torch.ones(1, size, dtype=torch.bool, device=prompt.device)
    if padding_mask is not None:
        real = F.pad(padding_mask, (0, size - prompt.shape[1]), value=True)
    return fixed_caches(cache, Steps(prompt.shape[1], real))


def fixed_caches(cache: Cache, steps: Steps) -> Cache:
    """Caches of a fixed size, with what these hold, for the steps that follow."""
    if isinstance(cache, CacheGroup):
        return CacheGroup({name: fixed_caches(part, steps) for name, part in cache.caches.items()})
    if not isinstance(cache, TokenCache):
        raise TypeError(f"cache: expected one of tokens, got {type(cache).__name__}")
    return FixedCache(cache, steps)


def tensors_of(cache: Cache) -> Iterator[Tensor]:
    """The tensors of caches of a fixed size, each of which stays where it is."""
    if isinstance(cache, CacheGroup):
        for part in cache.caches.values():
            yield from tensors_of(part)
    elif isinstance(cache, FixedCache):
        yield from (cache.steps.place, cache.steps.real, cache.steps.padding, *cache._buffers.values())
        yield from (made for _, made in cache._made.values())
