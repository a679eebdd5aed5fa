"""Types of calls, for type checkers and editors: ``layer(x)`` takes and returns what ``layer.forward(x)`` does.

``nn.Module`` declares that calls take and return anything. A class says more by a declaration after its ``forward``::

    if TYPE_CHECKING:

        @typed_as(forward)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypedDict, TypeVar

from torch import Tensor

from ..functional import MaskPattern
from ..functional.masks import Segments
from .cache import Cache

P = ParamSpec("P")
T = TypeVar("T")


def typed_as(forward: Callable[P, T]) -> Callable[[Callable[..., Any]], Callable[P, T]]:
    """Give a method the type of ``forward``."""
    return lambda call: forward


class SelfAttentionCall(TypedDict, total=False):
    """Further inputs of blocks, by name; tables of rotary positions can be given by position, too."""

    freqs_cos: Tensor | None
    freqs_sin: Tensor | None
    attn_mask: Tensor | MaskPattern | None
    padding_mask: Tensor | None
    segments: Segments | None
    attn_bias: Tensor | None
    cache: Cache | None


class CrossAttentionCall(SelfAttentionCall, total=False):
    """Further inputs of blocks with cross-attention."""

    context_mask: Tensor | MaskPattern | None
    context_padding_mask: Tensor | None
