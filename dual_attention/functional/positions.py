"""Positions of tokens in sequences that are padded, or packed end to end into one.

Shapes: B batch, L length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import check_tensor
from .masks import require_boolean


def positions_from_padding(padding_mask: Tensor) -> Tensor:
    """Position of each token among the real tokens of its example, whichever side the padding is on.

    Args:
        padding_mask: boolean, ``(B, L)``; True = a real token.

    Returns:
        Integers ``(B, L)``: how many real tokens come before. Padding has the position of the last real token before
        it, or 0.

    Raises:
        TypeError: if the mask is not boolean.

    >>> positions_from_padding(torch.tensor([[False, True, True], [True, True, False]]))
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    require_boolean("padding_mask", padding_mask)
    return (padding_mask.long().cumsum(dim=-1) - 1).clamp_min(0)


def positions_from_segments(segments: Tensor, padding_mask: Tensor | None = None) -> Tensor:
    """Position of each token within its own sequence, where several are packed into one, end to end.

    Args:
        segments: integers ``(B or 1, L)``, one number for each sequence; positions begin again wherever it changes.
        padding_mask: boolean, ``(B, L)``; True = a real token. Others are not counted, as in
            :func:`positions_from_padding`.

    Returns:
        Integers of the broadcast shape, ``(B or 1, L)``.

    Raises:
        TypeError: if the mask is not boolean.

    >>> positions_from_segments(torch.tensor([[0, 0, 1, 1, 1]]))
    tensor([[0, 1, 0, 1, 2]])
    """
    if padding_mask is None:
        real = torch.ones_like(segments, dtype=torch.long)
    else:
        require_boolean("padding_mask", padding_mask)
        real = padding_mask.long().expand(torch.broadcast_shapes(segments.shape, padding_mask.shape))
    counted = real.cumsum(dim=-1)
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    # Counts never decrease, so the largest at a beginning so far is that of the last beginning.
    before = (counted - real).masked_fill(~begins, 0).cummax(dim=-1).values
    return (counted - before - 1).clamp_min(0)


def segments_from_cu_seqlens(cu_seqlens: Tensor, length: int | None = None) -> Tensor:
    """Segments of sequences packed end to end, from where each begins.

    Args:
        cu_seqlens: integers ``(S + 1,)``, cumulative lengths: zero, then the end of each of S sequences.
        length: of the packed sequence; by default the last end. Positions after it form one more segment.

    Returns:
        Integers ``(1, length)``: the number of the sequence that each position belongs to.

    Raises:
        TypeError: if ``cu_seqlens`` is no tensor.
        ValueError: if ``cu_seqlens`` is not increasing from zero, or exceeds ``length``.

    >>> segments_from_cu_seqlens(torch.tensor([0, 2, 5]))
    tensor([[0, 0, 1, 1, 1]])
    """
    check_tensor("cu_seqlens", cu_seqlens)
    if cu_seqlens.dim() != 1 or cu_seqlens.is_floating_point() or not len(cu_seqlens) or cu_seqlens[0] != 0:
        raise ValueError(f"cu_seqlens: expected a vector of integers that begins with 0, got {cu_seqlens}")
    if (cu_seqlens.diff() < 0).any():
        raise ValueError(f"cu_seqlens: expected ends that never decrease, got {cu_seqlens}")
    last = int(cu_seqlens[-1])
    length = last if length is None else length
    if last > length:
        raise ValueError(f"cu_seqlens: expected at most length={length}, got {last}")
    positions = torch.arange(length, device=cu_seqlens.device)
    return torch.bucketize(positions, cu_seqlens[1:], right=True)[None]


segments_from_lengths = segments_from_cu_seqlens
"""Its former name, which sounds as if it took lengths."""
