"""The one mask convention of the library.

Shapes: B batch, H heads, N receivers (queries), M senders (keys).

A mask is a boolean tensor in which ``True`` means *may be attended*. Three arguments carry masks, and what each one
means never depends on the shape it happens to have:

``attn_mask``     ``(N, M)``, or four-dimensional and broadcastable to ``(B, H, N, M)``
``padding_mask``  ``(B, M)``, ``True`` at the real senders of each example
``is_causal``     receiver ``i`` sees senders ``j <= i``; needs ``N == M``

All that are given must allow a pair for it to be attended. Additive (float) biases are a separate argument.
"""

from __future__ import annotations

import torch
from torch import Tensor


def causal_mask(length: int, *, device: torch.device | str | None = None) -> Tensor:
    """Boolean mask ``(length, length)``, ``True`` at ``[i, j]`` where ``j <= i``."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def padding_mask(lengths: Tensor, max_length: int | None = None) -> Tensor:
    """Mask of the real positions of right-padded sequences.

    Args:
        lengths: integers, shape ``(B,)``, the number of real positions of each sequence.
        max_length: M; by default the largest of ``lengths``.

    Returns:
        Boolean tensor ``(B, M)``, ``True`` at real positions.

    Raises:
        ValueError: if ``lengths`` is not a vector of integers, or one of them exceeds ``max_length``.
    """
    if lengths.dim() != 1 or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(
            f"lengths: expected a vector of integers, got shape {tuple(lengths.shape)} of dtype {lengths.dtype}"
        )
    longest = int(lengths.max()) if lengths.numel() else 0
    if max_length is None:
        max_length = longest
    elif longest > max_length:
        raise ValueError(f"lengths: expected at most max_length={max_length}, got {longest}")
    return torch.arange(max_length, device=lengths.device) < lengths[:, None]


def combine_masks(
    attn_mask: Tensor | None = None,
    padding_mask: Tensor | None = None,
    is_causal: bool = False,
    *,
    batch: int,
    heads: int,
    n: int,
    m: int,
    device: torch.device | str | None = None,
) -> Tensor | None:
    """Check the mask arguments and combine them into one.

    Returns:
        A boolean tensor of four dimensions, broadcastable to ``(B, H, N, M)``; ``None`` if nothing is masked.

    Raises:
        TypeError: if a mask is not boolean.
        ValueError: if a mask has the wrong shape, or ``is_causal`` is asked for with ``N != M``.
    """
    combined = None
    if attn_mask is not None:
        combined = _as_four_dimensional("attn_mask", attn_mask, (batch, heads, n, m))
    if padding_mask is not None:
        require_boolean("padding_mask", padding_mask)
        if tuple(padding_mask.shape) != (batch, m):
            raise ValueError(
                f"padding_mask: expected shape (batch, senders) = {(batch, m)}, got {tuple(padding_mask.shape)}"
            )
        padding = padding_mask[:, None, None, :]
        combined = padding if combined is None else combined & padding
    if is_causal:
        if n != m:
            raise ValueError(f"is_causal: needs as many receivers as senders, got {n} receivers and {m} senders")
        causal = causal_mask(n, device=device)[None, None]
        combined = causal if combined is None else combined & causal
    return combined


def check_bias(bias: Tensor | None, *, batch: int, heads: int, n: int, m: int) -> Tensor | None:
    """Check an additive attention bias; returns it with four dimensions, broadcastable to ``(B, H, N, M)``.

    Raises:
        TypeError: if it is not of a floating-point type.
        ValueError: if its shape does not broadcast.
    """
    if bias is None:
        return None
    if not bias.is_floating_point():
        raise TypeError(f"attn_bias: expected a floating-point tensor, got dtype {bias.dtype} (masks are `attn_mask`)")
    return _broadcastable("attn_bias", bias, (batch, heads, n, m))


def require_boolean(name: str, mask: Tensor) -> None:
    """Raise ``TypeError`` unless ``mask`` is boolean."""
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name}: expected a boolean tensor (True = may be attended), got dtype {mask.dtype}; "
            "additive float biases are the separate argument `attn_bias`"
        )


def _as_four_dimensional(name: str, mask: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
    require_boolean(name, mask)
    return _broadcastable(name, mask, shape)


def _broadcastable(name: str, tensor: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
    received = tuple(tensor.shape)
    if tensor.dim() == 2:
        tensor = tensor[None, None]
    fits = tensor.dim() == 4 and all(have in (1, want) for have, want in zip(tensor.shape[:2], shape[:2], strict=True))
    fits = fits and tensor.shape[2] in (1, shape[2]) and tensor.shape[3] in (1, shape[3])
    if not fits:
        raise ValueError(
            f"{name}: expected shape (N, M) = {shape[2:]} or broadcastable to (B, H, N, M) = {shape}, got {received}"
            + ("; a mask of padded senders is the argument `padding_mask`" if name == "attn_mask" else "")
        )
    return tensor
