"""Attention on several levels, and over several representations (survey 3.1.2 and 3.1.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._layers.calls import TypedModule
from ..._layers.inputs import check_kind, check_members, check_one_device, check_positive
from ..alignments import Align
from ..general import GeneralAttention, GeneralAttentionOutput
from ..scores import Additive, KeyOnly, Score
from .parts import ScoreFactory, build_attention, check_input, check_mask_shape, make_score, summarise


class HierarchicalOutput(NamedTuple):
    """Output of hierarchical attention.

    Attributes:
        context: context of the whole, ``(B, d)``.
        weights: one tensor for each level, the lowest first: words ``(B, N, T)``, sentences ``(B, N)``.

    >>> words, sentences = HierarchicalAttention(8)(torch.randn(2, 3, 5, 8)).weights
    >>> words.shape, sentences.shape
    (torch.Size([2, 3, 5]), torch.Size([2, 3]))
    """

    context: Tensor
    weights: tuple[Tensor, ...]


class HierarchicalAttention(TypedModule):
    """Attention to words, then to the sentences that they make (Yang et al. 2016, HAN, eqs. 5 to 10).

    Math: s_n = attend(words_n),  doc = attend(encoder(s)_1..N), without queries

    The context of a sentence of padding is zero, and so is its weight in the document.

    Args:
        d: width of words and of the encoders' outputs.
        score: one score for each level, the lowest first, with or without a query; by default two :class:`KeyOnly`.
        align: by default :class:`Softmax`; each level has a copy.
        encoders: modules between a level's output and the next level: ``(B, N, d) -> (B, N, d)``; None for none.

    >>> out = HierarchicalAttention(8)(torch.randn(2, 3, 5, 8))
    >>> out.context.shape, [weights.shape for weights in out.weights]
    (torch.Size([2, 8]), [torch.Size([2, 3, 5]), torch.Size([2, 3])])
    """

    def __init__(
        self,
        d: int,
        *,
        score: Sequence[Score] | None = None,
        align: Align | None = None,
        encoders: Sequence[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        check_positive(d=d)
        scores = [KeyOnly(d), KeyOnly(d)] if score is None else score
        check_members("score", scores)
        if not scores:
            raise ValueError("score: expected one for each level, got none")
        between = [nn.Identity() for _ in scores[1:]] if encoders is None else encoders
        check_members("encoders", between)
        for part in between:
            check_kind("encoders", part, nn.Module)
        if len(between) != len(scores) - 1:
            raise ValueError(f"encoders: expected one between levels, {len(scores) - 1}, got {len(between)}")
        self.levels = nn.ModuleList([build_attention(one, align) for one in scores])
        self.encoders = nn.ModuleList(between)

    def forward(self, x: Tensor, *, mask: Tensor | None = None, query: Tensor | None = None) -> HierarchicalOutput:
        """Attend from the lowest level up.

        Args:
            x: ``(B, N, T, d)``: one axis for each level, the lowest last.
            mask: boolean, ``(B, N, T)``; True = a real word. A sentence is real if any of its words is.
            query: ``(B, d_q)``, for scores that take one.
        """
        check_one_device(self, x=x, mask=mask, query=query)
        if x.dim() != len(self.levels) + 2:
            raise ValueError(f"x: expected a batch, {len(self.levels)} levels and a width, got shape {tuple(x.shape)}")
        check_mask_shape("mask", mask, x.shape[:-1])
        weights = []
        for number, level in enumerate(self.levels):
            if number:
                x = self.encoders[number - 1](x)
            queries = None if query is None else query.reshape(query.shape[0], *(1,) * (x.dim() - 3), query.shape[-1])
            x, of_level = summarise(level, queries, x, mask)  # type: ignore[arg-type]
            weights.append(of_level)
            mask = None if mask is None else mask.any(-1)
        return HierarchicalOutput(x, tuple(weights))


class SocialContextualOutput(NamedTuple):
    """Output of social-contextual attention.

    Attributes:
        context: ``(B, d)``.
        aspect_weights: ``(B, number of aspects)``, in the order of the aspects.
        weights: weights ``(B, n)`` of the elements of each aspect, by name.

    >>> layer = SocialContextualAttention(d_user=8, d=8, aspects=["friends", "posts"])
    >>> out = layer(torch.randn(2, 8), {"friends": torch.randn(2, 3, 8), "posts": torch.randn(2, 5, 8)})
    >>> out.aspect_weights.shape, out.weights["posts"].shape
    (torch.Size([2, 2]), torch.Size([2, 5]))
    """

    context: Tensor
    aspect_weights: Tensor
    weights: dict[str, Tensor]


class SocialContextualAttention(TypedModule):
    """Attention of a user within named aspects, then to the aspects (after Wu et al. 2018, arXiv 1806.00723).

    Math: s_a = attend(user, X_a),  context = attend(user, (s_a)_a)

    An aspect without elements has no weight; one with a single element passes it on.

    Args:
        d_user: width of the user's vector.
        d: width of elements.
        aspects: names of the aspects, all different; keys of an ``nn.ModuleDict``, so ``items`` is none.
        score: makes each score from the widths of query and key; by default :class:`Additive` with ELU.
        align: by default :class:`Softmax`.

    >>> layer = SocialContextualAttention(d_user=8, d=8, aspects=["friends", "posts"])
    >>> layer(torch.randn(2, 8), {"friends": torch.randn(2, 3, 8), "posts": torch.randn(2, 5, 8)}).context.shape
    torch.Size([2, 8])
    """

    def __init__(
        self,
        d_user: int,
        d: int,
        aspects: Sequence[str],
        *,
        score: ScoreFactory | None = None,
        align: Align | None = None,
    ) -> None:
        super().__init__()
        check_members("aspects", aspects)
        for name in aspects:
            check_kind("aspects", name, str)
            if not name or "." in name or hasattr(nn.ModuleDict(), name):
                raise ValueError(f"aspects: expected names without dots, none of an nn.ModuleDict's own, got {name!r}")
        if len(set(aspects)) != len(aspects):
            raise ValueError(f"aspects: expected names that differ, got {list(aspects)}")
        check_positive(d_user=d_user, d=d, aspects=len(aspects))
        make = (lambda d_q, d_k: Additive(d_q, d_k, activation=F.elu)) if score is None else score
        self.d = d
        attend = [build_attention(make_score("score", make, d_user, d), align) for _ in (*aspects, None)]
        self.elements = nn.ModuleDict(dict(zip(aspects, attend, strict=False)))
        self.aspects = attend[-1]

    def forward(
        self, user: Tensor, groups: Mapping[str, Tensor], *, masks: Mapping[str, Tensor] | None = None
    ) -> SocialContextualOutput:
        """Summarise the aspects for each user.

        Args:
            user: ``(B, d_user)``.
            groups: elements ``(B, n, d)`` of each aspect by name; n may differ.
            masks: boolean ``(B, n)`` by name, for the aspects with padding.
        """
        masks = {} if masks is None else masks
        if set(groups) != set(self.elements):
            raise ValueError(f"groups: expected the aspects {', '.join(self.elements)}, got {', '.join(groups)}")
        if set(masks) - set(groups):
            raise ValueError(f"masks: expected only aspects {', '.join(groups)}, got {', '.join(masks)}")
        summaries, present, weights = [], [], {}
        for name, attention in self.elements.items():
            x, mask = groups[name], masks.get(name)
            check_input(f"groups[{name!r}]", x, self.d, mask, f"masks[{name!r}]")
            summary, weights[name] = summarise(attention, user, x, mask)  # type: ignore[arg-type]
            summaries.append(summary)
            real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
            present.append(real.any(-1))
        context, of_aspects = summarise(self.aspects, user, torch.stack(summaries, 1), torch.stack(present, 1))
        return SocialContextualOutput(context, of_aspects, weights)


class AttentionViaAttentionOutput(NamedTuple):
    """Output of attention-via-attention.

    Attributes:
        context: contexts of the upper and the lower level, ``(..., L, d_upper + d_lower)``.
        upper_weights, lower_weights: ``(..., L, S_upper)`` and ``(..., L, S_lower)``.

    >>> layer = AttentionViaAttention(d_q=4, d_upper=6, d_lower=8)
    >>> out = layer(torch.randn(2, 1, 4), torch.randn(2, 3, 6), torch.randn(2, 5, 8))
    >>> out.upper_weights.shape, out.lower_weights.shape
    (torch.Size([2, 1, 3]), torch.Size([2, 1, 5]))
    """

    context: Tensor
    upper_weights: Tensor
    lower_weights: Tensor


class AttentionViaAttention(TypedModule):
    """Attention to one level with a query extended by the context of another (Zhao & Zhang, AAAI 2018; survey 3.1.2).

    Math: c_w = attend(q, X_word),  c_c = attend([q; c_w], X_char),  output [c_w; c_c]

    Args:
        d_q: width of the query.
        d_upper, d_lower: widths of the levels, such as words and characters.
        score: makes the score of each level from the widths of query and key; by default :class:`Additive`.
        align: by default :class:`Softmax`.

    >>> layer = AttentionViaAttention(d_q=4, d_upper=6, d_lower=8)
    >>> layer(torch.randn(2, 1, 4), torch.randn(2, 3, 6), torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 1, 14])
    """

    def __init__(
        self, d_q: int, d_upper: int, d_lower: int, *, score: ScoreFactory = Additive, align: Align | None = None
    ) -> None:
        super().__init__()
        check_positive(d_q=d_q, d_upper=d_upper, d_lower=d_lower)
        self.upper = build_attention(make_score("score", score, d_q, d_upper), align)
        self.lower = build_attention(make_score("score", score, d_q + d_upper, d_lower), align)

    def forward(
        self,
        query: Tensor,
        upper: Tensor,
        lower: Tensor,
        *,
        upper_mask: Tensor | None = None,
        lower_mask: Tensor | None = None,
    ) -> AttentionViaAttentionOutput:
        """Attend from ``query (..., L, d_q)`` to ``upper (..., S_u, d_upper)`` and ``lower (..., S_l, d_lower)``."""
        check_one_device(self, query=query, upper=upper, lower=lower, upper_mask=upper_mask, lower_mask=lower_mask)
        above = self.upper(query, upper, padding_mask=upper_mask, need_weights=True)
        extended = torch.cat([query, above.context], dim=-1)
        below = self.lower(extended, lower, padding_mask=lower_mask, need_weights=True)
        return AttentionViaAttentionOutput(
            torch.cat([above.context, below.context], dim=-1), above.weights, below.weights
        )


class MultiRepresentationAttention(TypedModule):
    """Attention of items to their own representations: dynamic meta-embeddings (Kiela et al. 2018, arXiv 1804.07983).

    Math: t_i = W_i x^(i) + b_i,  a = align(score(t_i)),  out = sum_i a_i t_i  (survey eqs. 21, 22)

    Args:
        widths: of the E representations.
        d: common width.
        score: score without a query; by default a linear :class:`KeyOnly`.
        align: by default :class:`Softmax`; :class:`Sigmoid` gates each representation independently.

    >>> layer = MultiRepresentationAttention(widths=[6, 8], d=16)
    >>> layer([torch.randn(2, 5, 6), torch.randn(2, 5, 8)]).context.shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self, widths: Sequence[int], d: int, *, score: KeyOnly | None = None, align: Align | None = None
    ) -> None:
        super().__init__()
        check_members("widths", widths)
        check_positive(d=d, widths=len(widths))
        for width in widths:
            check_positive(widths=width)
        self.projections = nn.ModuleList([nn.Linear(width, d) for width in widths])
        for linear in self.projections:
            nn.init.xavier_uniform_(linear.weight)  # type: ignore[arg-type]
            nn.init.zeros_(linear.bias)  # type: ignore[arg-type]
        self.attention: GeneralAttention = build_attention(KeyOnly(d, 0) if score is None else score, align)

    def forward(self, representations: Sequence[Tensor], *, mask: Tensor | None = None) -> GeneralAttentionOutput:
        """Mix representations of the same items: a context ``(..., S, d)`` and weights ``(..., S, E)``.

        Args:
            representations: E tensors ``(..., S, d_i)``.
            mask: boolean, ``(..., S, E)``; False where a representation is missing.
        """
        check_one_device(self, mask=mask)
        if len(representations) != len(self.projections):
            raise ValueError(f"representations: expected {len(self.projections)}, got {len(representations)}")
        for number, x in enumerate(representations):
            width = self.projections[number].in_features
            if x.shape[-1] != width or x.shape[:-1] != representations[0].shape[:-1]:
                wanted = (*representations[0].shape[:-1], width)
                raise ValueError(f"representations[{number}]: expected shape {wanted}, got {tuple(x.shape)}")
        mixed = torch.stack([linear(x) for linear, x in zip(self.projections, representations, strict=True)], dim=-2)
        return GeneralAttentionOutput(*summarise(self.attention, None, mixed, mask))
