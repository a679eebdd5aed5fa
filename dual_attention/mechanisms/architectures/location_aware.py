"""Attention that depends on its earlier weights (Chorowski et al. 2015, arXiv 1506.07503).

Shapes: B batch, L queries in their order, S keys, C filters, d_q, d_k, d_v widths.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..._layers.calls import TypedModule
from ..._layers.inputs import check_boolean, check_one_device, check_positive, check_sequence
from ...functional import location_features
from ...functional.checks import MaybeNone
from .._parameters import matrix
from ..alignments import Align
from ..scores import Additive
from .parts import ScoreFactory, build_attention, check_input, make_score


class LocationAwareOutput(NamedTuple):
    """Output of location-aware attention.

    Attributes:
        context: ``(B, L, d_v)``.
        seen: last weights or sum of all weights, ``(B, S)``, for the query after these.
        weights: ``(B, L, S)``, or None.
        log_prob, entropy: of drawn keys, ``(B, L)``, see :class:`.Alignment`; None if none were drawn.

    >>> layer = LocationAwareAttention(d_q=8, d_k=8, n_filters=4, kernel_size=3)
    >>> first = layer(torch.randn(2, 1, 8), key := torch.randn(2, 5, 8))
    >>> layer(torch.randn(2, 1, 8), key, seen=first.seen).context.shape
    torch.Size([2, 1, 8])
    """

    context: Tensor
    seen: Tensor
    weights: Tensor | MaybeNone = None
    log_prob: Tensor | MaybeNone = None
    entropy: Tensor | MaybeNone = None


class LocationAwareAttention(TypedModule):
    """Attention in which each query sees the weights of the one before, so that it moves on through the keys.

    Math: f = F * a_{t-1},  e_ts = score(q_t, [k_s; f_s]),  a_t = align(e_t),  c_t = sum_s a_ts v_s

    With the default score e_ts = <w, tanh(W q_t + V k_s + U f_s + b)>. Queries are taken one after the other. Softmax
    with a temperature below one is the paper's sharpening.

    Args:
        d_q, d_k: widths of query and key.
        n_filters: C, rows of F.
        kernel_size: number of positions that a filter spans, odd.
        score: makes the score of a pair from the widths of query and extended key; by default :class:`Additive`.
        align: by default :class:`Softmax`.
        cumulative: apply F to the sum of all weights so far, as in Tacotron 2 (Shen et al. 2018, arXiv 1712.05884).
        dropout: rate on the weights while training.

    >>> layer = LocationAwareAttention(d_q=8, d_k=8, n_filters=4, kernel_size=3)
    >>> layer(torch.randn(2, 3, 8), torch.randn(2, 5, 8)).context.shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        d_q: int,
        d_k: int,
        *,
        n_filters: int = 10,
        kernel_size: int = 201,
        score: ScoreFactory = Additive,
        align: Align | None = None,
        cumulative: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_boolean(cumulative=cumulative)
        check_positive(d_q=d_q, d_k=d_k, n_filters=n_filters, kernel_size=kernel_size)
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size: expected an odd number, with a middle, got {kernel_size}")
        made = make_score("score", score, d_q, d_k + n_filters)
        if made.multidim or made.n_queries is not None:
            raise ValueError(f"score: expected one number for each query and key, got {made}")
        self.d_q, self.d_k = d_q, d_k
        self.cumulative = cumulative
        self.kernel = matrix(None, n_filters, kernel_size)
        self.attention = build_attention(made, align, dropout)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        *,
        padding_mask: Tensor | None = None,
        seen: Tensor | None = None,
        need_weights: bool = False,
    ) -> LocationAwareOutput:
        """Attend from each query in turn.

        Args:
            query: ``(B, L, d_q)``. A decoder whose queries depend on contexts gives them one at a time.
            key: ``(B, S, d_k)``; value: ``(B, S, d_v)``, by default the key.
            padding_mask: boolean ``(B, S)``; True = a real key.
            seen: ``(B, S)``, from the call before; None for a start, as if nothing had been attended.
            need_weights: also return the weights.
        """
        check_one_device(self, query=query, key=key, value=value, padding_mask=padding_mask, seen=seen)
        check_sequence("query", query, self.d_q)
        check_input("key", key, self.d_k, padding_mask, "padding_mask")
        if seen is not None and seen.shape != key.shape[:2]:
            raise ValueError(f"seen: expected shape {tuple(key.shape[:2])}, got {tuple(seen.shape)}")
        batch, n_keys = key.shape[:2]
        past: Tensor = key.new_zeros(batch, n_keys) if seen is None else seen
        value = key if value is None else value
        outputs = []
        for one in query.split(1, dim=1) if query.shape[1] else ():
            extended = torch.cat([key, location_features(past, self.kernel).to(key.dtype)], dim=-1)
            output = self.attention(one, extended, value, padding_mask=padding_mask, need_weights=True)
            weights = output.weights
            assert weights is not None  # as they were asked for
            past = past + weights[:, 0] if self.cumulative else weights[:, 0]
            outputs.append(output)
        if not outputs:
            weights = key.new_zeros(batch, 0, n_keys) if need_weights else None
            return LocationAwareOutput(value.new_zeros(batch, 0, value.shape[-1]), past, weights)
        joined = self.attention.join(outputs)
        weights = joined.weights if need_weights else None
        return LocationAwareOutput(joined.context, past, weights, joined.log_prob, joined.entropy)

    def extra_repr(self) -> str:
        filters, width = self.kernel.shape
        return f"n_filters={filters}, kernel_size={width}, cumulative={self.cumulative}"
