"""Checks of what models are given, and positions of tokens.

Shapes: B batch, N length (of the new tokens, with a cache), t earlier tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from .._layers.inputs import check_vectors, is_integer
from ..functional import positions_from_padding, positions_from_segments
from ..functional.checks import check_same_device, check_tensor, is_readable

IGNORED = -1
"""The target that is not scored."""


def count_positions(
    padding_mask: Tensor | None = None, segments: Tensor | None = None, *, earlier: int = 0
) -> Tensor | None:
    """Positions ``(B or 1, N)`` of tokens among the real ones of their own sequence; None if these are their places.

    A padding mask is ``(B, t + N)``, segments ``(B or 1, t + N)``, and t is ``earlier``.
    """
    if segments is not None:
        return positions_from_segments(segments, padding_mask)[:, earlier:]
    return None if padding_mask is None else positions_from_padding(padding_mask)[:, earlier:]


def check_token_ids(name: str, tokens: Tensor, vocab_size: int, embedder: nn.Module | None) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless tokens are ids ``(B, N)`` below ``vocab_size``.

    On the meta device they are nothing that ``embedder`` could look up, unless its weight is there, too.

    Their values are looked at only on the CPU, and not while compiling; elsewhere it is the embedding that fails.
    """
    check_tensor(name, tokens)
    if not is_integer(tokens):
        raise TypeError(f"{name}: expected integer token ids, got dtype {tokens.dtype}")
    if tokens.dim() != 2:
        raise ValueError(f"{name}: expected token ids of shape (batch, length), got shape {tuple(tokens.shape)}")
    weight = getattr(embedder, "weight", None)
    if tokens.is_meta and isinstance(weight, Tensor) and not weight.is_meta:
        raise ValueError(f"{name}: expected token ids with values, on {weight.device}, got a tensor on meta")
    if not tokens.numel() or not is_readable(tokens):
        return
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocab_size:
        raise ValueError(f"{name}: expected token ids from 0 to {vocab_size - 1}, got {low} to {high}")


def check_specified(
    name: str,
    x: Tensor,
    spec: Mapping[str, Any],
    limit: str,
    longest: int,
    earlier: int = 0,
    *,
    layer: nn.Module | None = None,
) -> None:
    """Check tokens ``(B, N)`` or vectors ``(B, N, dim)``, as ``spec`` says which; t + N is at most ``longest``.

    ``layer`` is the first that takes them.
    """
    if spec["type"] == "token":
        check_token_ids(name, x, spec["vocab_size"], layer)
    else:
        check_vectors(name, x, spec["dim"], layer)
    if earlier + x.shape[1] > longest:
        after = f" after {earlier} in the cache" if earlier else ""
        raise ValueError(f"{name}: expected at most {limit}={longest} positions, got {x.shape[1]}{after}")


def check_targets(targets: Tensor, x: Tensor, name: str = "targets") -> None:
    """Raise ``TypeError`` or ``ValueError`` unless there is one target for each token of ``x`` ``(B, N, ...)``."""
    check_same_device(**{"x": x, name: targets})
    if not is_integer(targets):
        raise TypeError(f"{name}: expected integers, got dtype {targets.dtype}")
    if targets.shape != x.shape[:2]:
        raise ValueError(f"{name}: expected the shape of x, {tuple(x.shape[:2])}, got {tuple(targets.shape)}")
