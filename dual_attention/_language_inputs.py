"""What language models are given: checked, and where its tokens stand.

Shapes: B batch, N length (of the new tokens, with a cache), t earlier tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .functional import positions_from_padding, positions_from_segments
from .functional.checks import is_readable
from .functional.masks import require_boolean
from .positional_encoding import check_positions

IGNORED = -1
"""The target that is not scored."""


def is_integer(x: Tensor) -> bool:
    """Whether a tensor holds integers; booleans are none."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def check_tokens(x: Tensor, vocab_size: int) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``x`` holds token ids ``(B, N)``.

    On the CPU their range is checked, too; elsewhere it is the embedding that fails.
    """
    if not is_integer(x):
        raise TypeError(f"x: expected token ids, integers, got dtype {x.dtype}")
    if x.dim() != 2:
        raise ValueError(f"x: expected token ids of shape (batch, length), got {tuple(x.shape)}")
    if x.numel() and is_readable(x) and not 0 <= int(x.min()) <= int(x.max()) < vocab_size:
        raise ValueError(
            f"x: expected token ids from 0 to {vocab_size - 1} (vocab_size={vocab_size}), "
            f"got {int(x.min())} to {int(x.max())}"
        )


def check_masks(x: Tensor, padding_mask: Tensor | None, segments: Tensor | None, start: int, cached: bool) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless masks fit the tokens ``x`` after ``start`` earlier ones."""
    batch, length = x.shape
    if padding_mask is not None:
        require_boolean("padding_mask", padding_mask)
        if tuple(padding_mask.shape) != (batch, start + length):
            raise ValueError(
                f"padding_mask: expected shape (batch, length) = {(batch, start + length)}, "
                + (f"the {start} tokens in the cache included, " if start else "")
                + f"got {tuple(padding_mask.shape)}"
            )
    if segments is None:
        return
    if cached:
        raise ValueError("segments: packed sequences cannot be continued from a cache; give one or the other")
    if not is_integer(segments) or tuple(segments.shape) not in ((1, length), (batch, length)):
        raise ValueError(
            f"segments: expected integers of shape (batch or 1, length) = {(batch, length)}, "
            f"got shape {tuple(segments.shape)} of dtype {segments.dtype}"
        )


def token_positions(
    x: Tensor,
    padding_mask: Tensor | None,
    segments: Tensor | None,
    positions: Tensor | None,
    start: int,
    context: int,
) -> Tensor | None:
    """Positions of the tokens ``x``, ``(B or 1, N)``, or None if they are N in a row after ``start`` earlier ones.

    Raises:
        ValueError: if the sequence, or one of those packed into it, is longer than the context.
    """
    batch, length = x.shape
    if positions is None and segments is None:
        if start + length > context:
            raise ValueError(
                f"x: a sequence of {start + length} tokens is longer than the context, max_block_size={context}"
            )
        return None if padding_mask is None else positions_from_padding(padding_mask)[:, start:]
    if positions is None:
        assert segments is not None
        positions = positions_from_segments(segments, padding_mask)
        if length <= context:
            return positions
    check_positions(positions, batch, length, context - 1, f"the context, max_block_size={context}")
    return positions


def check_targets(targets: Tensor, x: Tensor) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless there is one target for each token of ``x``."""
    if not is_integer(targets):
        raise TypeError(f"targets: expected integers, got dtype {targets.dtype}")
    if targets.shape != x.shape:
        raise ValueError(f"targets: expected the shape of x, {tuple(x.shape)}, got {tuple(targets.shape)}")
