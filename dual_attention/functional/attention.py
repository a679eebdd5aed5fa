"""Sensory attention: fused when only the result is wanted, the reference when the weights are asked for.

The fused form is PyTorch's scaled dot-product attention.

Shapes: as in :mod:`.reference`, with d_h the width of a value head.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from . import reference
from .checks import (
    are_taken_otherwise,
    check_axes,
    check_dropout,
    check_finite,
    check_floating_tensors,
    check_key_heads,
    check_same_device,
    check_same_dtype,
    check_shapes,
    is_autocast,
    is_open,
)
from .derivatives import differentiable_again, is_traced, needs_plain
from .mask_patterns import MaskPattern, block_of
from .masks import pattern_and_bias
from .padding import zero_padding

LARGEST_MASK = 2**20
"""Entries (receivers times senders) up to which a mask is built whole; beyond, a block of receivers at a time.

A backward pass computes such a block again, and keeps no mask: memory grows with the length, not with its square. Where
an export leaves lengths open, the mask is always built whole."""

BLOCK = 192
"""Receivers in such a block: the fewest that PyTorch's kernel takes 64 at a time."""

BLOCK_ON_GPU = 512
"""The same on a GPU, where small operations wait for one another."""


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Tensor | MaskPattern | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
    observe: reference.Observe | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Sensory attention, ``sum_j softmax_j(scale <q_i, k_j> + bias_ij) v_j``.

    Args:
        q: ``(B, H, N, D)``; k: ``(B, G, M, D)``; v: ``(B, G, M, d_h)``. D and d_h may differ.
        mask: boolean, four-dimensional, broadcastable to ``(B, H, N, M)``, True = may be attended; or a pattern, which
            is never built whole if it is large.
        bias: floating point, broadcastable likewise, added to the scaled scores; minus infinity masks.
        dropout: rate on the weights.
        need_weights: also return the weights, which needs them to be built.
        observe: sees the steps of :func:`.reference.attention` and may replace them; the weights are then built.

    Derivatives by ``torch.func``, forward and second ones go through plain operations, which build all weights. While
    weights are dropped, a fused kernel of PyTorch's may have no second one.

    Returns:
        Attended values ``(B, H, N, d_h)``; the weights ``(B, H, N, M)`` (after dropout), or None. Rows with nothing
        to attend are zero.

    Raises:
        ValueError: if shapes or devices disagree, or the dropout is outside [0, 1).
        TypeError: if types disagree (unless under autocast), a mask is not boolean, or a bias not floating point.

    >>> q, k, v = torch.randn(2, 4, 9, 16), torch.randn(2, 4, 5, 16), torch.randn(2, 4, 5, 16)
    >>> output, weights = attention(q, k, v, scale=0.25, need_weights=True)
    >>> output.shape, weights.shape
    (torch.Size([2, 4, 9, 16]), torch.Size([2, 4, 9, 5]))
    """
    check_axes(q=(q, 4), k=(k, 4), v=(v, 4))
    check_same_device(q=q, k=k, v=v, bias=bias)
    if is_autocast(q):  # which casts them to one type
        check_floating_tensors(q=q, k=k, v=v)
    else:
        check_same_dtype(q=q, k=k, v=v)
    check_dropout("dropout", dropout)
    check_finite(scale=scale)
    (batch, heads, _, width), (groups, m) = q.shape, k.shape[1:3]
    check_shapes(q, k=(k, (batch, groups, m, width)), v=(v, (batch, groups, m, v.shape[3])))
    check_key_heads(heads, groups)
    mask, bias = pattern_and_bias(mask, bias, q=q, m=m)
    options = {"dropout": dropout, "need_weights": need_weights, "observe": observe}
    k, v = zero_padding(mask, k, v)
    return attend_to_values(q, k, v, scale=scale, mask=mask, bias=bias, **options)


def attend_to_values(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: MaskPattern,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
    observe: reference.Observe | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As :func:`attention`, of what has been checked; padded senders are zero, and the bias is of the type of ``q``."""
    if need_weights or observe is not None or (are_taken_otherwise() and needs_plain(q, k, v, bias)):
        whole, seen = mask.dense(q.device), observe or reference.UNOBSERVED
        out, weights = reference.attention(q, k, v, scale=scale, mask=whole, bias=bias, dropout=dropout, observe=seen)
        return out, weights if need_weights else None
    width, value_width = q.shape[3], v.shape[3]
    if width < value_width:  # fused kernels want one width; zeros change neither scores nor values
        k = F.pad(k, (0, value_width - width))  # the queries by blocks
    elif width > value_width:
        v = F.pad(v, (0, width - value_width))
    out = _by_kernels(q, k, v, mask, bias, scale, dropout)
    if out.requires_grad and not dropout:  # which would draw others
        out = differentiable_again(out, partial(_plain, (mask.n, mask.m, *mask.parts), scale), q, k, v, bias)
    return out if width <= value_width else out[..., :value_width], None


def _plain(
    pattern: tuple[Any, ...], scale: float, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None
) -> tuple[Tensor]:
    """Attended values by plain operations; the pattern comes by its parts, without what it has built."""
    mask = MaskPattern(*pattern).dense(q.device)
    k = k[..., : q.shape[3]]  # without what was padded
    return (reference.attention(q, k, v, scale=scale, mask=mask, bias=bias)[0],)


def _by_kernels(
    q: Tensor, k: Tensor, v: Tensor, mask: MaskPattern, bias: Tensor | None, scale: float, dropout: float
) -> Tensor:
    """Attention by PyTorch's kernels, a block of receivers at a time if there are many pairs."""
    n, m = q.shape[2], k.shape[2]
    if mask.only_causal and bias is None:
        out = _fused(q, k, v, (None, None), scale=scale, dropout_p=dropout, is_causal=True)
    elif bias is None and mask.hides_nothing:
        out = _fused(q, k, v, (None, None), scale=scale, dropout_p=dropout)
    elif mask.hides_nothing or is_open(n, m) or n * m <= LARGEST_MASK:
        # Without a bias it is the same in every layer that the pattern serves.
        opened = opened_once(mask, q) if bias is None else opened_mask(mask.dense(q.device), q.dtype, bias)
        out = _fused(q, k, v, opened, scale=scale, dropout_p=dropout)
    else:
        size = BLOCK if q.is_cpu else BLOCK_ON_GPU
        block = partial(_block, mask, scale, dropout)
        if torch.is_grad_enabled() and not is_traced():
            block = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=dropout > 0)
        out = _joined((block(slice(start, min(start + size, n)), q, k, v, bias) for start in range(0, n, size)), n)
    return out


def _joined(blocks: Iterator[Tensor], n: int) -> Tensor:
    """Blocks of receivers, N in all, in one tensor; unless gradients need it, none is kept until the last is there.

    As PyTorch's kernels have it, the heads of a receiver lie side by side: they are merged without a copy.
    """
    of_receivers = (block.transpose(1, 2) for block in blocks)
    if torch.is_grad_enabled() or is_traced():
        return torch.cat([*of_receivers], dim=1).transpose(1, 2)
    first, start = next(of_receivers), 0
    out = first.new_empty(first.shape[0], n, *first.shape[2:])
    for part in itertools.chain([first], of_receivers):
        out[:, start : start + part.shape[1]] = part
        start += part.shape[1]
    return out.transpose(1, 2)


def _block(
    mask: MaskPattern, scale: float, dropout: float, rows: slice, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None
) -> Tensor:
    columns = slice(*mask.senders(rows.start, rows.stop))
    part_bias = None if bias is None else block_of(bias, rows, columns)
    opened = opened_mask(mask.block(rows, columns, q.device), q.dtype, part_bias)
    return _fused(q[:, :, rows], k[:, :, columns], v[:, :, columns], opened, scale=scale, dropout_p=dropout)


def _fused(q: Tensor, k: Tensor, v: Tensor, opened: tuple[Tensor | None, Tensor | None], **how: Any) -> Tensor:
    """PyTorch's attention, given what :func:`opened_mask` makes of mask and bias; keys may be wider than queries."""
    mask, nothing = opened
    if q.shape[3] < k.shape[3]:
        q = F.pad(q, (0, k.shape[3] - q.shape[3]))
    grouped = not k.shape[1] == q.shape[1]  # noqa: SIM201 (a trace compares sizes into tensors)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped, **how)
    return out if nothing is None else out.masked_fill(nothing, 0.0)


def opened_once(mask: MaskPattern, q: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """:func:`opened_mask` of a pattern, made once for all that attend by it in the type of ``q``."""
    return mask.once(("opened", q.device, q.dtype), lambda: opened_mask(mask.dense(q.device), q.dtype))


def opened_mask(
    mask: Tensor | None, dtype: torch.dtype, bias: Tensor | None = None
) -> tuple[Tensor | None, Tensor | None]:
    """Mask to add to scores, and the rows that have nothing to attend: they are opened to all senders.

    For such a row a fused kernel may return NaN, or NaN gradients: let it attend everything and drop what it receives.
    """
    mask = reference.without_hidden(mask, bias)
    if mask is None:
        return None, None
    shown = torch.zeros((), dtype=dtype, device=mask.device)
    if bias is not None:
        shown = bias.masked_fill(bias == -torch.inf, 0.0)
    return reference.fill_hidden(shown, mask), ~mask.any(dim=-1, keepdim=True)
