"""Types of calls, for type checkers and editors: ``nn.Module`` declares that they take and return anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypedDict, TypeVar

from torch import Tensor, nn

from ..functional import MaskPattern
from ..functional.masks import Segments
from .cache import Cache

P = ParamSpec("P")
T = TypeVar("T")


def typed_call(forward: Callable[P, T]) -> Callable[P, T]:
    """Give calls of a module the type of its ``forward``, by a line after that: ``__call__ = typed_call(forward)``."""
    call: Any = nn.Module.__call__
    return call


class AttentionMasks(TypedDict, total=False):
    """Masks and biases of attention, see :meth:`Attention.forward <dual_attention.attention.Attention.forward>`."""

    attn_mask: Tensor | MaskPattern | None
    padding_mask: Tensor | None
    segments: Segments | None
    attn_bias: Tensor | None


class SelfAttentionCall(AttentionMasks, total=False):
    """Further inputs of blocks, by name; tables of rotary positions can be given by position, too."""

    freqs_cos: Tensor | None
    freqs_sin: Tensor | None
    cache: Cache | None


class CrossAttentionCall(SelfAttentionCall, total=False):
    """Further inputs of blocks with cross-attention."""

    context_mask: Tensor | MaskPattern | None
    context_padding_mask: Tensor | None
