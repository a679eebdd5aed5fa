"""Masks kept in parts. Conventions and shapes are those of :mod:`.masks`, which checks the parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from .checks import fake_mode, in_transform

T = TypeVar("T")

FITS = "fits"
"""Mark of what has been checked of a pattern, see :func:`.masks.check_parts`."""


@dataclass(eq=False)
class MaskPattern:
    """Visibility of senders to receivers, kept in parts, so that blocks of it can be built without the whole.

    One pattern may serve many calls, all layers of a model for instance: the whole mask is built at most once. So the
    tensors of a pattern, and those it returns, must not be written to.

    Attributes:
        n, m: receivers and senders.
        attn_mask: boolean, four-dimensional, broadcastable to ``(B, H, N, M)``.
        padding: boolean, ``(B, M)``.
        receiver_segments, sender_segments: integers ``(B, N)`` and ``(B, M)``; only pairs of one segment.
        causal: receiver ``i`` sees senders up to its own place, ``j <= i + offset``.
        window: receiver ``i`` sees senders near its own place, ``|i + offset - j| < window``.
        offset: place of the first receiver among the senders. With a cache of earlier senders the receivers are the
            last N of M, and ``offset = M - N``.

    >>> pattern = mask_pattern(is_causal=True, batch=1, heads=1, n=3, m=3)
    >>> isinstance(pattern, MaskPattern), pattern.causal, pattern.n
    (True, True, 3)
    """

    n: int
    m: int
    attn_mask: Tensor | None = None
    padding: Tensor | None = None
    receiver_segments: Tensor | None = None
    sender_segments: Tensor | None = None
    causal: bool = False
    window: int | None = None
    offset: int = 0
    _built: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def parts(self) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, bool, int | None, int]:
        """All fields but the lengths: tensors, then order."""
        tensors = (self.attn_mask, self.padding, self.receiver_segments, self.sender_segments)
        return *tensors, self.causal, self.window, self.offset

    @property
    def savable_parts(self) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, bool, int | None, int]:
        """The same for a backward pass, which could not save tensors made under inference mode: copies of those."""
        *tensors, causal, window, offset = self.parts
        if not torch.compiler.is_compiling():
            tensors = [x.clone() if x is not None and x.is_inference() else x for x in tensors]
        first, second, third, fourth = tensors
        return first, second, third, fourth, causal, window, offset

    def once(self, key: tuple[Any, ...], build: Callable[[], T]) -> T:
        """The result of ``build``, kept under ``key`` for later calls.

        A transform of ``torch.func`` takes what is kept, but what it builds ends with it. Fake tensors are kept for
        their own mode.
        """
        # Compilers merge what is computed twice, graphs hold no memory of calls, and to look up a size would fix it.
        if torch.compiler.is_compiling():
            return build()
        key = (fake_mode(), *key)
        if key in self._built:
            return self._built[key]
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):  # a later backward pass could not save a tensor of inference mode
                built = build()
        else:
            built = build()
        if not in_transform():
            self._built[key] = built
        return built

    def senders(self, start: int, stop: int) -> tuple[int, int]:
        """The range of senders outside which no receiver in ``[start, stop)`` may attend, judged by order only."""
        first, last = 0, self.m
        if self.causal:
            last = min(last, stop + self.offset)
        if self.window is not None:
            first = max(first, start + self.offset - self.window + 1)
            last = min(last, stop + self.offset + self.window - 1)
        last = max(last, 0)
        return min(first, last), last

    @property
    def ordered(self) -> bool:
        """Whether places hide anything."""
        return self.causal or self.window is not None

    @property
    def only_ordered(self) -> bool:
        """Whether nothing but places hides anything."""
        return self.attn_mask is None and self.padding is None and self.receiver_segments is None

    @property
    def hides_nothing(self) -> bool:
        """Whether every receiver may attend every sender."""
        return not self.causal and self.window is None and self.only_ordered

    @property
    def only_causal(self) -> bool:
        """Whether causal order is all that hides anything, and the first receiver is the first sender."""
        return self.causal and self.window is None and not self.offset and self.only_ordered

    @property
    def may_hide_all(self) -> bool:
        """Whether there may be receivers that may attend nothing; order leaves each its own place, if it has one."""
        return not self.only_ordered or (self.ordered and not 0 <= self.offset <= self.m - self.n)

    def block(self, rows: slice, columns: slice, device: torch.device | str | None) -> Tensor | None:
        """The mask of a block, broadcastable to ``(B, H, rows, columns)``; None if it hides nothing."""
        mask = None

        def also(part: Tensor) -> Tensor:
            return part if mask is None else mask & part

        if self.attn_mask is not None:
            mask = block_of(self.attn_mask, rows, columns)
        if self.padding is not None:
            mask = also(self.padding[:, None, None, columns])
        if self.receiver_segments is not None and self.sender_segments is not None:
            mask = also((self.receiver_segments[:, rows, None] == self.sender_segments[:, None, columns])[:, None])
        if self.window is not None or (self.causal and columns.stop > rows.start + self.offset + 1):
            senders = torch.arange(columns.start, columns.stop, device=device)
            receivers = (torch.arange(rows.start, rows.stop, device=device) + self.offset)[None, None, :, None]
            if self.causal:
                mask = also(senders <= receivers)
            elif self.window is not None:
                mask = also(senders < receivers + self.window)
            if self.window is not None:
                mask = also(senders > receivers - self.window)
        return mask

    def hide_(self, scores: Tensor, rows: slice, columns: slice) -> None:
        """Put minus infinity in a block of scores ``(B, H, rows, columns)`` where nothing may be attended."""
        if self.causal and not self.may_hide_all and self.window is None:
            # Senders up to the first receiver's own place are hidden from none.
            columns = slice(min(max(columns.start, rows.start + self.offset + 1), columns.stop), columns.stop)
            scores = scores[..., scores.shape[-1] - (columns.stop - columns.start) :]
        mask = self.block(rows, columns, scores.device)
        if mask is not None:
            scores.masked_fill_(~mask, -torch.inf)

    def dense(self, device: torch.device | str | None) -> Tensor | None:
        """The whole mask, broadcastable to ``(B, H, N, M)``; None if nothing is hidden. Built once for each device."""
        if self.hides_nothing:
            return None
        return self.once(("dense", device), lambda: self.block(slice(0, self.n), slice(0, self.m), device))

    def narrow(self, *, causal: bool = False, window: int | None = None, offset: int = 0) -> MaskPattern:
        """The pattern that order and a window narrow further; itself if they do not. A first order has this offset."""
        causal = causal or self.causal
        if self.window is not None:
            window = self.window if window is None else min(window, self.window)
        if causal == self.causal and window == self.window:
            return self
        changes: dict[str, Any] = {"causal": causal, "window": window}
        if not self.ordered:
            changes["offset"] = offset
        return self.once(("narrow", *changes.values()), lambda: self._changed(**changes))

    def with_mask(self, mask: Tensor) -> MaskPattern:
        """The pattern that a mask hides more of; it must broadcast to ``(B, H, N, M)``."""
        return self._changed(attn_mask=mask if self.attn_mask is None else self.attn_mask & mask)

    def last_senders(self, m: int) -> MaskPattern:
        """The pattern of the last ``m`` senders only; unless that is all of them, it must have no segments."""
        if m == self.m:
            return self
        dropped = self.m - m

        def build() -> MaskPattern:
            padding = None if self.padding is None else self.padding[:, dropped:]
            attn_mask = last_columns(self.attn_mask, m)
            return self._changed(m=m, attn_mask=attn_mask, padding=padding, offset=self.offset - dropped)

        return self.once(("last", m), build)

    def _changed(self, **changes: Any) -> MaskPattern:
        """The pattern with other fields, whose tensors are those of this one or parts of them: as well checked."""
        changed = replace(self, **changes)
        if not torch.compiler.is_compiling():
            changed._built.update({key: None for key in self._built if FITS in key})
        return changed


def block_of(x: Tensor, rows: slice, columns: slice) -> Tensor:
    """Rows and columns of a tensor broadcastable to ``(B, H, N, M)``."""
    return x[:, :, rows if x.shape[2] > 1 else slice(None), columns if x.shape[3] > 1 else slice(None)]


def last_columns(x: Tensor | None, m: int) -> Tensor | None:
    """The last ``m`` senders of a mask or bias that broadcasts to ``(B, H, N, M)``."""
    return x if x is None or x.shape[-1] == 1 else x[..., x.shape[-1] - m :]
