"""Check of objects and of the mask of those present, shared by the baselines."""

from __future__ import annotations

from torch import Tensor, nn

from .._layers.inputs import check_padding, check_vectors


def check_objects(
    x: Tensor,
    padding_mask: Tensor | None,
    d_model: int,
    n_objects: int | None = None,
    *,
    layer: nn.Module | None = None,
) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless objects are ``(B, N, d_model)`` and their mask boolean ``(B, N)``.

    There may be no mask, and no more than ``n_objects``.
    """
    check_vectors("x", x, d_model, layer)
    if n_objects is not None and x.shape[1] > n_objects:
        raise ValueError(f"x: expected at most n_objects={n_objects} objects, got {x.shape[1]}")
    check_padding("padding_mask", padding_mask, *x.shape[:2])
