"""Co-attention of two inputs, which attend to each other (survey 3.1.1).

Shapes: B batch; two inputs ``x1 (B, n1, d1)`` and ``x2 (B, n2, d2)`` with masks ``mask1 (B, n1)`` and ``mask2 (B, n2)``
(True = real). An input may be empty or all padding; its mean and its context are then zero.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..._layers.calls import TypedModule
from ..._layers.inputs import (
    check_batches,
    check_boolean,
    check_choice,
    check_kind,
    check_one_device,
    check_positive,
    check_sequence,
)
from ...functional import masked_mean
from ...functional.checks import MaybeNone
from ...functional.masks import require_boolean
from .._parameters import matrix
from ..alignments import Align, Softmax
from ..general import GeneralAttention, GeneralAttentionOutput, drawn
from ..scores import ActivatedGeneral, Additive, Score

ScoreFactory = Callable[[int, int], Score]
"""Function that makes a score from the widths of query and key, as a class of scores does (``score=General``)."""


def _make_score(name: str, factory: ScoreFactory, d_q: int, d_k: int) -> Score:
    """The score that a factory makes, or ``TypeError`` naming the argument that is none or makes none."""
    if not callable(factory):
        raise TypeError(f"{name}: expected a class of scores, or a function of two widths, got {factory!r}")
    made = factory(d_q, d_k)
    check_kind(name, made, Score)
    return made


def _build_attention(
    score: ScoreFactory, d_q: int, d_k: int, align: Align | None, dropout: float = 0.0
) -> GeneralAttention:
    """Attention with a score of its own, and its own copy of an alignment."""
    return GeneralAttention(_make_score("score", score, d_q, d_k), _copy_align(align), dropout=dropout)


def _copy_align(align: Align | None) -> Align:
    """A copy of an alignment, by default :class:`Softmax`, so that no part learns for another.

    Copies share its generator, if it has one, so that none draws the noise of another.
    """
    generator = getattr(align, "generator", None)
    return Softmax() if align is None else copy.deepcopy(align, {id(generator): generator})


class CoAttentionOutput(NamedTuple):
    """Output of co-attention.

    Attributes:
        context1, context2: summaries of the two inputs, ``(B, d1)`` and ``(B, d2)``.
        weights1, weights2: ``(B, n1)`` and ``(B, n2)``.
        first_weights: weights of the first step of alternating co-attention, ``(B, n1)``; None elsewhere.
        log_prob, entropy: of the elements drawn in all steps, added up to ``(B,)``; None if none were drawn.

    >>> out = ParallelCoAttention(d1=6, d2=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8))
    >>> out.context1.shape, out.weights1.shape, out.weights2.shape
    (torch.Size([2, 6]), torch.Size([2, 3]), torch.Size([2, 5]))
    """

    context1: Tensor
    context2: Tensor
    weights1: Tensor
    weights2: Tensor
    first_weights: Tensor | MaybeNone = None
    log_prob: Tensor | MaybeNone = None
    entropy: Tensor | MaybeNone = None

    def concatenated(self) -> Tensor:
        """Both summaries, ``(B, d1 + d2)``."""
        return torch.cat([self.context1, self.context2], dim=-1)


class _CoAttention(TypedModule):
    """Attention of two inputs of these widths to each other."""

    def __init__(self, d1: int, d2: int) -> None:
        super().__init__()
        check_positive(d1=d1, d2=d2)
        self.d1, self.d2 = d1, d2

    def check_inputs(self, x1: Tensor, x2: Tensor, mask1: Tensor | None, mask2: Tensor | None) -> None:
        """Raise ``ValueError`` or ``TypeError`` unless inputs are ``(B, n, d)`` and their masks boolean ``(B, n)``."""
        check_one_device(self, x1=x1, x2=x2, mask1=mask1, mask2=mask2)
        for name, x, width, mask in (("1", x1, self.d1, mask1), ("2", x2, self.d2, mask2)):
            check_sequence(f"x{name}", x, width)
            if mask is not None:
                require_boolean(f"mask{name}", mask)
                if mask.shape != x.shape[:2]:
                    raise ValueError(f"mask{name}: expected shape {tuple(x.shape[:2])}, got {tuple(mask.shape)}")
        check_batches(x1=x1, x2=x2)


class AlternatingCoAttention(_CoAttention):
    """Alternating co-attention, one side after the other (Lu et al. 2016, arXiv 1606.00061; survey eqs. 7 to 9).

    Math: c_0 = attend(0, X_1),  c_2 = attend(c_0, X_2),  c_1 = attend(c_2, X_1)

    Args:
        d1, d2: widths of the inputs.
        score: makes the score of each step from the widths of query and key; by default :class:`Additive`.
        align: by default :class:`Softmax`; each step has a copy.
        tie_first_last: share parameters of the first and the last step, as in the survey; not in the authors' code.
        dropout: rate on the weights.

    >>> out = AlternatingCoAttention(d1=6, d2=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8))
    >>> out.context1.shape, out.context2.shape, out.weights1.shape
    (torch.Size([2, 6]), torch.Size([2, 8]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        d1: int,
        d2: int,
        *,
        score: ScoreFactory = Additive,
        align: Align | None = None,
        tie_first_last: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d1, d2)
        check_boolean(tie_first_last=tie_first_last)
        attend = partial(_build_attention, score, align=align, dropout=dropout)
        self.last = attend(d2, d1)
        self.first = self.last if tie_first_last else attend(d2, d1)
        self.second = attend(d1, d2)

    def forward(
        self, x1: Tensor, x2: Tensor, *, mask1: Tensor | None = None, mask2: Tensor | None = None
    ) -> CoAttentionOutput:
        """Summarise both inputs in three steps."""
        self.check_inputs(x1, x2, mask1, mask2)
        c0, w0, s0 = _summarise(self.first, x1.new_zeros(x1.shape[0], self.d2), x1, mask1)
        c2, w2, s2 = _summarise(self.second, c0, x2, mask2)
        c1, w1, s1 = _summarise(self.last, c2, x1, mask1)
        return CoAttentionOutput(c1, c2, w1, w2, w0, *drawn([s0, s2, s1]))


class InteractiveCoAttention(_CoAttention):
    """Interactive co-attention: the mean of each side is the query of the other (Ma et al. 2017, arXiv 1709.00893).

    Math: c_1 = attend(mean(X_2), X_1),  c_2 = attend(mean(X_1), X_2)

    Args:
        d1, d2, score, align: as :class:`AlternatingCoAttention`, but by default the score :class:`ActivatedGeneral`.

    >>> out = InteractiveCoAttention(d1=6, d2=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8))
    >>> out.context1.shape, out.context2.shape
    (torch.Size([2, 6]), torch.Size([2, 8]))
    """

    def __init__(self, d1: int, d2: int, *, score: ScoreFactory = ActivatedGeneral, align: Align | None = None) -> None:
        super().__init__(d1, d2)
        self.attention1 = _build_attention(score, d2, d1, align)
        self.attention2 = _build_attention(score, d1, d2, align)

    def forward(
        self, x1: Tensor, x2: Tensor, *, mask1: Tensor | None = None, mask2: Tensor | None = None
    ) -> CoAttentionOutput:
        """Summarise both inputs."""
        self.check_inputs(x1, x2, mask1, mask2)
        c1, w1, s1 = _summarise(self.attention1, masked_mean(x2, mask2), x1, mask1)
        c2, w2, s2 = _summarise(self.attention2, masked_mean(x1, mask1), x2, mask2)
        return CoAttentionOutput(c1, c2, w1, w2, None, *drawn([s1, s2]))


class ParallelCoAttention(_CoAttention):
    """Parallel co-attention over the affinities of all pairs (Lu et al. 2016, arXiv 1606.00061; survey eqs. 12 to 16).

    Math: C = tanh(X_1 W_b X_2^T), zero where either is padding;  H_1 = tanh(X_1 W_1^T + C X_2 W_2^T),
    H_2 = tanh(X_2 W_2^T + C^T X_1 W_1^T);  a_i = align(H_i w_i),  c_i = a_i X_i

    Args:
        d1, d2: widths of the inputs.
        d_w: hidden width; by default ``d1``.
        affinity: makes the score of queries ``x1`` and keys ``x2`` from ``(d1, d2)``, one number for each pair; by
            default tanh of a bilinear form.
        pool: ``"project"`` scores an element by the projection above; ``"max"`` by the highest of its affinities
            (survey eq. 16), without further parameters.
        align: by default :class:`Softmax`.

    >>> out = ParallelCoAttention(d1=6, d2=8, d_w=16)(torch.randn(2, 3, 6), torch.randn(2, 5, 8))
    >>> out.context1.shape, out.context2.shape
    (torch.Size([2, 6]), torch.Size([2, 8]))
    """

    def __init__(
        self,
        d1: int,
        d2: int,
        d_w: int | None = None,
        *,
        affinity: ScoreFactory | None = None,
        pool: Literal["project", "max"] = "project",
        align: Align | None = None,
    ) -> None:
        super().__init__(d1, d2)
        d_w = d1 if d_w is None else d_w
        check_positive(d_w=d_w)
        check_choice("pool", pool, ("project", "max"))
        self.pool = pool
        factory = partial(ActivatedGeneral, bias=False) if affinity is None else affinity
        self.affinity = _make_score("affinity", factory, d1, d2)
        if self.affinity.multidim or self.affinity.n_queries is not None:
            raise ValueError(f"affinity: expected one number for each pair, got {self.affinity}")
        self.align1, self.align2 = _copy_align(align), _copy_align(align)
        if pool == "project":
            self.weight1, self.weight2 = matrix(None, d_w, d1), matrix(None, d_w, d2)
            self.vector1, self.vector2 = matrix(None, d_w), matrix(None, d_w)

    def forward(
        self, x1: Tensor, x2: Tensor, *, mask1: Tensor | None = None, mask2: Tensor | None = None
    ) -> CoAttentionOutput:
        """Summarise both inputs."""
        self.check_inputs(x1, x2, mask1, mask2)
        affinity = self.affinity(x1, x2)
        allowed = affinity != -torch.inf
        if mask1 is not None:
            allowed = allowed & mask1[:, :, None]
        if mask2 is not None:
            allowed = allowed & mask2[:, None, :]
        if self.pool == "max":
            e1, e2 = _highest(affinity, allowed, -1), _highest(affinity, allowed, -2)
        else:
            # Without zeros here the padding of one side shows in the scores of the other.
            affinity = affinity.masked_fill(~allowed, 0.0).to(x1.dtype)
            of1, of2 = x1 @ self.weight1.T, x2 @ self.weight2.T
            e1 = torch.tanh(of1 + affinity @ of2) @ self.vector1
            e2 = torch.tanh(of2 + affinity.transpose(-2, -1) @ of1) @ self.vector2
        steps = self.align1.align(e1, mask1), self.align2.align(e2, mask2)
        w1, w2 = (step.weights for step in steps)
        c1, c2 = (w[:, None].to(x.dtype) @ x for w, x in ((w1, x1), (w2, x2)))
        return CoAttentionOutput(c1.squeeze(1), c2.squeeze(1), w1, w2, None, *drawn(steps))

    def extra_repr(self) -> str:
        return f"pool={self.pool!r}"


def _highest(affinity: Tensor, allowed: Tensor, dim: int) -> Tensor:
    """Highest allowed affinity, and 0 where none is allowed."""
    if not affinity.shape[dim]:
        return affinity.sum(dim)
    highest = affinity.masked_fill(~allowed, torch.finfo(affinity.dtype).min).amax(dim)
    return torch.where(allowed.any(dim), highest, 0.0)


def _summarise(
    attention: GeneralAttention, query: Tensor, x: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, GeneralAttentionOutput]:
    """Context ``(..., d)``, weights ``(..., S)`` of one query ``(..., d_q)`` over ``x (..., S, d)``, and all of it."""
    output = attention(query.unsqueeze(-2), x, padding_mask=mask, need_weights=True)
    return output.context.squeeze(-2), output.weights.squeeze(-3 if attention.score.multidim else -2), output
