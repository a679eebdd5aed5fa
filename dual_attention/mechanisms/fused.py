"""General attention on the library's fused operations: the dot product under softmax.

Shapes: as in :mod:`.general`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._layers.packed import is_watched
from ..functional import MaskPattern, attention, relational_attention
from ..functional.symbols import symbol_table
from .alignments import Align, Softmax
from .messages import Messages, SharedValues, repeat_symbols
from .relations import RelationalMessages
from .scores import Dot, Score


class AttentionInputs(NamedTuple):
    """Inputs of :meth:`.GeneralAttention.attend`.

    Attributes:
        query, key: as in :meth:`.GeneralAttention.forward`; the query is None for a score that takes none.
        messages: of the keys, or of pairs.
        mask, bias: broadcastable to ``(..., L, S)``, without an axis of features; the mask of heads may be a
            :class:`~dual_attention.functional.MaskPattern`, which is never built whole for long sequences.
        gain: factor of the weights, see :class:`.Selection`; fused operations have none.
    """

    query: Tensor | None
    key: Tensor
    messages: Messages
    mask: Tensor | MaskPattern | None = None
    bias: Tensor | None = None
    gain: Tensor | None = None


def fused_context(score: Score, align: Align, inputs: AttentionInputs, dropout: float) -> Tensor | None:
    """Context ``(..., L, d_v)`` from fused operations, or None where they do not compute this attention."""
    query, key, messages, *_ = inputs
    if is_watched(score) or is_watched(align):
        return None
    if type(score) is not Dot or type(align) is not Softmax or query is None or query.shape[-1] != key.shape[-1]:
        return None
    scale = score.scale_of(query.shape[-1]) / align.temperature
    if isinstance(messages, RelationalMessages):
        return _relational(scale, query, messages, inputs, dropout)
    if not isinstance(messages, SharedValues) or not query.dtype == key.dtype == messages.values.dtype:
        return None
    try:
        lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (query, key, messages.values)))
    except RuntimeError:
        return None
    q, k, v = (_of_heads(x.expand(*lead, *x.shape[-2:]), len(lead)) for x in (query, key, messages.values))
    mask, bias = _of_scores(inputs.mask, lead), _of_scores(inputs.bias, lead)
    context, _ = attention(q, k, v, scale=scale, mask=mask, bias=bias, dropout=dropout)
    return context.reshape(*lead, *context.shape[-2:])


def _relational(
    scale: float, query: Tensor, messages: RelationalMessages, inputs: AttentionInputs, dropout: float
) -> Tensor | None:
    if messages.scale is None or query.dim() != (4 if messages.has_heads else 3):
        return None
    lead, key, u, w = query.shape[:-2], inputs.key, messages.u, messages.w
    heads, head_dim, _ = messages.w_r.shape
    symbols = messages.symbols
    if symbols is None:
        symbols = u.new_zeros(1, heads, key.shape[-2], head_dim)
    if query.shape[0] != key.shape[0] or any(x.dtype != query.dtype for x in (key, u, w, symbol_table(symbols))):
        return None
    output = relational_attention(
        _of_heads(query, len(lead)),
        _of_heads(key, len(lead)),
        u,
        w,
        repeat_symbols(symbols, heads),
        messages.w_r,
        scale=scale,
        rel_scale=messages.scale,
        rel_activation=messages.relation.activation,
        mask=_of_scores(inputs.mask, lead),
        bias=_of_scores(inputs.bias, lead),
        dropout=dropout,
    ).output
    return output if messages.has_heads else output.squeeze(1)


def _of_heads(x: Tensor, n_lead: int) -> Tensor:
    """Exactly two leading axes: ``(..., L, d) -> (B, H, L, d)``."""
    if n_lead == 2:
        return x
    return x.flatten(0, -3)[:, None] if n_lead > 2 else x[(None,) * (1 - n_lead)][:, None]


def _of_scores(x: Any, lead: tuple[int, ...]) -> Any:
    """A mask or bias that broadcasts to ``(*lead, L, S)``, with two leading axes; a pattern or None as it is."""
    if not isinstance(x, Tensor):
        return x
    x = x.reshape((1,) * (len(lead) + 2 - x.dim()) + tuple(x.shape))
    if len(lead) > 2:
        x = x.expand(*lead, *x.shape[-2:])
    return _of_heads(x, len(lead))
