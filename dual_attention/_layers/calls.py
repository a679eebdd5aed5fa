"""Types of calls, for type checkers and editors: ``nn.Module`` declares that they take and return anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypedDict, TypeVar

from torch import Tensor, nn

from ..functional import MaskPattern
from ..functional.masks import Segments
from .cache import Cache

P = ParamSpec("P")
T = TypeVar("T", covariant=True)


class _Forwards(Protocol[P, T]):
    def forward(self, *args: P.args, **kwargs: P.kwargs) -> T: ...


class TypedModule(nn.Module):
    """A module whose calls take and return what its ``forward`` does."""

    if TYPE_CHECKING:

        @property
        def __call__(self: _Forwards[P, T]) -> Callable[P, T]: ...  # pyright: ignore[reportIncompatibleMethodOverride]


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
