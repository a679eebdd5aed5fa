"""Score functions, which compare a query with a key. Higher is more relevant, and none of them masks.

Shapes: ``q (..., L, d_q)`` and ``k (..., S, d_k)`` give ``(..., L, S)``; multi-dimensional scores give
``(..., L, S, d_v)``, one score for each feature of the value. Leading axes broadcast, and heads are one of them: with
``q (B, H, L, d_q)`` a parameter may have an axis H in front. d_w is the hidden width of an additive score.

The survey is Brauwers & Frasincar 2023, "A General Survey on Attention Mechanisms in Deep Learning" (arXiv 2203.14263).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .activations import Activation
from .checks import check_floating, check_same_device, check_same_dtype, is_autocast, without_autocast
from .derivatives import differentiable_again, needs_plain
from .reference import inner_products


def dot_score(q: Tensor, k: Tensor, *, scale: float | None = None) -> Tensor:
    """(Scaled) multiplicative score.

    Math: e = scale <q, k>

    Args:
        q, k: of one width d.
        scale: by default ``1 / sqrt(d)`` (Vaswani et al. 2017); 1 is the multiplicative score (Luong et al. 2015, dot).

    Raises:
        ValueError: if the widths differ.

    >>> dot_score(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor([[0.7071, 1.4142]])
    """
    width = _one_width(q, k)
    _check_types(q=q, k=k)
    return inner_products(q, k, 1 / math.sqrt(width) if scale is None else scale)


def additive_score(
    q: Tensor,
    k: Tensor,
    weight_q: Tensor,
    weight_k: Tensor,
    weight: Tensor | None,
    *,
    bias: Tensor | None = None,
    out_bias: Tensor | None = None,
    activation: Activation = torch.tanh,
    multidim: bool = False,
) -> Tensor:
    """Additive (concatenate) score (Bahdanau et al. 2014, arXiv 1409.0473, A.1.2; survey Table 2).

    Math: e = <w, act(W_1 q + W_2 k + b)>; multi-dimensional (Shen et al. 2017, arXiv 1709.04696):
    e = W_d act(W_1 q + W_2 k + b) + b_d

    Equal to the form with one matrix over the concatenation [q; k], which is never built; the hidden tensor
    ``(..., L, S, d_w)`` is.

    Args:
        weight_q: ``(..., d_w, d_q)``; weight_k: ``(..., d_w, d_k)``; bias: ``(..., d_w)``.
        weight: ``(..., d_w)``; with ``multidim`` ``(..., d_v, d_w)``, or None for the hidden tensor itself, d_v = d_w.
        out_bias: ``(..., d_v)``, only with ``multidim``.
        activation: elementwise, inside the product with ``weight``.

    Raises:
        ValueError: if a width does not fit, or ``weight`` or ``out_bias`` does not go with ``multidim``.

    >>> q, k = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    >>> weight_q, weight_k = torch.randn(16, 8), torch.randn(16, 8)
    >>> additive_score(q, k, weight_q, weight_k, torch.randn(16)).shape
    torch.Size([2, 3, 5])
    """
    hidden = _project("q", q, weight_q, "weight_q").unsqueeze(-2)
    hidden = hidden + _project("k", k, weight_k, "weight_k").unsqueeze(-3)
    _check_width(hidden.shape[-1], bias=bias, weight=weight)
    if bias is not None:
        hidden = hidden + bias[..., None, None, :]
    hidden = activation(hidden)
    if not multidim:
        if weight is None or out_bias is not None:
            raise ValueError(
                "weight, out_bias: a scalar score needs a weight and takes no out_bias (use multidim=True)"
            )
        return (hidden @ weight[..., None, :, None]).squeeze(-1)
    scores = hidden if weight is None else hidden @ _matrix("weight", weight).transpose(-2, -1).unsqueeze(-3)
    _check_width(scores.shape[-1], out_bias=out_bias)
    return scores if out_bias is None else scores + out_bias[..., None, None, :]


def key_score(
    k: Tensor,
    weight_k: Tensor | None,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    out_bias: Tensor | None = None,
    activation: Activation = torch.tanh,
    multidim: bool = False,
) -> Tensor:
    """Score of keys, for attention without a query (survey 3.3.1; Lin et al. 2017, arXiv 1703.03130).

    Math: e_l = <w_l, act(W k + b)>, l = 1..n;  multi-dimensional: e = W_d act(W k + b) + b_d

    Args:
        weight_k: ``(..., d_w, d_k)``, or None for the keys as they are, without bias and activation.
        weight: ``(..., n, d_w)``, one row for each of n query-less scores; with ``multidim`` ``(..., d_v, d_w)``.
        bias: ``(..., d_w)``; out_bias: ``(..., n)``, or ``(..., d_v)``.

    Returns:
        ``(..., n, S)``; with ``multidim`` ``(..., 1, S, d_v)``.

    >>> key_score(torch.randn(2, 5, 8), torch.randn(16, 8), torch.randn(1, 16)).shape
    torch.Size([2, 1, 5])
    """
    hidden = k
    if weight_k is not None:
        hidden = _project("k", k, weight_k, "weight_k")
        _check_width(hidden.shape[-1], bias=bias)
        hidden = activation(hidden if bias is None else hidden + bias.unsqueeze(-2))
    scores = _project("k", hidden, weight)  # (..., S, n or d_v)
    _check_width(scores.shape[-1], out_bias=out_bias)
    if out_bias is not None:
        scores = scores + out_bias.unsqueeze(-2)
    return scores.unsqueeze(-3) if multidim else scores.transpose(-2, -1)


def general_score(
    q: Tensor,
    k: Tensor,
    weight: Tensor,
    *,
    query_bias: Tensor | None = None,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    multidim: bool = False,
) -> Tensor:
    """General (bilinear), biased general and activated general scores.

    Math: general (Luong et al. 2015, arXiv 1508.04025): e = k^T W q;  biased (Sordoni et al. 2016, arXiv 1606.02245):
    e = k^T (W q + b);  activated (Ma et al. 2017, arXiv 1709.00893): e = act(k^T W q + b), b a number

    Args:
        weight: ``(..., d_k, d_q)``; with ``multidim`` ``(..., d_v, d_k, d_q)``, a matrix for each feature.
        query_bias: ``(..., d_k)``, the vector of the biased score.
        bias: ``(...)``, the number of the activated score; with ``multidim`` ``(..., d_v)``.
        activation: elementwise, or None.

    Raises:
        ValueError: if a width does not fit.

    >>> general_score(torch.randn(2, 3, 6), torch.randn(2, 5, 8), torch.randn(8, 6)).shape
    torch.Size([2, 3, 5])
    """
    _check_vectors(q=q, k=k)
    if multidim:
        q, k = q.unsqueeze(-3), k.unsqueeze(-3)
    mapped = _project("q", q, weight)
    _check_width(mapped.shape[-1], query_bias=query_bias, k=k)
    if query_bias is not None:
        mapped = mapped + (query_bias.unsqueeze(-2) if not multidim else query_bias[..., None, None, :])
    _check_types(q=mapped, k=k)
    scores = mapped @ k.transpose(-2, -1)
    if bias is not None:
        check_floating("bias", bias)
        if multidim:
            _check_width(scores.shape[-3], bias=bias)
        scores = scores + bias[..., None, None]
    if activation is not None:
        scores = activation(scores)
    return scores.movedim(-3, -1) if multidim else scores


def product_score(q: Tensor, k: Tensor, weight_q: Tensor, weight_k: Tensor, weight: Tensor) -> Tensor:
    """Product of activated projections, as in the hops of Tran & Niederée (SIGIR 2018).

    Math: e = <w, tanh(W_1 q) * tanh(W_2 k)>

    Args:
        weight_q: ``(..., d_w, d_q)``; weight_k: ``(..., d_w, d_k)``; weight: ``(..., d_w)``.

    >>> q, k = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    >>> weight_q, weight_k = torch.randn(16, 8), torch.randn(16, 8)
    >>> product_score(q, k, weight_q, weight_k, torch.randn(16)).shape
    torch.Size([2, 3, 5])
    """
    queries = torch.tanh(_project("q", q, weight_q, "weight_q"))
    keys = torch.tanh(_project("k", k, weight_k, "weight_k"))
    _check_width(queries.shape[-1], weight=weight)
    return (queries * weight.unsqueeze(-2)) @ keys.transpose(-2, -1)


def cosine_score(q: Tensor, k: Tensor, *, beta: float | Tensor = 1.0, eps: float | None = None) -> Tensor:
    """Cosine similarity with a key strength (Graves et al. 2014, arXiv 1410.5401).

    Math: e = beta <q, k> / (max(|q|, eps) max(|k|, eps))

    With beta = 1 scores lie in [-1, 1], and softmax over S keys gives none more than e^2 / (e^2 + S - 1).

    Args:
        beta: positive; a tensor must broadcast to the scores.
        eps: by default 1e-6; in float16 1e-3, since the gradient at a zero vector, of order 1 / eps, would overflow.

    Returns:
        ``(..., L, S)``, of float16 and bfloat16, and under autocast, in float32.

    >>> cosine_score(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]]))
    tensor([[ 1.,  0., -1.]])
    """
    _one_width(q, k)
    q, k = unit_vectors(q, k, eps)
    with without_autocast(q):
        return beta * (q @ k.transpose(-2, -1))


def unit_vectors(q: Tensor, k: Tensor, eps: float | None = None) -> tuple[Tensor, Tensor]:
    """Both divided by their lengths, of at least ``eps``, in float32 or better; see :func:`cosine_score`."""
    if eps is None:
        eps = 1e-3 if torch.float16 in (q.dtype, k.dtype) else 1e-6
    wide = _wide(q, k)
    return F.normalize(q.to(wide), dim=-1, eps=eps), F.normalize(k.to(wide), dim=-1, eps=eps)


def euclidean_score(q: Tensor, k: Tensor, *, squared: bool = False, beta: float | Tensor = 1.0) -> Tensor:
    """Negated (squared) distance: nearer is higher.

    Math: e = -beta |q - k|, or -beta |q - k|^2

    The gradient of the distance at q = k, where it has none, is zero: padding may equal a query. Second derivatives,
    forward ones and those of ``torch.func`` build the differences of all pairs, ``(..., L, S, d)``.

    Args:
        beta: positive; a tensor must broadcast to the scores.

    Returns:
        ``(..., L, S)``, of float16 and bfloat16, and under autocast, in float32, which holds squares that float16 does
        not.

    >>> euclidean_score(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[-5., -1.]])
    """
    _one_width(q, k)
    q, k = q.to(_wide(q, k)), k.to(_wide(q, k))
    if squared:
        norms = q.square().sum(-1)[..., :, None] + k.square().sum(-1)[..., None, :]
        with without_autocast(q):
            return -beta * (norms - 2 * q @ k.transpose(-2, -1)).clamp_min(0.0)
    if needs_plain(q, k):
        return -beta * _distances(q, k)[0]
    distances = torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")
    return -beta * differentiable_again(distances, _distances, q, k)


def squared_distance_queries(q: Tensor) -> Tensor:
    """Vectors whose inner products with :func:`squared_distance_keys` are negated squared distances.

    So what is fast for inner products serves distances.

    Math: -|q - k|^2 = <[2 q; -|q|^2; -1], [k; 1; |k|^2]>

    Returns:
        ``(..., L, d + 2)``, of float16 and bfloat16 in float32: narrower numbers hold no differences of squares. Nor do
        those of TF32, by which inner products are off by a thousandth of the squares.

    >>> q, k = torch.tensor([1.0, 0.0]), torch.tensor([4.0, 4.0])
    >>> squared_distance_queries(q) @ squared_distance_keys(k)
    tensor(-25.)
    """
    q = q.to(_wide(q, q))
    return torch.cat([2 * q, -q.square().sum(-1, keepdim=True), q.new_full((*q.shape[:-1], 1), -1.0)], -1)


def squared_distance_keys(k: Tensor) -> Tensor:
    """``[k; 1; |k|^2]``, see :func:`squared_distance_queries`: ``(..., S, d)`` to ``(..., S, d + 2)``.

    >>> squared_distance_keys(torch.tensor([3.0, 4.0]))
    tensor([ 3.,  4.,  1., 25.])
    """
    k = k.to(_wide(k, k))
    return torch.cat([k, k.new_ones(*k.shape[:-1], 1), k.square().sum(-1, keepdim=True)], -1)


def _distances(q: Tensor, k: Tensor) -> tuple[Tensor]:
    """Distances of all pairs, with every derivative: those of a distance of zero are zero."""
    squares = (q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1)
    same = squares == 0
    return (squares.masked_fill(same, 1.0).sqrt().masked_fill(same, 0.0),)


def trilinear_score(q: Tensor, k: Tensor, weight: Tensor) -> Tensor:
    """Score of key, query and their product (Seo et al. 2016, arXiv 1611.01603; survey eq. 13).

    Math: e = <w, [k; q; k * q]>

    Args:
        q, k: of one width d.
        weight: ``(..., 3 d)``: of the key, the query and the product, in this order.

    Raises:
        ValueError: if a width does not fit.

    >>> trilinear_score(torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(24)).shape
    torch.Size([2, 3, 5])
    """
    width = _one_width(q, k)
    _check_types(q=q, k=k, weight=weight)
    if weight.shape[-1] != 3 * width:
        raise ValueError(f"weight: expected a width of 3 d = {3 * width}, got shape {tuple(weight.shape)}")
    of_k, of_q, of_both = weight.unsqueeze(-2).split(width, dim=-1)
    return (k * of_k).sum(-1)[..., None, :] + (q * of_q).sum(-1)[..., :, None] + (q * of_both) @ k.transpose(-2, -1)


def location_score(q: Tensor, weight: Tensor, length: int) -> Tensor:
    """Score of a position, whatever key is there (Luong et al. 2015, eq. 8).

    Math: e_l = (W q_l)_{1..S}

    Args:
        weight: ``(..., S_max, d_q)``.
        length: S. Positions beyond S_max score minus infinity, which every alignment takes for masked.

    Returns:
        ``(..., L, S)``.

    >>> location_score(torch.randn(2, 3, 8), torch.randn(10, 8), length=5).shape
    torch.Size([2, 3, 5])
    """
    reach = weight.shape[-2]
    scores = _project("q", q, weight[..., : min(length, reach), :])
    return F.pad(scores, (0, max(length - reach, 0)), value=-torch.inf)


def location_features(weights: Tensor, kernel: Tensor) -> Tensor:
    """Features of each place from the weights around it a step earlier (Chorowski et al. 2015, arXiv 1506.07503).

    Math: f = F * a_{t-1}

    Given to an additive score beside the keys, they make it location-aware: with ``weight_k = [V, U]``,
    ``<w, tanh(W q + V k + U f + b)>`` is :func:`additive_score` of ``q`` and ``[k; f]``.

    Args:
        weights: a, ``(..., S)``; beyond their ends they are zero.
        kernel: F, ``(C, r)``: C filters, as wide as an odd number r of places.

    Returns:
        ``(..., S, C)``.

    Raises:
        ValueError: if the kernel is not two-dimensional, or its width is even.

    >>> location_features(torch.rand(2, 3, 5), torch.rand(4, 3)).shape
    torch.Size([2, 3, 5, 4])
    """
    if kernel.dim() != 2 or kernel.shape[1] % 2 == 0:
        raise ValueError(f"kernel: expected shape (filters, odd width), got {tuple(kernel.shape)}")
    if not weights.numel():
        return kernel.new_zeros(*weights.shape, len(kernel))
    rows = weights.reshape(-1, 1, weights.shape[-1]).to(kernel.dtype)
    features = F.conv1d(rows, kernel[:, None], padding=kernel.shape[1] // 2)
    return features.transpose(1, 2).reshape(*weights.shape, len(kernel))


def _wide(q: Tensor, k: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(q.dtype, k.dtype), torch.float32)


def _check_vectors(**tensors: Tensor) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless all are floating point, have a last axis, and are on one device."""
    for name, x in tensors.items():
        check_floating(name, x)
        if not x.dim():
            raise ValueError(f"{name}: expected shape (..., width), got a single number")
    check_same_device(**tensors)


def _check_types(**tensors: Tensor) -> None:
    """Check vectors, and raise ``TypeError`` unless products can be taken of them: they are of one type."""
    _check_vectors(**tensors)
    if not any(map(is_autocast, tensors.values())):
        check_same_dtype(**tensors)


def _check_width(width: int, **tensors: Tensor | None) -> None:
    """Raise ``TypeError`` or ``ValueError`` for the first that is no tensor ``(..., width)``; None is skipped."""
    for name, x in tensors.items():
        if x is None:
            continue
        _check_vectors(**{name: x})
        if x.shape[-1] != width:
            raise ValueError(f"{name}: expected a width of {width}, got shape {tuple(x.shape)}")


def _one_width(q: Tensor, k: Tensor) -> int:
    _check_vectors(q=q, k=k)
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"k: expected query and key of one width for this score, got q of shape {tuple(q.shape)} "
            f"and k of {tuple(k.shape)}"
        )
    return q.shape[-1]


def _matrix(name: str, weight: Tensor) -> Tensor:
    """The weight itself; ``TypeError`` or ``ValueError`` unless it maps vectors."""
    check_floating(name, weight)
    if weight.dim() < 2:
        raise ValueError(f"{name}: expected shape (..., width of results, width), got {tuple(weight.shape)}")
    return weight


def _project(name: str, x: Tensor, weight: Tensor, of_weight: str = "weight") -> Tensor:
    _check_types(**{name: x, of_weight: _matrix(of_weight, weight)})
    if x.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"{name}: expected width {weight.shape[-1]} for {of_weight} of shape {tuple(weight.shape)}, "
            f"got {tuple(x.shape)}"
        )
    return x @ weight.transpose(-2, -1)
