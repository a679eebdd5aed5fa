"""A stack of blocks: tokens pass through it, and hidden states and maps are recorded on the way.

Shapes: B batch, N length (of the new tokens, with a cache), t earlier tokens, d width of the model, L blocks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .._layers.cache import Cache
from .._layers.calls import TypedModule
from .._layers.symbols import Symbols
from ..dual_attention import DualAttentionOutput


class Trace(NamedTuple):
    """Record of a pass through the blocks of a model of tokens.

    Attributes:
        hidden: ``(B, N, d)``, after the last norm: the output of an encoder, and the input of a language model's output
            layer.
        states: L + 1 tensors ``(B, N, d)``: the input of each block, and the output of the last, before the last norm.
        maps: of each block its attention weights ``(B, H, N, t + N)``, or its
            :class:`~dual_attention.dual_attention.DualAttentionOutput`.

    >>> encoder = TransformerEncoder(vocab_size=50, d_model=32, n_layers=2, n_heads=2, max_block_size=16)
    >>> trace = encoder.trace(torch.randint(50, (2, 9)))
    >>> len(trace.states), len(trace.maps), trace.maps[0].shape
    (3, 2, torch.Size([2, 2, 9, 9]))
    """

    hidden: Tensor
    states: tuple[Tensor, ...]
    maps: tuple[Tensor | DualAttentionOutput, ...]


class BlockInputs(NamedTuple):
    """Inputs of every block beside its tokens.

    Attributes:
        arguments: keyword arguments of all blocks.
        positions: integers ``(B or 1, N)``, for symbols; None if tokens stand in a row.
        caches: for each block the caches of its ``"blocks"`` and, if it retrieves any, ``"symbols"``; or none at all.
        grid_size: rows and columns of the patches of an image.
    """

    arguments: dict[str, Any]
    positions: Tensor | None = None
    caches: Sequence[Mapping[str, Cache]] = ()
    grid_size: tuple[int, int] = (0, 0)


class StackModel(TypedModule):
    """A model with one stack of equal blocks, which are given symbols if they have relational heads."""

    gradient_checkpointing: bool = False
    """Whether blocks keep only their inputs for the backward pass, and are computed again there."""

    update_symbols_each_layer: bool = True
    """Whether symbols are retrieved anew for each block, or once for the first."""

    @abstractmethod
    def _stack(self) -> nn.ModuleList:
        """The blocks."""

    def _retrieve(self, number: int, x: Tensor, inputs: BlockInputs, cache: Cache | None) -> Symbols | None:
        """Symbols for the tokens that enter a block, before its normalisation; None for one that takes none."""
        return None

    def _block(
        self, number: int, x: Tensor, symbols: Symbols | None, inputs: BlockInputs, need_weights: bool = False
    ) -> tuple[Any, Symbols | None]:
        """Output of a block, and symbols for the next; with all that gradient checkpointing has to repeat."""
        caches = inputs.caches[number] if inputs.caches else {}
        if symbols is None:
            symbols = self._retrieve(number, x, inputs, caches.get("symbols"))
        given = () if symbols is None else (symbols,)
        cache = {"cache": caches["blocks"]} if caches else {}
        out = self._stack()[number](x, *given, need_weights=need_weights, **inputs.arguments, **cache)
        return out, None if self.update_symbols_each_layer else symbols

    def _pass(
        self,
        x: Tensor,
        inputs: BlockInputs,
        n_blocks: int | None = None,
        seen: Callable[[int, Tensor], None] | None = None,
    ) -> Tensor:
        """Tokens ``(B, N, d)`` after all blocks, or the first ``n_blocks``; ``seen`` as :func:`apply_blocks`."""
        recompute = self.gradient_checkpointing
        if recompute and inputs.caches:
            recompute = all(cache.gathers for caches in inputs.caches for cache in caches.values())

        def step(number: int, x: Tensor, symbols: Symbols | None) -> tuple[Any, Symbols | None]:
            return self._block(number, x, symbols, inputs)

        n_blocks = len(self._stack()) if n_blocks is None else n_blocks
        return apply_blocks(step, n_blocks, x, recompute=recompute, seen=seen)

    def _record(self, x: Tensor, inputs: BlockInputs) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
        """Tokens before, between and after the L blocks, L + 1 of them, and the maps of each block."""
        symbols: Symbols | None = None
        states, maps = [x], []
        for number in range(len(self._stack())):
            (x, found), symbols = self._block(number, x, symbols, inputs, need_weights=True)
            states.append(x)
            maps.append(found)
        return tuple(states), tuple(maps)


def are_causal(blocks: Iterable[nn.Module]) -> bool:
    """Whether all blocks hide later tokens; a block that does not tell is left to hide them itself."""
    return all(getattr(block, "causal", False) for block in blocks)


def apply_blocks(
    step: Callable[[int, Tensor, Any], tuple[Tensor, Any]],
    n_blocks: int,
    x: Tensor,
    *,
    recompute: bool = False,
    seen: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    """Pass tokens through all blocks: ``step`` takes a block's number, its tokens and the symbols of the one before.

    With ``recompute``, blocks keep only their inputs for the backward pass, and are computed again there. ``seen`` is
    called with the number of each block and its output.
    """
    recompute = recompute and torch.is_grad_enabled()
    symbols: Any = None
    for number in range(n_blocks):
        if recompute:
            x, symbols = checkpoint(step, number, x, symbols, use_reentrant=False)
        else:
            x, symbols = step(number, x, symbols)
        if seen is not None:
            seen(number, x)
    return x
