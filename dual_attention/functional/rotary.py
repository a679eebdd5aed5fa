"""Rotary position embedding (RoPE; Su et al. 2021, arXiv 2104.09864), on interleaved pairs of features.

Shapes: B batch, H heads, L length, D width of a head (even).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .checks import check_floating_tensors, check_rows, check_same_device, require_rate
from .derivatives import is_traced, needs_plain


def rotary_tables(
    dim: int, length: int, *, theta: float = 10000.0, device: torch.device | str | None = None
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotation angles ``t * theta^(-2c / dim)``.

    Args:
        dim: D, the width of a query or key head; even.
        length: number of positions L.
        theta: base of the frequencies.

    Returns:
        ``(cos, sin)``, each float32 of shape ``(L, D / 2)``.

    >>> cos, sin = rotary_tables(dim=16, length=9)
    >>> cos.shape, sin.shape
    (torch.Size([9, 8]), torch.Size([9, 8]))
    """
    require_rate("theta", theta)
    if dim % 2:
        raise ValueError(f"dim: rotary embedding turns pairs of features, so expected an even width, got {dim}")
    frequencies = float(theta) ** (-torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim)
    angles = torch.outer(torch.arange(length, device=device, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def axial_rotary_tables(
    dim: int, rows: int, columns: int, *, theta: float = 100.0, device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """Tables for a grid, row by row, each ``(rows * columns, dim / 2)``: half of the pairs turn by row, half by column.

    Source: Heo et al. 2024 (arXiv 2403.13298), who take 100 for ``theta``; ``dim`` is a multiple of 4.
    """
    cos, sin = (
        torch.cat((table[:rows, None].expand(-1, columns, -1), table[None, :columns].expand(rows, -1, -1)), dim=-1)
        for table in rotary_tables(dim // 2, max(rows, columns), theta=theta, device=device)
    )
    return cos.flatten(0, 1), sin.flatten(0, 1)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor, *, offset: int = 0) -> Tensor:
    """Rotate each pair of features ``(x_2c, x_2c+1)`` by its position's angle.

    The rotation is computed in float32 or wider, whatever the dtype of ``x``, and returned in the dtype of ``x``.

    Args:
        x: queries or keys, shape ``(B, H, L, D)``.
        cos, sin: tables of shape ``(L', D / 2)``, or ``(B, L', D / 2)`` if positions differ between examples, with
            ``L' >= offset + L``.
        offset: row of the first position in ``x``; the L rows from there on are used.

    Raises:
        ValueError: if the tables are too short or of the wrong width.

    >>> cos, sin = rotary_tables(dim=16, length=9)
    >>> apply_rotary(torch.randn(2, 4, 9, 16), cos, sin).shape
    torch.Size([2, 4, 9, 16])
    """
    check_rows("x", x)
    check_same_device(x=x, freqs_cos=cos, freqs_sin=sin)
    check_floating_tensors(freqs_cos=cos, freqs_sin=sin)
    length, dim = x.shape[-2:]
    stop = offset + length
    for_each = cos.dim() == 3 and cos.shape[0] == x.shape[0]  # a table for each example
    if cos.shape != sin.shape or not (cos.dim() == 2 or for_each) or cos.shape[-1] * 2 != dim or cos.shape[-2] < stop:
        raise ValueError(
            f"freqs_cos, freqs_sin: expected shape (length, width of a head / 2) with at least {stop} rows and "
            f"{dim / 2:g} columns, or one such table for each of {x.shape[0]} examples, "
            f"got {tuple(cos.shape)} and {tuple(sin.shape)}"
        )
    cos, sin = cos[..., offset:stop, :], sin[..., offset:stop, :]
    if for_each:
        cos, sin = cos[:, None], sin[:, None]
    if is_traced() or cos.requires_grad or sin.requires_grad or needs_plain(x, cos, sin):
        return _turn_by_parts(x, cos, sin)
    return _Turn.apply(x, cos, sin) if x.requires_grad and torch.is_grad_enabled() else _turned(x, cos, sin)


def _turn_by_parts(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotation by real operations, which every compiler knows."""
    even, odd = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (-1, 2)).unbind(-1)
    rotated = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return rotated.flatten(-2).type_as(x)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same up to rounding, in one pass over memory: a pair is turned as a complex number."""
    wide = torch.promote_types(torch.promote_types(x.dtype, cos.dtype), torch.float32)
    pairs = torch.view_as_complex(_even_strides(x.to(wide)).unflatten(-1, (-1, 2)))
    turns = torch.complex(cos.to(wide), sin.to(wide))
    return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)


class _Turn(torch.autograd.Function):
    """:func:`_turned`, of which nothing but the tables is kept: the backward pass turns the gradient back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return _Turn.apply(grads[0], cos, -sin), None, None


def _even_strides(x: Tensor) -> Tensor:
    """A tensor whose pairs begin where complex numbers may."""
    fits = x.stride(-1) == 1 and not any(stride % 2 for stride in (*x.stride()[:-1], x.storage_offset()))
    return x if fits else x.clone(memory_format=torch.contiguous_format)
