"""Checks of objects and of masks of the objects present, shared by the baselines."""

from __future__ import annotations

from torch import Tensor

from .._layers.inputs import check_sequence
from ..functional.masks import require_boolean


def check_objects(x: Tensor, d_model: int, n_objects: int | None = None) -> None:
    """Check objects ``(B, N, d_model)``.

    Raises:
        TypeError: if they are not floating point.
        ValueError: if they have another shape, or there are more than ``n_objects``.
    """
    if not x.is_floating_point():
        raise TypeError(f"x: expected floating-point objects, got dtype {x.dtype}")
    check_sequence("x", x, d_model)
    if n_objects is not None and x.shape[1] > n_objects:
        raise ValueError(f"x: expected at most n_objects={n_objects} objects, got {x.shape[1]}")


def check_present(padding_mask: Tensor | None, x: Tensor) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless the mask, if there is one, is boolean ``(B, N)`` like ``x``."""
    if padding_mask is None:
        return
    require_boolean("padding_mask", padding_mask)
    if padding_mask.shape != x.shape[:2]:
        raise ValueError(
            f"padding_mask: expected shape (batch, objects) = {tuple(x.shape[:2])}, got {tuple(padding_mask.shape)}"
        )
