"""The state of one call of heads, and types of calls. B batch, H heads, N receivers, M senders."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypedDict, TypeVar, overload

from torch import Tensor, nn

from ..functional import MaskPattern, RelativeSymbols, apply_rotary
from ..functional.masks import Segments
from .cache import Cache
from .continuation import Past
from .taps import Observer

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", covariant=True)


@dataclass(frozen=True)
class HeadsCall:
    """One call of heads: what its receivers see, where they stand, and what is asked for.

    Attributes:
        batch, n, new: examples, receivers and new senders.
        pattern: pairs that may be attended, of N receivers and the M senders that are held or new.
        bias: added to the scaled scores, broadcastable to ``(B, H, N, M)``.
        past: place at which the new tokens continue.
        freqs_cos, freqs_sin: RoPE tables, both or neither.
        dropout: rate on the attention weights.
        need_weights: whether the maps are returned.
        observe: observer of the call; None if nobody watches.
    """

    batch: int
    n: int
    new: int
    pattern: MaskPattern
    bias: Tensor | None
    past: Past
    freqs_cos: Tensor | None
    freqs_sin: Tensor | None
    dropout: float
    need_weights: bool
    observe: Observer | None

    def rotate_receivers(self, q: Tensor) -> Tensor:
        """Queries ``(B, H, N, D)`` with RoPE."""
        return rotate(q, self.freqs_cos, self.freqs_sin, self.past.position)

    def rotate_senders(self, k: Tensor) -> Tensor:
        """New keys ``(B, G, new, D)`` with RoPE."""
        return rotate(k, self.freqs_cos, self.freqs_sin, self.past.senders)

    @property
    def steps(self) -> Observer | None:
        """The observer of steps within the operation; None if nobody watches one."""
        return None if self.observe is None else self.observe.steps

    def observed(self, name: str, x: Tensor) -> Tensor:
        """A step of the call, as an observer leaves it if there is one."""
        return x if self.observe is None else self.observe(name, x)

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


def takes(other: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function the parameters of another, or of a class, for callers, editors and checkers."""

    def declare(function: Callable[..., R]) -> Callable[P, R]:
        returned = inspect.signature(function).return_annotation
        signature = inspect.signature(other).replace(return_annotation=returned)
        function.__signature__ = signature
        return function

    return declare


class _Forwards(Protocol[P, T]):
    def forward(self, *args: P.args, **kwargs: P.kwargs) -> T: ...


class TypedModule(nn.Module):
    """A module whose calls take and return what its ``forward`` does."""

    if TYPE_CHECKING:

        def __call__(self: _Forwards[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...


class _BlockInputs(TypedDict, total=False):
    symbols: Tensor | RelativeSymbols
    context: Tensor
    positions: Tensor | None
    freqs_cos: Tensor | None
    freqs_sin: Tensor | None
    attn_mask: Tensor | MaskPattern | None
    padding_mask: Tensor | None
    segments: Segments | None
    attn_bias: Tensor | None
    context_mask: Tensor | MaskPattern | None
    context_padding_mask: Tensor | None
    cache: Cache | None


class TypedBlock(nn.Module):
    """A module whose calls return a tensor, or with ``need_weights=True`` the tuple that its ``forward`` declares.

    Without that argument a checker compares a call with ``forward`` itself; with it, only the names of its inputs.
    """

    if TYPE_CHECKING:

        @overload
        def __call__(
            self: _Forwards[..., Tensor | T], *inputs: Any, need_weights: Literal[True], **named: Unpack[_BlockInputs]
        ) -> T: ...
        @overload
        def __call__(
            self: _Forwards[..., Tensor | T], *inputs: Any, need_weights: bool, **named: Unpack[_BlockInputs]
        ) -> Tensor | T: ...
        @overload
        def __call__(self: _Forwards[P, Any], *inputs: P.args, **named: P.kwargs) -> Tensor: ...
        def __call__(self, *inputs: Any, **named: Any) -> Any: ...
