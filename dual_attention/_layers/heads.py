"""Heads: their width, splitting and merging them, and how one call of them begins.

Shapes: B batch, L length, H heads, D width of a head.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from ..functional.checks import check_finite
from ..functional.mask_patterns import last_columns
from ..functional.masks import check_bias
from .cache import TokenCache
from .call import Given, HeadsCall, Past, checked_pattern
from .calls import TypedModule
from .inputs import check_dropout, check_positive
from .packed import is_watched
from .taps import Taps, observer_of


def head_dim(d_model: int, n_heads: int, n_kv_heads: int | None, total_n_heads: int | None) -> int:
    """Width of one head; ``ValueError`` if the head counts do not fit together."""
    check_positive(d_model=d_model, n_heads=n_heads, n_kv_heads=1 if n_kv_heads is None else n_kv_heads)
    check_positive(total_n_heads=1 if total_n_heads is None else total_n_heads)
    total = n_heads if total_n_heads is None else total_n_heads
    if total < n_heads:
        raise ValueError(f"total_n_heads: expected at least n_heads={n_heads}, got {total}")
    if d_model % total:
        raise ValueError(f"d_model: {d_model} is not divisible by the total number of heads, {total}")
    if n_kv_heads is not None and n_heads % n_kv_heads:
        raise ValueError(f"n_kv_heads: expected a positive divisor of n_heads={n_heads}, got {n_kv_heads}")
    return d_model // total


def split_heads(x: Tensor, heads: int) -> Tensor:
    """``(B, L, H * D) -> (B, H, L, D)``."""
    return torch.unflatten(x, -1, (heads, -1)).transpose(1, 2)  # the function is faster than the method


def merge_heads(x: Tensor) -> Tensor:
    """``(B, H, L, D) -> (B, L, H * D)``."""
    batch, heads, n, width = x.shape
    return x.transpose(1, 2).reshape(batch, n, heads * width)  # faster than flatten


class Heads(TypedModule):
    """Heads of one kind. Arguments as :class:`~dual_attention.attention.Attention`.

    Subclasses register the projections of queries and keys, then what :meth:`_add_output` does.
    """

    _observed: tuple[str, ...]
    """Names of the taps: those of :mod:`~dual_attention.functional.reference`; ``symbols``, as they come to the layer;
    and ``head_output``, the input of ``wo`` by head, ``(B, H, N, d_h)``."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float,
        n_kv_heads: int | None,
        total_n_heads: int | None,
        window: int | None,
        key_dim: int | None = None,
        attn_scale: float | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim(d_model, n_heads, n_kv_heads, total_n_heads)
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        self.dropout = check_dropout("dropout", dropout)
        check_positive(window=1 if window is None else window)
        self.window = window
        self.key_dim = self.head_dim if key_dim is None else key_dim
        check_positive(key_dim=self.key_dim)
        self.attn_scale = 1 / math.sqrt(self.key_dim) if attn_scale is None else attn_scale
        check_finite(attn_scale=self.attn_scale)
        self.rel_pos_keys: Any = None
        self.taps = Taps(self._observed)

    def _add_output(
        self, add_bias_kv: bool, add_bias_out: bool, out_dropout: float | None, out_dim: int | None
    ) -> None:
        """Register the projections of values, or symbols, and of the output."""
        width = self.n_heads * self.head_dim
        check_positive(out_dim=1 if out_dim is None else out_dim)
        rate = self.dropout if out_dropout is None else check_dropout("out_dropout", out_dropout)
        self.wv = nn.Linear(self.d_model, self.n_kv_heads * self.head_dim, bias=add_bias_kv)
        self.wo = nn.Linear(width, width if out_dim is None else out_dim, bias=add_bias_out)
        self.resid_dropout = nn.Dropout(rate)

    def _call(self, x: Tensor, new: int, given: Given, past: Past, *, crosses: bool) -> HeadsCall:
        """The state of a call, for receivers ``x`` ``(B, N, d)`` and so many ``new`` senders.

        It ``crosses`` if these are other objects. Masks and bias are for all senders, those which a window has let go
        of included. A pattern that was built for all layers of a model is narrowed by what belongs to this one: its
        window, and the senders still in its cache.
        """
        batch, n, _ = x.shape
        heads, window, bias = self.n_heads, self.window, given.attn_bias
        fixed = None if past.cache is None else past.cache.steps
        order = window if fixed is None else None
        pattern = checked_pattern(given, x, heads=heads, earlier=past.senders, new=new, window=order)
        if fixed is not None:
            pattern = pattern.once(("held", window), lambda: pattern.with_mask(fixed.seen(window)))
        if bias is not None:
            bias = check_bias(bias, batch=batch, heads=heads, n=n, m=past.senders + new)
        if past.held != past.senders:
            pattern, bias = pattern.last_senders(past.held + new), last_columns(bias, past.held + new)
        rate = self.dropout if self.training else 0.0
        observe = observer_of(self, past.position, past.senders - past.held, crosses=crosses)
        steps = None if observe is None else observe.steps
        freqs = None if given.freqs_cos is None and given.freqs_sin is None else (given.freqs_cos, given.freqs_sin)
        return HeadsCall(batch, n, new, pattern, bias, past, freqs, rate, observe, steps)

    def _output(self, attended: Tensor, call: HeadsCall) -> Tensor:
        """Output ``(B, N, H * d_h)`` of what the heads attended, ``(B, H, N, d_h)``."""
        if call.observe is not None:
            attended = call.observe("head_output", attended)
        own: Any = self._modules  # which is faster than attributes
        output, dropout = own["wo"](merge_heads(attended)), own["resid_dropout"]
        idle = not dropout.training and type(dropout) is nn.Dropout and not is_watched(dropout)
        return output if idle else dropout(output)

    def _bias(self, call: HeadsCall, q: Tensor, dtype: torch.dtype) -> Tensor | None:
        """The bias of a call in a type, with the scores of relative positions if these heads have any."""
        bias = call.bias
        if self.rel_pos_keys is not None:
            scores = self.rel_pos_keys.scores(self.attn_scale * q, call.pattern.m, offset=call.past.offset())
            bias = scores if bias is None else bias + scores
        return None if bias is None else bias.to(dtype)

    @abstractmethod
    def _kept(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what is kept of each sender."""

    def _kept_wide(self) -> tuple[str, ...]:
        """Names of what is kept in float32 where the rest has a narrower type."""
        return ()

    def new_cache(self, max_length: int | None = None) -> TokenCache:
        """An empty cache of keys (after RoPE) and values or symbols, unless these are relative to positions.

        For causal self-attention, token by token or in chunks; ``max_length``: most tokens to come, reserved at once.
        """
        return TokenCache(self._kept(), window=self.window, max_length=max_length, wide=self._kept_wide())
