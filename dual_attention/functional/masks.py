"""The one mask convention of the library.

Shapes: B batch, H heads, N receivers (queries), M senders (keys).

A mask is a boolean tensor in which ``True`` means *may be attended*. Its rows are receivers and its columns senders;
two axes in front, of examples and heads, may be of size one:

               senders j                 senders j                 senders j
            0  1  2  3                0  1  2  3                0  1  2  3
    i = 0   #  .  .  .        i = 0   #  #  .  .        i = 2   #  #  #  .        # may be attended
        1   #  #  .  .            1   #  #  #  .            3   #  #  #  #
        2   #  #  #  .            2   .  #  #  #
        3   #  #  #  #            3   .  .  #  #
            causal                    window = 2                causal, after a cache of 2 (offset = 2)

These arguments carry masks, and the meaning of each never depends on the shape it happens to have:

``attn_mask``     ``(N, M)``, or four-dimensional and broadcastable to ``(B, H, N, M)``
``padding_mask``  ``(B, M)``, ``True`` at the real senders of each example
``is_causal``     receiver ``i`` sees senders ``j <= i``; needs ``N == M``, or receivers that are the last N senders
``window``        receiver ``i`` sees senders with ``|i - j| < window``; needs the same
``segments``      integers ``(B or 1, N)``, or one such tensor for receivers and one for senders: sequences packed into
                  one; only pairs of the same segment

All that are given must allow a pair for it to be attended. Additive (float) biases are a separate argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from .checks import check_axes, check_broadcast, check_same_device, check_tensor
from .mask_patterns import FITS, MaskPattern

Segments = Tensor | tuple[Tensor, Tensor]
"""Sequences packed into one: their numbers, of receivers and senders alike or of each."""


def causal_mask(length: int, *, device: torch.device | str | None = None) -> Tensor:
    """Boolean mask ``(length, length)``, ``True`` at ``[i, j]`` where ``j <= i``.

    >>> causal_mask(3)
    tensor([[ True, False, False],
            [ True,  True, False],
            [ True,  True,  True]])
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def directional_mask(
    length: int, direction: Literal["forward", "backward", "both"] = "both", *, device: torch.device | str | None = None
) -> Tensor:
    """Masks of directional self-attention, in which no token attends to itself (Shen et al. 2017, arXiv 1709.04696).

    Args:
        direction: ``"forward"`` allows j < i, ``"backward"`` j > i, ``"both"`` all but j = i. In the first two the
            first or the last receiver has nothing to attend.

    Returns:
        Boolean ``(length, length)``.

    Raises:
        ValueError: for another direction.

    >>> directional_mask(3, "forward")
    tensor([[False, False, False],
            [ True, False, False],
            [ True,  True, False]])
    """
    earlier = torch.ones(length, length, dtype=torch.bool, device=device).tril(-1)
    masks = {"forward": earlier, "backward": earlier.T, "both": earlier | earlier.T}
    if direction not in masks:
        raise ValueError(f"direction: expected 'forward', 'backward' or 'both', got {direction!r}")
    return masks[direction]


def padding_mask(lengths: Tensor, max_length: int | None = None) -> Tensor:
    """Mask of the real positions of right-padded sequences.

    Args:
        lengths: integers, shape ``(B,)``, the number of real positions of each sequence.
        max_length: M; by default the largest of ``lengths``.

    Returns:
        Boolean tensor ``(B, M)``, ``True`` at real positions.

    Raises:
        ValueError: if ``lengths`` is not a vector of integers, or one of them exceeds ``max_length``.

    >>> padding_mask(torch.tensor([1, 3]))
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    check_tensor("lengths", lengths)
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


def mask_pattern(
    attn_mask: Tensor | MaskPattern | None = None,
    padding_mask: Tensor | None = None,
    is_causal: bool = False,
    *,
    window: int | None = None,
    segments: Segments | None = None,
    batch: int,
    heads: int,
    n: int,
    m: int,
    offset: int = 0,
) -> MaskPattern:
    """Check the mask arguments and keep them as one pattern.

    Args:
        attn_mask: a mask, or a pattern built before, which the other arguments narrow; with none of them it is
            returned as it is.
        offset: earlier senders, before those that are the receivers too.

    Raises:
        TypeError: if a mask is not boolean.
        ValueError: if one has the wrong shape, a window is not positive, order matters (``is_causal``, ``window``)
            with ``offset + N != M``, or a pattern has another order or segments already.

    >>> real = torch.tensor([[True, True, False]])
    >>> mask_pattern(padding_mask=real, is_causal=True, batch=1, heads=1, n=3, m=3).causal
    True
    """
    given = mask = None
    if isinstance(attn_mask, MaskPattern):
        given = attn_mask
        _check_pair_sizes("attn_mask", given, n, m)
        needed = is_causal or window is not None or offset
        if needed and given.offset != offset and given.ordered:
            raise ValueError(
                f"attn_mask: expected a pattern with offset={offset}, the number of earlier senders, got "
                f"offset={given.offset}"
            )
        if padding_mask is None and segments is None and window is None and is_causal <= given.causal:
            return given
    elif attn_mask is not None:
        mask = _checked_mask("attn_mask", attn_mask, (batch, heads, n, m))
    if padding_mask is not None:
        require_boolean("padding_mask", padding_mask)
        if tuple(padding_mask.shape) != (batch, m):
            raise ValueError(
                f"padding_mask: expected shape (batch, senders) = {(batch, m)}, got {tuple(padding_mask.shape)}"
            )
    _check_order(is_causal, window, n, m, offset)
    receivers = senders = None
    if segments is not None:
        receivers, senders = _checked_segments(segments, batch, n, m)
    if given is None:
        return MaskPattern(n, m, mask, padding_mask, receivers, senders, is_causal, window, offset)
    if padding_mask is not None:
        both = padding_mask if given.padding is None else given.padding & padding_mask
        given = replace(given, padding=both)
    if segments is not None:
        if given.receiver_segments is not None:
            raise ValueError("segments: the pattern given as attn_mask has segments already, expected None")
        given = replace(given, receiver_segments=receivers, sender_segments=senders)
    return given.narrow(causal=is_causal, window=window, offset=offset)


def _check_pair_sizes(name: str, pattern: MaskPattern, n: int, m: int) -> None:
    if (pattern.n, pattern.m) != (n, m):
        raise ValueError(f"{name}: expected a pattern of (N, M) = {(n, m)}, got one of {(pattern.n, pattern.m)}")


def _check_window(window: int) -> None:
    if isinstance(window, float) or window < 1:
        raise ValueError(f"window: expected at least one position, a whole number, got {window}")


def _check_order(is_causal: bool, window: int | None, n: int, m: int, offset: int) -> None:
    if window is not None:
        _check_window(window)
    if (is_causal or window is not None) and offset + n != m:
        raise ValueError(
            f"{'is_causal' if is_causal else 'window'}: needs as many receivers as senders, got {n} receivers and "
            f"{m - offset} senders" + (f" after {offset} earlier ones" if offset else "")
        )


def _checked_segments(segments: Segments, batch: int, n: int, m: int) -> tuple[Tensor, Tensor]:
    """Segments of receivers and of senders; ``TypeError`` or ``ValueError`` unless they are integers that fit."""
    both = segments if isinstance(segments, tuple) else (segments, segments)
    if len(both) != 2 or not all(isinstance(part, Tensor) for part in both):
        got = ", ".join(type(part).__name__ for part in (both if isinstance(segments, tuple) else both[:1]))
        raise TypeError(f"segments: expected a tensor, or one for receivers and one for senders, got ({got})")
    for of, length in zip(both, (n, m), strict=True):
        if of.is_floating_point() or of.dtype == torch.bool or tuple(of.shape) not in ((batch, length), (1, length)):
            raise ValueError(
                f"segments: expected integers of shape (batch or 1, length) = {(batch, length)}, "
                f"got shape {tuple(of.shape)} of dtype {of.dtype}"
            )
    return both


def pattern_and_bias(
    mask: Tensor | MaskPattern | None, bias: Tensor | None, *, q: Tensor, m: int
) -> tuple[MaskPattern, Tensor | None]:
    """The arguments ``mask`` and ``bias`` of an operation on queries ``(B, H, N, D)`` and M senders, checked.

    The mask comes as a pattern; the bias with four dimensions, in the type of the queries.
    """
    batch, heads, n, _ = q.shape
    if isinstance(mask, MaskPattern):
        _check_pair_sizes("mask", mask, n, m)
        check_parts(mask, q, heads)
    else:
        mask = MaskPattern(n, m, None if mask is None else _checked_mask("mask", mask, (batch, heads, n, m), {"q": q}))
    bias = check_bias(bias, batch=batch, heads=heads, n=n, m=m, name="bias")
    return mask, None if bias is None else bias.to(q.dtype)


def check_parts(pattern: MaskPattern, q: Tensor, heads: int, *, shaped: bool = False, name: str = "q") -> None:
    """Raise ``TypeError`` or ``ValueError`` unless the parts of a pattern fit receivers ``q`` ``(B, ...)``.

    A pattern remembers for which receivers it was checked, so that all layers which it serves check it once.

    Args:
        shaped: whether types and shapes have been checked already; only devices are, then.
        name: what messages call the receivers.
    """
    if pattern.window is not None:
        _check_window(pattern.window)
    masks = pattern.attn_mask is not None or pattern.padding is not None
    if not masks and pattern.receiver_segments is None and pattern.sender_segments is None:
        return
    checked = _check_devices if shaped else _check_parts
    of_heads = None if pattern.attn_mask is None else heads
    pattern.once((FITS, q.shape[0], of_heads, q.device), lambda: checked(pattern, {name: q}, heads))


def _check_parts(pattern: MaskPattern, named: dict[str, Tensor], heads: int) -> None:
    (q,) = named.values()
    batch, n, m = q.shape[0], pattern.n, pattern.m
    if pattern.attn_mask is not None:
        check_axes(attn_mask=(pattern.attn_mask, 4))
        _checked_mask("attn_mask", pattern.attn_mask, (batch, heads, n, m), named)
    receivers, senders = pattern.receiver_segments, pattern.sender_segments
    if (receivers is None) != (senders is None):
        given, missing = ("senders", "receivers") if receivers is None else ("receivers", "senders")
        raise ValueError(f"segments: expected those of {missing} beside those of {given}, got None")
    if pattern.padding is not None:
        require_boolean("padding_mask", pattern.padding)
    for name, part, length in (
        ("padding_mask", pattern.padding, m),
        ("segments", receivers, n),
        ("segments", senders, m),
    ):
        check_same_device(**{**named, name: part})
        if part is not None and tuple(part.shape) not in ((batch, length), (1, length)):
            raise ValueError(f"{name}: expected shape {(batch, length)}, got {tuple(part.shape)}")
        if part is not None and part.is_floating_point():
            raise TypeError(f"{name}: expected integers, got dtype {part.dtype}")


def _check_devices(pattern: MaskPattern, named: dict[str, Tensor], heads: int) -> None:
    check_same_device(**named, attn_mask=pattern.attn_mask)
    check_same_device(**named, padding_mask=pattern.padding)
    for segments in (pattern.receiver_segments, pattern.sender_segments):
        check_same_device(**named, segments=segments)


def combine_masks(
    attn_mask: Tensor | None = None,
    padding_mask: Tensor | None = None,
    is_causal: bool = False,
    *,
    window: int | None = None,
    segments: Segments | None = None,
    batch: int,
    heads: int,
    n: int,
    m: int,
    device: torch.device | str | None = None,
) -> Tensor | None:
    """The one mask that the arguments of :func:`mask_pattern` make together, built.

    Returns:
        A boolean tensor of four dimensions, broadcastable to ``(B, H, N, M)``; ``None`` if nothing is masked.

    >>> combine_masks(is_causal=True, window=2, batch=1, heads=1, n=3, m=3)[0, 0]
    tensor([[ True, False, False],
            [ True,  True, False],
            [False,  True,  True]])
    """
    sizes = {"batch": batch, "heads": heads, "n": n, "m": m}
    pattern = mask_pattern(attn_mask, padding_mask, is_causal, window=window, segments=segments, **sizes)
    return pattern.dense(None if device is None else torch.device(device))


def check_bias(
    bias: Tensor | None, *, batch: int, heads: int, n: int, m: int, name: str = "attn_bias"
) -> Tensor | None:
    """An additive attention bias, checked, with four dimensions, broadcastable to ``(B, H, N, M)``."""
    if bias is None:
        return None
    check_tensor(name, bias)
    if not bias.is_floating_point():
        masks = name.replace("bias", "mask")
        raise TypeError(f"{name}: expected a floating-point tensor, got dtype {bias.dtype} (masks are `{masks}`)")
    return _broadcastable(name, bias, (batch, heads, n, m))


def require_boolean(name: str, mask: Tensor) -> None:
    """Raise ``TypeError`` unless ``mask`` is boolean."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name}: expected a boolean tensor (True = may be attended), got {type(mask).__name__}")
    check_tensor(name, mask)
    if mask.dtype != torch.bool:
        bias = "bias" if name == "mask" else "attn_bias"
        raise TypeError(
            f"{name}: expected a boolean tensor (True = may be attended), got dtype {mask.dtype}; "
            f"additive float biases are the separate argument `{bias}`"
        )


def check_mask(name: str, mask: Tensor, like: Tensor) -> None:
    """Raise ``TypeError`` unless ``mask`` is boolean, ``ValueError`` unless it broadcasts to another tensor."""
    require_boolean(name, mask)
    check_broadcast(name, mask, like)


def expand_padding(padding_mask: Tensor | None, x: Tensor) -> Tensor | None:
    """The mask ``(..., S)`` of vectors ``x (..., S, d)`` in full, where its leading axes may be one; None for none.

    ``TypeError`` unless it is boolean, ``ValueError`` unless its axes fit.
    """
    if padding_mask is None:
        return None
    require_boolean("padding_mask", padding_mask)
    have, want = padding_mask.shape, x.shape[:-1]
    lead = [b if a == 1 else a for a, b in zip(have[:-1], want[:-1], strict=False)]
    if len(have) != len(want) or (*lead, have[-1]) != tuple(want):
        raise ValueError(f"padding_mask: expected shape {tuple(want)}, got {tuple(have)}")
    return padding_mask.expand(want)


def _checked_mask(
    name: str, mask: Tensor, shape: tuple[int, int, int, int], named: Mapping[str, Tensor] | None = None
) -> Tensor:
    """A boolean mask with four dimensions, on the device of the queries, which come with the name they go by."""
    require_boolean(name, mask)
    check_same_device(**{**(named or {}), name: mask})
    return _broadcastable(name, mask, shape)


def _broadcastable(name: str, tensor: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
    received = tuple(tensor.shape)
    if tensor.dim() == 2:
        tensor = tensor[None, None]
    if tensor.dim() != 4 or any(have not in (1, want) for have, want in zip(tensor.shape, shape, strict=True)):
        raise ValueError(
            f"{name}: expected shape (N, M) = {shape[2:]} or broadcastable to (B, H, N, M) = {shape}, got {received}"
            + ("; a mask of padded senders is the argument `padding_mask`" if name == "attn_mask" else "")
        )
    return tensor
