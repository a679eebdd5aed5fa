"""Passing tokens through the blocks of a model, and recording hidden states and maps on the way.

Shapes: B batch, N length (of the new tokens, with a cache), t earlier tokens, d width of the model, L blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..dual_attention import DualAttentionOutput


class Trace(NamedTuple):
    """Record of a pass through the blocks of a model of tokens.

    Attributes:
        hidden: ``(B, N, d)``, after the last norm: the output of an encoder, and the input of a language model's output
            layer.
        states: L + 1 tensors ``(B, N, d)``: the input of each block, and the output of the last, before the last norm.
        maps: of each block its attention weights ``(B, H, N, t + N)``, or its
            :class:`~dual_attention.dual_attention.DualAttentionOutput`.
    """

    hidden: Tensor
    states: tuple[Tensor, ...]
    maps: tuple[Tensor | DualAttentionOutput, ...]


class Step(Protocol):
    """One block of a model, with all that it needs."""

    def __call__(self, number: int, x: Tensor, symbols: Any, /, need_weights: bool = False) -> tuple[Any, Any]:
        """Apply block ``number``.

        Args:
            symbols: those that the block before returned; None for the first.
            need_weights: return the pair of tokens and maps instead of tokens.

        Returns:
            Tokens, and symbols for the next block; None if there are none or it retrieves its own.
        """
        ...


def are_causal(blocks: Iterable[nn.Module]) -> bool:
    """Whether all blocks hide later tokens; a block that does not tell is left to hide them itself."""
    return all(getattr(block, "causal", False) for block in blocks)


def apply_blocks(
    step: Callable[[int, Tensor, Any], tuple[Any, Any]], n_blocks: int, x: Tensor, *, recompute: bool = False
) -> Tensor:
    """Pass tokens through all blocks.

    Args:
        step: a :class:`Step`, or one that has no maps to give.
        recompute: blocks keep only their inputs for the backward pass, and are computed again there.
    """
    recompute = recompute and torch.is_grad_enabled()
    symbols: Any = None
    for number in range(n_blocks):
        if recompute:
            x, symbols = checkpoint(step, number, x, symbols, use_reentrant=False)
        else:
            x, symbols = step(number, x, symbols)
    return x


def trace_blocks(step: Step, n_blocks: int, x: Tensor) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
    """States before, between and after the blocks, ``n_blocks + 1`` of them, and the maps of each."""
    symbols: Any = None
    states, maps = [x], []
    for number in range(n_blocks):
        (x, found), symbols = step(number, x, symbols, need_weights=True)
        states.append(x)
        maps.append(found)
    return tuple(states), tuple(maps)
