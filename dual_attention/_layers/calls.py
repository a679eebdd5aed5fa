"""Types of calls: modules whose calls an editor and a type checker see as their ``forward``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypedDict, TypeVar, overload

from torch import Tensor, nn

from ..functional import MaskPattern, RelativeSymbols
from ..functional.masks import Segments
from .cache import Cache

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", covariant=True)


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

    def named_modules(self, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True) -> Any:
        """As any module's, but a module that has several names is there under the first one only, in any case.

        PyTorch loses its way among the names of one module: after ``functional_call`` its parameters are those of the
        call, and an export that ``torch.distributed.pipelining`` is to split does not find its parts.
        """
        return super().named_modules(memo, prefix)


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
