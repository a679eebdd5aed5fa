"""Every score and every alignment as functions of tensors, for tests over their combinations."""

from collections.abc import Callable

import torch
from torch import Tensor

from dual_attention import functional as F

WIDTH, HIDDEN, LONGEST = 3, 4, 16

B, L, S = 2, 3, 5
"""Batch, queries and keys of random scores."""


def weights(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def _w(q: Tensor, seed: int, *shape: int) -> Tensor:
    return weights(seed, *shape).to(q.dtype)


D, W = WIDTH, HIDDEN

SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dot": lambda q, k: F.dot_score(q, k, scale=1.0),
    "scaled dot": F.dot_score,
    "additive": lambda q, k: F.additive_score(q, k, _w(q, 0, W, D), _w(q, 1, W, D), _w(q, 2, W), bias=_w(q, 3, W)),
    "general": lambda q, k: F.general_score(q, k, _w(q, 0, D, D)),
    "biased general": lambda q, k: F.general_score(q, k, _w(q, 0, D, D), query_bias=_w(q, 1, D)),
    "activated general": lambda q, k: F.general_score(q, k, _w(q, 0, D, D), bias=_w(q, 1), activation=torch.tanh),
    "cosine": lambda q, k: F.cosine_score(q, k, beta=2.0),
    "euclidean": F.euclidean_score,
    "squared euclidean": lambda q, k: F.euclidean_score(q, k, squared=True, beta=0.5),
    "trilinear": lambda q, k: F.trilinear_score(q, k, _w(q, 0, 3 * D)),
    "product": lambda q, k: F.product_score(q, k, _w(q, 0, W, D), _w(q, 1, W, D), _w(q, 2, W)),
    "location": lambda q, k: F.location_score(q, _w(q, 0, LONGEST, D), k.shape[-2]),
}

MULTIDIM_SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "additive": lambda q, k: F.additive_score(
        q, k, _w(q, 0, W, D), _w(q, 1, W, D), _w(q, 2, D, W), out_bias=_w(q, 4, D), multidim=True
    ),
    "bounded additive": lambda q, k: F.additive_score(
        q, k, _w(q, 0, D, D), _w(q, 1, D, D), None, activation=lambda x: 5 * torch.tanh(x / 5), multidim=True
    ),
    "general tensor": lambda q, k: F.general_score(q, k, _w(q, 0, D, D, D), bias=_w(q, 1, D), multidim=True),
}

KEY_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "keys alone": lambda k: F.key_score(k, _w(k, 0, W, D), _w(k, 1, 2, W), bias=_w(k, 2, W), out_bias=_w(k, 3, 2)),
    "linear in the keys": lambda k: F.key_score(k, None, _w(k, 1, 1, D)),
}


def _draw(estimator: str) -> Callable[..., Tensor]:
    def align(scores: Tensor, mask: Tensor | None = None, *, dim: int = -1, **options: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return F.hard_alignment(scores, mask, estimator=estimator, generator=generator, dim=dim, **options).weights

    return align


def _elementwise(activation: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def align(scores: Tensor, mask: Tensor | None = None, *, dim: int = -1, **options: Tensor) -> Tensor:
        return F.masked_activation(scores, mask, activation, **options)

    return align


NORMALISED: dict[str, Callable[..., Tensor]] = {
    "softmax": F.masked_softmax,
    "cool softmax": lambda scores, mask=None, *, dim=-1: F.masked_softmax(scores, mask, temperature=0.1, dim=dim),
    "sparsemax": F.sparsemax,
    "entmax 1.5": F.entmax,
    "entmax 1.25": lambda scores, mask=None, *, dim=-1: F.entmax(scores, mask, alpha=1.25, dim=dim),
    "entmax 2.5": lambda scores, mask=None, *, dim=-1: F.entmax(scores, mask, alpha=2.5, dim=dim),
    "uniform": F.uniform_alignment,
    "argmax": _draw("argmax"),
    "expected": _draw("expected"),
}
SAMPLED = {name: _draw(name) for name in ("reinforce", "st", "gumbel", "gumbel_st")}
UNNORMALISED: dict[str, Callable[..., Tensor]] = {
    "sigmoid": F.sigmoid_alignment,
    "stick-breaking": F.stick_breaking,
    "tanh": _elementwise(torch.tanh),
    "identity": _elementwise(lambda x: x),
    "relu": _elementwise(torch.relu),
}
ALIGNMENTS = {**NORMALISED, **SAMPLED, **UNNORMALISED}


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


def scores_and_mask(*shape, dtype=torch.float64):
    scores = torch.randn(*(shape or (B, L, S)), dtype=dtype)
    mask = torch.rand(scores.shape) < 0.6
    mask[..., 0, :] = False
    mask[..., 1, 0] = True
    return scores, mask
