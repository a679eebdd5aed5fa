"""Parts that the composed architectures share: how they make attentions, and one query over one sequence."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from torch import Tensor

from ..._layers.inputs import check_kind, check_sequence
from ...functional.masks import require_boolean
from ..alignments import Align, Softmax
from ..general import GeneralAttention
from ..scores import Score

ScoreFactory = Callable[[int, int], Score]
"""Function that makes a score from the widths of query and key, as a class of scores does (``score=General``)."""


def make_score(name: str, factory: ScoreFactory, d_q: int, d_k: int) -> Score:
    """The score that a factory makes, or ``TypeError`` naming the argument that is none or makes none."""
    if not callable(factory):
        raise TypeError(f"{name}: expected a class of scores, or a function of two widths, got {factory!r}")
    made = factory(d_q, d_k)
    check_kind(name, made, Score)
    return made


def build_attention(score: Score, align: Align | None, dropout: float = 0.0) -> GeneralAttention:
    """Attention with its own copy of an alignment."""
    return GeneralAttention(score, copy_align(align), dropout=dropout)


def copy_align(align: Align | None) -> Align:
    """A copy of an alignment, by default :class:`Softmax`, so that no part learns for another.

    Copies share its generator, if it has one, so that none draws the noise of another.
    """
    generator = getattr(align, "generator", None)
    return Softmax() if align is None else copy.deepcopy(align, {id(generator): generator})


def summarise(
    attention: GeneralAttention, query: Tensor | None, x: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Context ``(..., d)`` and weights ``(..., S)`` of one query ``(..., d_q)`` over ``x (..., S, d)``."""
    queries = None if query is None else query.unsqueeze(-2)
    output = attention(queries, x, padding_mask=mask, need_weights=True)
    return output.context.squeeze(-2), output.weights.squeeze(-3 if attention.score.multidim else -2)


def check_input(name: str, x: Tensor, width: int, mask: Tensor | None, mask_name: str) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless ``x`` is ``(B, n, width)`` and its mask boolean ``(B, n)``."""
    check_sequence(name, x, width)
    check_mask_shape(mask_name, mask, x.shape[:2])


def check_mask_shape(name: str, mask: Tensor | None, shape: Sequence[int]) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless a mask, if there is one, is boolean and of that shape."""
    if mask is not None:
        require_boolean(name, mask)
        if mask.shape != shape:
            raise ValueError(f"{name}: expected shape {tuple(shape)}, got {tuple(mask.shape)}")
