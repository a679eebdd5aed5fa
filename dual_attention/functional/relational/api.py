"""Relational attention as one operation over projected tensors, with its implementations.

Shapes: B batch, H heads, G key/value heads (H a multiple of G), N receivers, M senders, D width of an attention query
or key, d_h width of a head, R relations (the paper's d_r), p width of one relation's query or key, K rows of a library
of relative symbols.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import reference
from ..activations import Activation, activation_function, activation_name
from ..checks import check_axes, check_dropout, check_same_device, check_same_dtype, is_autocast, is_open
from ..masks import MaskPattern, as_pattern, check_bias
from ..padding import zero_padding
from ..symbols import OffsetSymbols, RelativeSymbols
from ..triton.support import obstacle, preferred
from .blockwise import blockwise_relational_attention
from .linear import linear_relational_attention
from .sdpa import sdpa_relational_attention
from .shared_symbols import attend_to_symbols, check_index, symbol_for_each_pair
from .tiles import prefers_tiles

Implementation = Literal["auto", "reference", "dense", "linear", "sdpa", "triton"]

LARGEST_DENSE = 256 * 256
"""Pairs (receivers times senders) up to which ``impl="auto"`` may build all weights at once.

On a CPU it does so only while they are few (:data:`MOST_WEIGHTS`; :data:`FEWEST_WEIGHTS` where tiles of relations save
much, :func:`.relation_tiles.prefers_tiles`), or in a step of decoding (:data:`FEWEST_RECEIVERS`). Measured forward and
backward on two cores, 16 to 256 objects: where tiles save much, dense was 1.0 to 1.8 times as fast with fewer weights
than ``FEWEST_WEIGHTS``, linear 0.9 to 2.8 times with more; elsewhere dense was 1.0 to 2.1 times as fast with fewer than
``MOST_WEIGHTS``, linear 1.0 to 3.2 times with more. ``benchmarks/run.py --suite crossing`` measures it anew.
"""

MOST_WEIGHTS = 2**22
"""Weights of all examples and heads, about: 16 MB of float32."""

FEWEST_WEIGHTS = 2**17
"""The same where tiles of relations save much."""

FEWEST_RECEIVERS = 16
"""A step of decoding has one."""


class RelationalAttentionOutput(NamedTuple):
    """What relational attention returns.

    Attributes:
        output: attended messages; ``(B, H, N, d_h)`` from the operation, ``(B, N, H * d_h)`` from the layer.
        weights: attention weights after dropout, ``(B, H, N, M)``, or None if not asked for.
        relations: ``(B, N, M, R)``, unmasked, or None if not asked for.
    """

    output: Tensor
    weights: Tensor | None = None
    relations: Tensor | None = None


def relational_attention(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    w_r: Tensor,
    *,
    scale: float,
    rel_scale: float,
    rel_activation: str | Activation = "identity",
    mask: Tensor | MaskPattern | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
    impl: Implementation = "auto",
) -> RelationalAttentionOutput:
    """Relational attention (arXiv 2405.16727, Algorithm 1).

    Math: a^h_i = sum_j alpha^h_ij (W_r^h r_ij + s_j W_s^h),  r_ij = (act(rel_scale <u^l_i, w^l_j>))_l

    Args:
        q: attention queries ``(B, H, N, D)``; k: attention keys ``(B, G, M, D)``.
        u: relation queries ``(B, N, R, p)``; w: relation keys ``(B, M, R, p)``, shared by all heads.
        symbols: projected symbols, ``(B or 1, G, M, d_h)``; or :class:`RelativeSymbols` with a library of shape
            ``(K, G, d_h)`` and an index of shape ``(N, M)``.
        w_r: ``(H, d_h, R)``, maps relations to the width of a head.
        scale, rel_scale: factors of the attention scores and of the relations.
        rel_activation: activation of the relations, a name or an elementwise function.
        mask: boolean, four-dimensional, broadcastable to ``(B, H, N, M)``, True = may be attended; or a pattern.
        bias: floating point, broadcastable likewise, added to the scaled scores; minus infinity masks. Relations
            under softmax are normalised over the senders that ``mask`` allows and minus infinity leaves to some head;
            otherwise it acts on the attention scores alone.
        dropout: rate on the attention weights; symbols and relations see the same mask.
        need_weights: also return the weights and the relations, which needs them to be built.
        impl: ``"reference"`` is the paper's equation as it stands. ``"dense"`` builds the weights, and the relations if
            they are asked for or activated. ``"linear"`` builds neither whole, but for a block of receivers at a time,
            and again in the backward pass, so that memory grows with N alone. ``"triton"`` fuses the same mathematics
            in kernels for CUDA: the identity activation, masks in parts (a cache's earlier senders included; tiles
            that order or packed segments leave empty are skipped), shared symbols or :class:`OffsetSymbols`, no bias
            and no dropout, bfloat16, float16 or float32. ``"sdpa"`` is library attention whose values are symbols
            and relation keys: the identity activation, shared symbols, no dropout. ``"auto"`` is triton on CUDA in
            bfloat16 and float16 where it can run, but for a step of decoding; otherwise dense if maps are asked for, if
            relative symbols have about a row for each pair, or if there are few pairs, as :data:`LARGEST_DENSE` says;
            otherwise sdpa on CUDA in bfloat16 and float16 where it can run without a mask but the causal one, for which
            the library has fused kernels; otherwise linear. Its choices on a GPU are not measured yet. Where
            ``torch.export`` leaves lengths open it is linear, and dense for activated relations. All agree to rounding;
            under dropout linear draws another mask than the others.

    Returns:
        :class:`RelationalAttentionOutput` with an output of shape ``(B, H, N, d_h)``; rows with nothing to attend are
        zero.

    Raises:
        ValueError: if shapes or devices disagree, the dropout is outside [0, 1), or ``impl`` is unknown or cannot do
            what is asked.
        TypeError: if types disagree (under autocast ``w_r`` may differ, as a parameter does), a mask is not boolean, or
            a bias not floating point.
    """
    _check_tensors(q, k, u, w, symbols, w_r, bias)
    check_dropout("dropout", dropout)
    n, m = q.shape[2], k.shape[2]
    sizes = {"batch": q.shape[0], "heads": q.shape[1], "n": n, "m": m}
    mask, bias = as_pattern(mask, like=q, **sizes), check_bias(bias, **sizes, name="bias")
    bias = None if bias is None else bias.to(q.dtype)
    (k,), (w,) = zero_padding(mask, k), zero_padding(mask, w, axis=1)
    if isinstance(symbols, Tensor):
        (symbols,) = zero_padding(mask, symbols)
    if rel_activation != "softmax" and rel_activation != "identity":
        rel_activation = activation_function(rel_activation)
    if impl == "triton" or (impl == "auto" and _fuses(q, mask)):
        wishes: dict[str, Any] = {"bias": bias, "dropout": dropout, "need_weights": need_weights}
        against = obstacle(q, u, symbols, mask, rel_activation=rel_activation, **wishes)
        if impl == "triton" and against is not None:
            raise ValueError(f"impl='triton' cannot compute this: {against}")
        if against is None:
            return RelationalAttentionOutput(_triton(q, k, u, w, symbols, w_r, mask, scale=scale, rel_scale=rel_scale))
    if impl == "auto":
        dense = need_weights or _dense_is_faster(q, u, m, rel_activation) or symbol_for_each_pair(symbols, n, m)
        impl = (
            "dense"
            if dense
            else "sdpa"
            if _fits_library(q, m, symbols, mask, bias, dropout, rel_activation)
            else "linear"
        )
    common: dict[str, Any] = {"scale": scale, "rel_scale": rel_scale, "bias": bias, "dropout": dropout}

    if impl == "linear":
        return RelationalAttentionOutput(
            _linear(q, k, u, w, symbols, w_r, mask, rel_activation, need_weights=need_weights, **common)
        )
    if impl == "sdpa":
        return RelationalAttentionOutput(
            _sdpa(q, k, u, w, symbols, w_r, mask, rel_activation, need_weights=need_weights, **common)
        )
    common["mask"] = mask.dense(q.device)
    if impl == "reference":
        maps = reference.relational_attention(q, k, u, w, symbols, w_r, rel_activation=rel_activation, **common)
    elif impl == "dense":
        maps = _dense(q, k, u, w, symbols, w_r, rel_activation, need_weights=need_weights, **common)
    else:
        raise ValueError(f"impl: expected one of {', '.join(get_args(Implementation))}, got {impl!r}")
    return RelationalAttentionOutput(*maps) if need_weights else RelationalAttentionOutput(maps[0])


def _fuses(q: Tensor, pattern: MaskPattern) -> bool:
    """Whether to take the fused kernels where they can run.

    Not for a step of decoding, of which one program for each head would walk all senders.
    """
    return preferred(q) and not (pattern.offset and q.shape[2] < FEWEST_RECEIVERS)


def _fits_library(
    q: Tensor,
    m: int,
    symbols: Tensor | RelativeSymbols,
    pattern: MaskPattern,
    bias: Tensor | None,
    dropout: float,
    rel_activation: str | Activation,
) -> bool:
    """Whether library attention has a fused kernel for this, the values of :mod:`.sdpa` included."""
    can_run = rel_activation == "identity" and isinstance(symbols, Tensor) and not dropout
    fused = bias is None and (pattern.causal_alone or pattern.hides_nothing)
    return preferred(q) and can_run and fused and not is_open(q.shape[2], m)


def _dense(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    w_r: Tensor,
    rel_activation: str | Activation,
    *,
    scale: float,
    rel_scale: float,
    mask: Tensor | None,
    bias: Tensor | None,
    dropout: float,
    need_weights: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    alpha = F.dropout(reference.attention_weights(q, k, scale=scale, mask=mask, bias=bias), dropout)
    r = None
    if rel_activation == "identity" and not need_weights:
        attended_relations = attend_to_relations(alpha, u, w, rel_scale)
    else:
        r = reference.relations(u, w, scale=rel_scale, activation=rel_activation, mask=mask, bias=bias)
        attended_relations = torch.einsum("bhnm,bnmr->bhnr", alpha, r)
    return attended_relations @ w_r.transpose(-2, -1) + attend_to_symbols(alpha, symbols), alpha, r


def _linear(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    w_r: Tensor,
    pattern: MaskPattern,
    rel_activation: str | Activation,
    *,
    scale: float,
    rel_scale: float,
    bias: Tensor | None,
    dropout: float,
    need_weights: bool,
) -> Tensor:
    if need_weights:
        raise ValueError("impl='linear' builds neither weights nor relations whole: it needs need_weights=False")
    if isinstance(symbols, RelativeSymbols) and symbol_for_each_pair(symbols, q.shape[2], k.shape[2]):
        raise ValueError(
            "impl='linear' needs a library of relative symbols with at most 2 (N + M) = "
            f"{2 * (q.shape[2] + k.shape[2])} rows, got {symbols.library.shape[0]}"
        )
    operation = linear_relational_attention
    arguments: dict[str, Any] = {
        "scale": scale,
        "rel_scale": rel_scale,
        "pattern": pattern,
        "bias": bias,
        "dropout": dropout,
    }
    if rel_activation != "identity":
        operation, arguments["rel_activation"] = blockwise_relational_attention, rel_activation
    attended_symbols, attended_relations = operation(q, k, u, w, symbols, **arguments)
    return attended_symbols + attended_relations @ w_r.transpose(-2, -1)


def _triton(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    w_r: Tensor,
    pattern: MaskPattern,
    *,
    scale: float,
    rel_scale: float,
) -> Tensor:
    from ..triton.operation import fused_relational_attention  # imports Triton, which most users need not have

    assert not isinstance(symbols, RelativeSymbols) or isinstance(symbols, OffsetSymbols)  # others were an obstacle
    attended_symbols, attended_relations = fused_relational_attention(
        q, k, u, w, symbols, scale=scale, rel_scale=rel_scale, pattern=pattern
    )
    return attended_relations @ w_r.transpose(-2, -1) + attended_symbols


def _sdpa(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    w_r: Tensor,
    pattern: MaskPattern,
    rel_activation: str | Activation,
    *,
    dropout: float,
    need_weights: bool,
    **arguments: Any,
) -> Tensor:
    if need_weights or dropout or rel_activation != "identity" or isinstance(symbols, RelativeSymbols):
        raise ValueError(
            "impl='sdpa' needs need_weights=False, dropout=0 (its calls would draw different masks), relations with "
            f"the activation 'identity' and shared symbols, got need_weights={need_weights}, dropout={dropout}, "
            f"{activation_name(rel_activation)!r} and {type(symbols).__name__}"
        )
    attended_symbols, attended_relations = sdpa_relational_attention(q, k, u, w, symbols, pattern=pattern, **arguments)
    return attended_relations @ w_r.transpose(-2, -1) + attended_symbols


def attend_to_relations(alpha: Tensor, u: Tensor, w: Tensor, rel_scale: float) -> Tensor:
    """Relations under the attention weights, for the identity activation.

    The relation is linear in the sender's key, so the sum over senders moves inside the inner product:

    Math: sum_j alpha^h_ij <u^l_i, w^l_j> = <u^l_i, sum_j alpha^h_ij w^l_j>

    Args:
        alpha: ``(B, H, N, M)``; u: ``(B, N, R, p)``; w: ``(B, M, R, p)``.

    Returns:
        ``(B, H, N, R)``.
    """
    batch, heads, n, _ = alpha.shape
    # Relation keys are shared by all heads: stacking the heads' weights makes one product for each example.
    keys = (alpha.flatten(1, 2) @ w.flatten(2)).view(batch, heads, n, *w.shape[2:])
    return (keys * (rel_scale * u)[:, None]).sum(dim=-1)


def _dense_is_faster(q: Tensor, u: Tensor, m: int, rel_activation: str | Activation) -> bool:
    """:func:`dense_is_faster`, also while an export leaves sizes open."""
    batch, heads, n, _ = q.shape
    activated = rel_activation != "identity"
    if is_open(n, m):
        return activated
    return dense_is_faster(
        1 if is_open(batch) else batch, heads, n, m, u.shape[3], on_cpu=q.is_cpu, activated=activated
    )


def dense_is_faster(batch: int, heads: int, n: int, m: int, p: int, *, on_cpu: bool, activated: bool) -> bool:
    """Whether there are so few pairs that it is best to build all weights at once, see :data:`LARGEST_DENSE`."""
    if n * m > LARGEST_DENSE:
        return False
    if not on_cpu or activated or n < FEWEST_RECEIVERS:
        return True
    return batch * heads * n * m < (FEWEST_WEIGHTS if prefers_tiles(heads, p) else MOST_WEIGHTS)


def _check_tensors(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    w: Tensor,
    symbols: Tensor | RelativeSymbols,
    w_r: Tensor,
    bias: Tensor | None,
) -> None:
    table = symbols.library if isinstance(symbols, RelativeSymbols) else symbols
    check_axes(q=(q, 4), k=(k, 4), u=(u, 4), w=(w, 4), w_r=(w_r, 3))
    check_same_device(q=q, k=k, u=u, w=w, symbols=table, w_r=w_r, bias=bias)
    check_index(q, symbols)
    check_same_dtype(q=q, k=k, u=u, w=w, symbols=table)
    if w_r.dtype != q.dtype and not is_autocast(q):
        check_same_dtype(q=q, w_r=w_r)
    _check_shapes(q, k, u, w, symbols, w_r)


def _check_shapes(q: Tensor, k: Tensor, u: Tensor, w: Tensor, symbols: Tensor | RelativeSymbols, w_r: Tensor) -> None:
    batch, heads, n, width = q.shape
    groups, m = k.shape[1], k.shape[2]
    n_relations, p = u.shape[2:]
    if not (n_relations and p):
        raise ValueError(f"u: expected at least one relation and one feature of it, got shape {tuple(u.shape)}")
    expected: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "k": (k, (batch, groups, m, width)),
        "u": (u, (batch, n, n_relations, p)),
        "w": (w, (batch, m, n_relations, p)),
        "w_r": (w_r, (heads, w_r.shape[1], n_relations)),
    }
    if isinstance(symbols, RelativeSymbols):
        if symbols.shape[:2] != (n, m):
            raise ValueError(f"symbols: expected pairs (N, M) = {(n, m)}, got {tuple(symbols.shape[:2])}")
        expected["symbols.library"] = (symbols.library, (symbols.library.shape[0], groups, w_r.shape[1]))
    else:
        batch_of_symbols = 1 if symbols.shape[0] == 1 else batch
        expected["symbols"] = (symbols, (batch_of_symbols, groups, m, w_r.shape[1]))
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name}: expected shape {shape} beside q of {tuple(q.shape)}, got {tuple(tensor.shape)}")
    if not groups or heads % groups:
        raise ValueError(f"k: {groups} key/value heads do not divide {heads} query heads")
