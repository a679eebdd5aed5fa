"""Co-attention of two inputs, and rotatory attention of three, which attend to each other (survey 3.1.1).

Shapes: B batch; two inputs ``x1 (B, n1, d1)`` and ``x2 (B, n2, d2)`` with masks ``mask1 (B, n1)`` and ``mask2 (B, n2)``
(True = real). An input may be empty or all padding; its mean and its context are then zero.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..._layers.calls import TypedModule
from ..._layers.inputs import check_batches, check_boolean, check_choice, check_one_device, check_positive
from ...functional import masked_mean
from ...functional.checks import MaybeNone
from .._parameters import matrix
from ..alignments import Align
from ..general import GeneralAttention
from ..scores import ActivatedGeneral, Additive
from .parts import ScoreFactory, build_attention, check_input, copy_align, make_score, summarise


class CoAttentionOutput(NamedTuple):
    """Output of co-attention.

    Attributes:
        context1, context2: summaries of the two inputs, ``(B, d1)`` and ``(B, d2)``.
        weights1, weights2: ``(B, n1)`` and ``(B, n2)``.
        first_weights: weights of the first step of alternating co-attention, ``(B, n1)``; None elsewhere.

    >>> out = ParallelCoAttention(d1=6, d2=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8))
    >>> out.context1.shape, out.weights1.shape, out.weights2.shape
    (torch.Size([2, 6]), torch.Size([2, 3]), torch.Size([2, 5]))
    """

    context1: Tensor
    context2: Tensor
    weights1: Tensor
    weights2: Tensor
    first_weights: Tensor | MaybeNone = None

    def concatenated(self) -> Tensor:
        """Both summaries, ``(B, d1 + d2)``."""
        return torch.cat([self.context1, self.context2], dim=-1)


class AlternatingCoAttention(TypedModule):
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
        super().__init__()
        check_boolean(tie_first_last=tie_first_last)
        check_positive(d1=d1, d2=d2)
        self.d1, self.d2 = d1, d2

        def attend(d_q: int, d_k: int) -> GeneralAttention:
            return build_attention(make_score("score", score, d_q, d_k), align, dropout)

        self.last = attend(d2, d1)
        self.first = self.last if tie_first_last else attend(d2, d1)
        self.second = attend(d1, d2)

    def forward(
        self, x1: Tensor, x2: Tensor, *, mask1: Tensor | None = None, mask2: Tensor | None = None
    ) -> CoAttentionOutput:
        """Summarise both inputs in three steps."""
        check_one_device(self, x1=x1, x2=x2, mask1=mask1, mask2=mask2)
        check_input("x1", x1, self.d1, mask1, "mask1")
        check_input("x2", x2, self.d2, mask2, "mask2")
        check_batches(x1=x1, x2=x2)
        c0, w0 = summarise(self.first, x1.new_zeros(x1.shape[0], self.d2), x1, mask1)
        c2, w2 = summarise(self.second, c0, x2, mask2)
        c1, w1 = summarise(self.last, c2, x1, mask1)
        return CoAttentionOutput(c1, c2, w1, w2, w0)


class InteractiveCoAttention(TypedModule):
    """Interactive co-attention: the mean of each side is the query of the other (Ma et al. 2017, arXiv 1709.00893).

    Math: c_1 = attend(mean(X_2), X_1),  c_2 = attend(mean(X_1), X_2)

    Args:
        d1, d2, score, align: as :class:`AlternatingCoAttention`, but by default the score :class:`ActivatedGeneral`.

    >>> out = InteractiveCoAttention(d1=6, d2=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8))
    >>> out.context1.shape, out.context2.shape
    (torch.Size([2, 6]), torch.Size([2, 8]))
    """

    def __init__(self, d1: int, d2: int, *, score: ScoreFactory = ActivatedGeneral, align: Align | None = None) -> None:
        super().__init__()
        check_positive(d1=d1, d2=d2)
        self.d1, self.d2 = d1, d2
        self.attention1 = build_attention(make_score("score", score, d2, d1), align)
        self.attention2 = build_attention(make_score("score", score, d1, d2), align)

    def forward(
        self, x1: Tensor, x2: Tensor, *, mask1: Tensor | None = None, mask2: Tensor | None = None
    ) -> CoAttentionOutput:
        """Summarise both inputs."""
        check_one_device(self, x1=x1, x2=x2, mask1=mask1, mask2=mask2)
        check_input("x1", x1, self.d1, mask1, "mask1")
        check_input("x2", x2, self.d2, mask2, "mask2")
        check_batches(x1=x1, x2=x2)
        c1, w1 = summarise(self.attention1, masked_mean(x2, mask2), x1, mask1)
        c2, w2 = summarise(self.attention2, masked_mean(x1, mask1), x2, mask2)
        return CoAttentionOutput(c1, c2, w1, w2)


class ParallelCoAttention(TypedModule):
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
        super().__init__()
        d_w = d1 if d_w is None else d_w
        check_positive(d1=d1, d2=d2, d_w=d_w)
        check_choice("pool", pool, ("project", "max"))
        self.d1, self.d2 = d1, d2
        self.pool = pool
        factory = partial(ActivatedGeneral, bias=False) if affinity is None else affinity
        self.affinity = make_score("affinity", factory, d1, d2)
        if self.affinity.multidim or self.affinity.n_queries is not None:
            raise ValueError(f"affinity: expected one number for each pair, got {self.affinity}")
        self.align1, self.align2 = copy_align(align), copy_align(align)
        if pool == "project":
            self.weight1, self.weight2 = matrix(None, d_w, d1), matrix(None, d_w, d2)
            self.vector1, self.vector2 = matrix(None, d_w), matrix(None, d_w)

    def forward(
        self, x1: Tensor, x2: Tensor, *, mask1: Tensor | None = None, mask2: Tensor | None = None
    ) -> CoAttentionOutput:
        """Summarise both inputs."""
        check_one_device(self, x1=x1, x2=x2, mask1=mask1, mask2=mask2)
        check_input("x1", x1, self.d1, mask1, "mask1")
        check_input("x2", x2, self.d2, mask2, "mask2")
        check_batches(x1=x1, x2=x2)
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
        w1, w2 = self.align1(e1, mask1).weights, self.align2(e2, mask2).weights
        c1, c2 = (w[:, None].to(x.dtype) @ x for w, x in ((w1, x1), (w2, x2)))
        return CoAttentionOutput(c1.squeeze(1), c2.squeeze(1), w1, w2)

    def extra_repr(self) -> str:
        return f"pool={self.pool!r}"


class MultiGrainedOutput(NamedTuple):
    """Output of multi-grained co-attention.

    Attributes:
        context1, context2: summaries of the two inputs, coarse before fine, ``(B, 2 d1)`` and ``(B, 2 d2)``.
        coarse, fine: outputs of the two mechanisms.

    >>> out = MultiGrainedCoAttention(d1=6, d2=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8))
    >>> out.coarse.weights1.shape, out.fine.weights1.shape
    (torch.Size([2, 3]), torch.Size([2, 3]))
    """

    context1: Tensor
    context2: Tensor
    coarse: CoAttentionOutput
    fine: CoAttentionOutput

    def concatenated(self) -> Tensor:
        """Both summaries, ``(B, 2 d1 + 2 d2)``."""
        return torch.cat([self.context1, self.context2], dim=-1)


class MultiGrainedCoAttention(TypedModule):
    """A coarse and a fine mechanism side by side (after Fan et al., EMNLP 2018; survey 3.1.1).

    The query of a coarse mechanism is one summary of an input; those of a fine one are its elements.

    Args:
        d1, d2: widths of the inputs.
        coarse: by default :class:`InteractiveCoAttention`.
        fine: by default :class:`ParallelCoAttention`.

    >>> out = MultiGrainedCoAttention(d1=6, d2=8)(torch.randn(2, 3, 6), torch.randn(2, 5, 8))
    >>> out.context1.shape, out.context2.shape
    (torch.Size([2, 12]), torch.Size([2, 16]))
    """

    def __init__(self, d1: int, d2: int, *, coarse: nn.Module | None = None, fine: nn.Module | None = None) -> None:
        super().__init__()
        self.coarse = InteractiveCoAttention(d1, d2) if coarse is None else coarse
        self.fine = ParallelCoAttention(d1, d2) if fine is None else fine

    def forward(
        self, x1: Tensor, x2: Tensor, *, mask1: Tensor | None = None, mask2: Tensor | None = None
    ) -> MultiGrainedOutput:
        """Summarise both inputs by both mechanisms."""
        check_one_device(self, x1=x1, x2=x2, mask1=mask1, mask2=mask2)
        coarse = self.coarse(x1, x2, mask1=mask1, mask2=mask2)
        fine = self.fine(x1, x2, mask1=mask1, mask2=mask2)
        context1 = torch.cat([coarse.context1, fine.context1], dim=-1)
        return MultiGrainedOutput(context1, torch.cat([coarse.context2, fine.context2], dim=-1), coarse, fine)


class RotatoryOutput(NamedTuple):
    """Output of rotatory attention, of a left context of length n_l, a target of n_t and a right context of n_r.

    Attributes:
        output: ``[left; right; target by left; target by right]``, ``(B, 4 d)`` (survey eq. 20).
        left_weights, right_weights: of the last hop, ``(B, n_l)`` and ``(B, n_r)``.
        target_left_weights, target_right_weights: of the last hop, ``(B, n_t)``.

    >>> out = RotatoryAttention(8)(torch.randn(2, 5, 8), torch.randn(2, 2, 8), torch.randn(2, 4, 8))
    >>> out.left_weights.shape, out.target_left_weights.shape
    (torch.Size([2, 5]), torch.Size([2, 2]))
    """

    output: Tensor
    left_weights: Tensor
    right_weights: Tensor
    target_left_weights: Tensor
    target_right_weights: Tensor


class RotatoryAttention(TypedModule):
    """Attention from a target to its left and right contexts, and from their summaries back to the target.

    After Zheng & Xia 2018 (arXiv 1802.00892; survey eqs. 17 to 20); not related to rotary position embeddings.

    Math: r_t = mean(T);  r_l = attend(r_t, L),  r_r = attend(r_t, R);  r_lt = attend(r_l, T),  r_rt = attend(r_r, T)

    An empty context, as where the target begins a sentence, gives r_l = 0 and with the default score r_lt = mean(T).

    Args:
        d: width of all three.
        score: makes each score from the widths of query and key; by default :class:`ActivatedGeneral`.
        align: by default :class:`Softmax`.
        hops: rounds of both steps, with the same parameters; after the first, r_lt and r_rt replace r_t as queries
            (Wallaart & Frasincar 2019).

    >>> layer = RotatoryAttention(8)
    >>> layer(torch.randn(2, 5, 8), torch.randn(2, 2, 8), torch.randn(2, 4, 8)).output.shape
    torch.Size([2, 32])
    """

    def __init__(
        self, d: int, *, score: ScoreFactory = ActivatedGeneral, align: Align | None = None, hops: int = 1
    ) -> None:
        super().__init__()
        check_positive(d=d, hops=hops)
        self.d = d
        self.hops = hops
        self.left, self.right, self.target_left, self.target_right = (
            build_attention(make_score("score", score, d, d), align) for _ in range(4)
        )

    def forward(
        self,
        left: Tensor,
        target: Tensor,
        right: Tensor,
        *,
        left_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        right_mask: Tensor | None = None,
    ) -> RotatoryOutput:
        """Summarise ``left (B, n_l, d)``, ``target (B, n_t, d)`` and ``right (B, n_r, d)`` in one vector."""
        check_one_device(
            self,
            left=left,
            target=target,
            right=right,
            left_mask=left_mask,
            target_mask=target_mask,
            right_mask=right_mask,
        )
        check_input("left", left, self.d, left_mask, "left_mask")
        check_input("target", target, self.d, target_mask, "target_mask")
        check_input("right", right, self.d, right_mask, "right_mask")
        check_batches(left=left, target=target, right=right)
        r_lt = r_rt = masked_mean(target, target_mask)
        w_l = w_r = w_lt = w_rt = r_l = r_r = r_lt
        for _ in range(self.hops):
            r_l, w_l = summarise(self.left, r_lt, left, left_mask)
            r_r, w_r = summarise(self.right, r_rt, right, right_mask)
            r_lt, w_lt = summarise(self.target_left, r_l, target, target_mask)
            r_rt, w_rt = summarise(self.target_right, r_r, target, target_mask)
        return RotatoryOutput(torch.cat([r_l, r_r, r_lt, r_rt], dim=-1), w_l, w_r, w_lt, w_rt)

    def extra_repr(self) -> str:
        return f"hops={self.hops}"


def _highest(affinity: Tensor, allowed: Tensor, dim: int) -> Tensor:
    """Highest allowed affinity, and 0 where none is allowed."""
    if not affinity.shape[dim]:
        return affinity.sum(dim)
    highest = affinity.masked_fill(~allowed, torch.finfo(affinity.dtype).min).amax(dim)
    return torch.where(allowed.any(dim), highest, 0.0)
