"""Multi-hop attention: the context of a query becomes part of the next query (survey 3.3.2).

Shapes: B batch, L queries, S keys, d_q, d_k, d_v widths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..._layers.calls import TypedModule
from ..._layers.inputs import check_boolean, check_kind, check_members, check_one_device, check_positive
from ...functional import masked_mean
from ...functional.checks import MaybeNone
from ...functional.masks import expand_padding
from ..general import GeneralAttention, GeneralAttentionOutput, drawn

Update = Callable[[Tensor, Tensor], Tensor]


def residual(query: Tensor, context: Tensor) -> Tensor:
    """q + o (Sukhbaatar et al. 2015, arXiv 1503.08895).

    >>> residual(torch.ones(2), torch.ones(2))
    tensor([2., 2.])
    """
    return query + context


def replace(query: Tensor, context: Tensor) -> Tensor:
    """The context o in place of the query.

    >>> replace(torch.zeros(2), torch.ones(2))
    tensor([1., 1.])
    """
    return context


class LinearUpdate(TypedModule):
    """q A^T + o, the layer-wise tying of memory networks (Sukhbaatar et al. 2015, section 2.2).

    Args:
        d: width of queries and contexts.

    >>> LinearUpdate(8)(torch.randn(2, 3, 8), torch.randn(2, 3, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        check_positive(d=d)
        self.linear = nn.Linear(d, d, bias=False)
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, query: Tensor, context: Tensor) -> Tensor:
        check_one_device(self, query=query, context=context)
        return self.linear(query) + context


class GRUUpdate(TypedModule):
    """Gated recurrent unit whose state is the query.

    Args:
        d_q, d_v: widths of queries and contexts.

    >>> GRUUpdate(d_q=6, d_v=8)(torch.randn(2, 3, 6), torch.randn(2, 3, 8)).shape
    torch.Size([2, 3, 6])
    """

    def __init__(self, d_q: int, d_v: int) -> None:
        super().__init__()
        check_positive(d_q=d_q, d_v=d_v)
        self.cell = nn.GRUCell(d_v, d_q)

    def forward(self, query: Tensor, context: Tensor) -> Tensor:
        check_one_device(self, query=query, context=context)
        return self.cell(context.reshape(-1, context.shape[-1]), query.reshape(-1, query.shape[-1])).view_as(query)


class MultiHopOutput(NamedTuple):
    """Output of hops.

    Attributes:
        query: query after the last update, ``(..., L, d_q)``.
        context: context of the last hop, ``(..., L, d_v)``.
        weights: weights of all hops, ``(hops, ..., L, S)``, or None.
        log_prob, entropy: of the keys drawn in all hops, added up to ``(B,)``; None if none were drawn.

    >>> out = MultiHop(GeneralAttention(Dot()), hops=3)(torch.randn(2, 1, 8), torch.randn(2, 5, 8), need_weights=True)
    >>> out.query.shape, out.weights.shape
    (torch.Size([2, 1, 8]), torch.Size([3, 2, 1, 5]))
    """

    query: Tensor
    context: Tensor
    weights: Tensor | MaybeNone = None
    log_prob: Tensor | MaybeNone = None
    entropy: Tensor | MaybeNone = None


class MultiHop(TypedModule):
    """Attention in several steps, each with a query updated by the context of the step before.

    Math: o^k = attend(q^k, K^k, V^k),  q^(k+1) = update(q^k, o^k)

    Args:
        attention: one for all hops, or a sequence or ``nn.ModuleList`` with one for each.
        hops: their number; needed with one attention, and otherwise the length of the sequence.
        update: function or module of query and context that keeps the query's shape: :func:`residual` (the default),
            :func:`replace`, :class:`LinearUpdate`, :class:`GRUUpdate`, or any other.
        feedback: use the survey's general form (eqs. 41, 42), in which scores see the query beside the context of the
            hop before, ``[q^k; o^(k-1)]``, where o^0 is the mean of the values.

    >>> hops = MultiHop(GeneralAttention(Dot()), hops=3, update=residual)
    >>> hops(torch.randn(2, 1, 8), torch.randn(2, 5, 8)).query.shape
    torch.Size([2, 1, 8])
    """

    def __init__(
        self,
        attention: GeneralAttention | Sequence[GeneralAttention] | nn.ModuleList,
        hops: int | None = None,
        *,
        update: Update = residual,
        feedback: bool = False,
    ) -> None:
        super().__init__()
        check_boolean(feedback=feedback)
        if isinstance(attention, nn.Module) and not isinstance(attention, nn.ModuleList):
            if hops is None:
                raise ValueError("hops: one attention for all hops needs their number, got None")
            check_positive(hops=hops)
            self.attentions = nn.ModuleList([attention])
        else:
            check_members("attention", attention)
            for part in attention:
                check_kind("attention", part, nn.Module)
            self.attentions = nn.ModuleList(attention)
            hops = len(self.attentions) if hops is None else hops
            check_positive(hops=hops)
            if hops != len(self.attentions):
                raise ValueError(f"hops: expected the number of attentions, {len(self.attentions)}, got {hops}")
        self.hops = hops
        self.update = update
        self.feedback = feedback

    def forward(
        self,
        query: Tensor,
        key: Tensor | Sequence[Tensor],
        value: Tensor | Sequence[Tensor] | None = None,
        *,
        attn_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        attn_bias: Tensor | None = None,
        need_weights: bool = False,
    ) -> MultiHopOutput:
        """Attend ``hops`` times.

        Args:
            query: ``(..., L, d_q)``.
            key, value: ``(..., S, d_k)`` and ``(..., S, d_v)``, the same for all hops; or a sequence with one for each,
                such as the embeddings A and C of a memory network. ``value=None`` means the key.
            attn_mask, padding_mask, attn_bias, need_weights: as :class:`GeneralAttention`.
        """
        check_one_device(
            self, query=query, key=key, value=value, attn_mask=attn_mask, padding_mask=padding_mask, attn_bias=attn_bias
        )
        keys = self._for_hops("key", key)
        values = keys if value is None else self._for_hops("value", value)
        context = None
        if self.feedback:
            context = masked_mean(values[0], expand_padding(padding_mask, values[0])).unsqueeze(-2)
        masks = {"attn_mask": attn_mask, "padding_mask": padding_mask, "attn_bias": attn_bias}
        steps: list[GeneralAttentionOutput] = []
        for hop in range(self.hops):
            attention = self.attentions[hop % len(self.attentions)]
            extended = query
            if self.feedback and context is not None:
                extended = torch.cat([query, context.expand(*query.shape[:-1], context.shape[-1])], dim=-1)
            output = attention(extended, keys[hop], values[hop], **masks, need_weights=need_weights)
            context = output.context
            updated = self.update(query, context)
            if updated.shape != query.shape and hop + 1 < self.hops:
                raise ValueError(f"update: expected the query's shape {tuple(query.shape)}, got {tuple(updated.shape)}")
            query = updated
            steps.append(output)
        assert context is not None  # since there is at least one hop
        weights = torch.stack([step.weights for step in steps]) if need_weights else None
        return MultiHopOutput(query, context, weights, *drawn(steps))

    def _for_hops(self, name: str, given: Tensor | Sequence[Tensor]) -> Sequence[Tensor]:
        if isinstance(given, Tensor):
            return [given] * self.hops
        if len(given) != self.hops:
            raise ValueError(f"{name}: expected one tensor, or one for each of {self.hops} hops, got {len(given)}")
        return given

    def extra_repr(self) -> str:
        return f"hops={self.hops}, feedback={self.feedback}"
