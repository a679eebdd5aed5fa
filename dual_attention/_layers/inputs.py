"""What models share about their inputs: checks of tokens, vectors and padding, and where tokens stand.

Shapes: B batch, L length, t earlier tokens in a cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..functional import positions_from_padding, positions_from_segments
from ..functional.checks import is_readable
from .heads import check_sequence


def is_integer(x: Tensor) -> bool:
    """Whether a tensor holds integers; booleans are none."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def check_tokens(name: str, tokens: Tensor, vocab_size: int) -> None:
    """Check token ids ``(B, L)``.

    Their values are looked at on the CPU only, and not while compiling; elsewhere it is the embedding that fails.

    Raises:
        TypeError: if they are not integers.
        ValueError: if they have another shape, or one is negative or not below ``vocab_size``.
    """
    if not is_integer(tokens):
        raise TypeError(f"{name}: expected integer token ids, got dtype {tokens.dtype}")
    if tokens.dim() != 2:
        raise ValueError(f"{name}: expected token ids of shape (batch, length), got shape {tuple(tokens.shape)}")
    if not tokens.numel() or not is_readable(tokens):
        return
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocab_size:
        raise ValueError(f"{name}: expected token ids from 0 to {vocab_size - 1}, got {low} to {high}")


def check_vectors(name: str, vectors: Tensor, dim: int) -> None:
    """Check vectors ``(B, L, dim)``; ``TypeError`` unless they are floating point, ``ValueError`` for another shape."""
    if not vectors.is_floating_point():
        raise TypeError(f"{name}: expected floating-point vectors, got dtype {vectors.dtype}")
    check_sequence(name, vectors, dim)


def check_padding(name: str, padding_mask: Tensor | None, batch: int, length: int) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless a padding mask, if there is one, is boolean ``(batch, length)``."""
    if padding_mask is None:
        return
    if padding_mask.dtype != torch.bool:
        raise TypeError(f"{name}: expected a boolean tensor (True = a real position), got dtype {padding_mask.dtype}")
    if tuple(padding_mask.shape) != (batch, length):
        raise ValueError(f"{name}: expected shape (batch, length) = {(batch, length)}, got {tuple(padding_mask.shape)}")


def check_segments(segments: Tensor | None, batch: int, length: int) -> None:
    """Raise ``ValueError`` unless segments, if there are any, are integers ``(batch or 1, length)``."""
    if segments is None:
        return
    if not is_integer(segments) or tuple(segments.shape) not in ((batch, length), (1, length)):
        raise ValueError(
            f"segments: expected integers of shape (batch or 1, length) = {(batch, length)}, "
            f"got shape {tuple(segments.shape)} of dtype {segments.dtype}"
        )


def token_positions(
    padding_mask: Tensor | None = None, segments: Tensor | None = None, *, after: int = 0
) -> Tensor | None:
    """Where tokens stand, if that is not simply their place in the row: among the real ones of their own sequence.

    Args:
        padding_mask: boolean ``(B, t + L)``.
        segments: integers ``(B or 1, L)``, of sequences packed into one; then t is 0.
        after: t.

    Returns:
        Integers ``(B or 1, L)``, or None.
    """
    if segments is not None:
        return positions_from_segments(segments, padding_mask)
    return None if padding_mask is None else positions_from_padding(padding_mask)[:, after:]
