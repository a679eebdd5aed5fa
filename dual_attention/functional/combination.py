"""The weighted sum that ends every attention, and the mean that it falls back to."""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import check_floating
from .masks import require_boolean


def combine(weights: Tensor, values: Tensor, *, multidim: bool = False, pairwise: bool = False) -> Tensor:
    """Weighted sum of the values for each query (survey eq. 4).

    Math: c_l = sum_s a_ls v_s, with v_ls for pairwise values, and a product by features for weights of features

    Args:
        weights: ``(..., L, S)``; with ``multidim`` ``(..., L, S, d_v)``.
        values: ``(..., S, d_v)``; with ``pairwise`` ``(..., L, S, d_v)``.
        multidim, pairwise: never guessed from the number of axes, which leading axes would make ambiguous.

    Returns:
        Context ``(..., L, d_v)``, in the type of the values; zero if there are no keys.

    Raises:
        ValueError: if the shapes do not fit.

    >>> combine(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0], [3.0, 4.0]]))
    tensor([[2., 2.]])
    """
    for name, x, axes in (("weights", weights, 2 + multidim), ("values", values, 2 + pairwise)):
        check_floating(name, x)
        if x.dim() < axes:
            raise ValueError(f"{name}: expected at least {axes} axes, got shape {tuple(x.shape)}")
    queries = weights.shape[-3:-2] if multidim else weights.shape[-2:-1]
    keys = weights.shape[-2] if multidim else weights.shape[-1]
    expected: tuple[int, ...] = (*queries, keys) if pairwise else (keys,)
    received = tuple(values.shape[-3:-1] if pairwise else values.shape[-2:-1])
    lead = weights.shape[: -3 if multidim else -2], values.shape[: -3 if pairwise else -2]
    fits = all(1 in pair or pair[0] == pair[1] for pair in zip(*(reversed(axes) for axes in lead), strict=False))
    if not fits or received != expected or (multidim and values.shape[-1] != weights.shape[-1]):
        kind = f"{'multi-dimensional' if multidim else 'scalar'} weights, {'pairwise' if pairwise else 'shared'} values"
        raise ValueError(
            f"values: expected a shape that fits weights of shape {tuple(weights.shape)} ({kind}), "
            f"got {tuple(values.shape)}"
        )
    weights = weights.to(values.dtype)
    of_weights = "...lsd" if multidim else "...ls"
    of_values = "...lsd" if pairwise else "...sd"
    if not multidim and not pairwise:
        return weights @ values
    return torch.einsum(f"{of_weights},{of_values}->...ld", weights, values)


def masked_mean(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean of the real vectors, zero if there are none.

    Args:
        x: ``(..., S, d)``.
        mask: boolean ``(..., S)``, True = real.

    Returns:
        ``(..., d)``.

    >>> masked_mean(torch.tensor([[[1.0], [3.0], [99.0]]]), torch.tensor([[True, True, False]]))
    tensor([[2.]])
    """
    dtype, wide = torch.result_type(x, 1.0), torch.promote_types(x.dtype, torch.float32)  # sums may lie beyond float16
    if mask is None:
        return (x.sum(-2, dtype=wide) / max(x.shape[-2], 1)).to(dtype)
    require_boolean("mask", mask)
    if mask.shape != x.shape[:-1]:
        raise ValueError(
            f"mask: expected shape {tuple(x.shape[:-1])} beside x of {tuple(x.shape)}, got {tuple(mask.shape)}"
        )
    count = mask.sum(-1, keepdim=True).clamp_min(1)
    return (x.masked_fill(~mask[..., None], 0.0).sum(-2, dtype=wide) / count).to(dtype)
