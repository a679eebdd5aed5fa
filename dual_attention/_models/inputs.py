"""What language models are given: checked, and where its tokens stand.

Shapes: B batch, N length (of the new tokens, with a cache), t earlier tokens.
"""

from __future__ import annotations

from torch import Tensor

from .._layers.inputs import check_segments, is_integer
from ..functional import positions_from_padding, positions_from_segments
from ..functional.masks import require_boolean
from ..positional_encoding import check_positions

IGNORED = -1
"""The target that is not scored."""


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
    check_segments(segments, batch, length)


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
