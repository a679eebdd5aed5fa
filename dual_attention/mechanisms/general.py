"""The general attention module: query, score, selection, alignment, message (survey section 2).

Shapes: B batch, L queries, S keys, d_q, d_k, d_v widths; ``...`` any number of leading axes, heads among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .._base.words import repr_of_shapes
from .._layers.calls import TypedModule
from .._layers.inputs import check_dropout, check_kind, check_one_device, check_positive
from ..functional.checks import MaybeNone, check_like, check_tensor, in_transform
from ..functional.masks import MaskPattern, causal_mask, require_boolean
from ..functional.reference import Observe, visible_pairs, without_hidden
from ._score import check_kind_made, check_made
from .alignments import Align, Hard, Softmax
from .fused import AttentionInputs, fused_context
from .messages import Message, Messages, ValueMessage
from .relations import RelationalMessages
from .scores import Score
from .selections import Select, Selection

LARGEST_DENSE = 256 * 256
"""Pairs (queries times keys) up to which scores are built at once; beyond, a block of queries at a time."""

BLOCK = 128
"""Queries in a block."""


class GeneralAttentionOutput(NamedTuple):
    """Output of attention.

    Attributes:
        context: ``(..., L, d_v)``, in the type of the values; zero for a query with nothing to attend.
        weights: before dropout, ``(..., L, S)`` or with a score of features ``(..., L, S, d_v)``; or None.
        log_prob, entropy: of drawn keys, see :class:`.Alignment`; None if none were drawn.
        selection: see :class:`.Selection`; None without one.

    >>> out = GeneralAttention(Dot(), Hard())(torch.randn(2, 3, 8), torch.randn(2, 5, 8), need_weights=True)
    >>> out.weights.shape, out.log_prob.shape
    (torch.Size([2, 3, 5]), torch.Size([2, 3]))
    """

    context: Tensor
    weights: Tensor | MaybeNone = None
    log_prob: Tensor | MaybeNone = None
    entropy: Tensor | MaybeNone = None
    selection: Selection | MaybeNone = None

    __repr__ = repr_of_shapes


class GeneralAttention(TypedModule):
    """Attention as a composition.

    Math: e_ls = score(q_l, k_s),  a_l = align(e_l; mask),  c_l = sum_s a_ls m_ls

    The dot product under softmax, with shared values or with relations that are inner products (see
    :meth:`.Score.factors`), runs on fused kernels unless weights are asked for or one of these parts has hooks.
    Everything else builds scores: for long sequences only those of one block of queries at a time, and again in the
    backward pass.

    Args:
        score: comparison of a query with keys.
        align: map from scores to weights; by default :class:`Softmax`.
        query: module that makes queries from the keys, where the caller gives none.
        select: choice of the keys that a query may attend, before the alignment.
        message: carried under the weights; by default the values, or the keys where no values are given.
        dropout: rate on the weights while training; the rest is scaled up and not normalised again.
        block: queries in a block; by default all up to 256 x 256 pairs, 128 beyond.

    >>> attention = GeneralAttention(Additive(d_q=6, d_k=8), Sparsemax())
    >>> out = attention(torch.randn(2, 3, 6), torch.randn(2, 5, 8), need_weights=True)
    >>> out.context.shape, out.weights.shape
    (torch.Size([2, 3, 8]), torch.Size([2, 3, 5]))
    """

    def __init__(
        self,
        score: Score,
        align: Align | None = None,
        *,
        query: nn.Module | None = None,
        select: Select | None = None,
        message: Message | None = None,
        dropout: float = 0.0,
        block: int | None = None,
    ) -> None:
        super().__init__()
        kinds = {"score": Score, "align": Align, "select": Select, "message": Message}
        for (name, kind), part in zip(kinds.items(), (score, align, select, message), strict=True):
            if part is not None or name == "score":
                check_kind(name, part, kind)
        check_positive(block=1 if block is None else block)
        if block is not None and align is not None and align.whole:
            raise ValueError(f"block: {type(align).__name__} aligns all queries at once; expected None, got {block}")
        if query is not None and score.n_queries is not None:
            raise ValueError(f"query: {type(score).__name__} takes no query, got {type(query).__name__}")
        if select is not None and score.n_queries is not None:
            raise ValueError(f"select: {type(score).__name__} has no query to select keys for")
        self.score = score
        self.align = Softmax() if align is None else align
        self.query = query
        self.select = select
        self.message = ValueMessage() if message is None else message
        self.dropout = check_dropout("dropout", dropout)
        self.block = block

    def forward(
        self,
        query: Tensor | None = None,
        key: Tensor | None = None,
        value: Any = None,
        *,
        attn_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        is_causal: bool = False,
        attn_bias: Tensor | None = None,
        need_weights: bool = False,
    ) -> GeneralAttentionOutput:
        """Attend from each query to the keys.

        Args:
            query: ``(..., L, d_q)``, with all leading axes of the key (or 1); None where queries are made from the
                keys, or the score takes none.
            key: ``(..., S, d_k)``; None means the query: self-attention.
            value: for the message; shared values are ``(..., S, d_v)``, and None means the key.
            attn_mask: boolean ``(L, S)``, or as the scores ``(..., L, S)`` with axes full or 1; True = may be attended.
            padding_mask: boolean ``(..., S)``, with the key's leading axes (or 1); True = a real key.
            is_causal: query i sees keys j <= i; needs L = S.
            attn_bias: floating point, of shapes as ``attn_mask``, added to the scores; minus infinity masks.
            need_weights: also return the weights.
        """
        check_one_device(
            self, query=query, key=key, value=value, attn_mask=attn_mask, padding_mask=padding_mask, attn_bias=attn_bias
        )
        query, key = self.queries_and_keys(query, key)
        messages = self.message(query, key, value)
        check_kind_made("message", self.message, messages, Messages, "messages such as SharedValues(values)")
        scores_shape = self.scores_shape(query, key)
        mask = resolve_mask(attn_mask, padding_mask, is_causal, scores_shape, key.device)
        bias = check_scores_like("attn_bias", attn_bias, scores_shape)
        inputs = AttentionInputs(query, key, messages, mask, bias)
        return self.attend(inputs, padding_mask=padding_mask, need_weights=need_weights)

    def queries_and_keys(self, query: Tensor | None, key: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """Queries and keys from the caller's arguments; queries are None for a score that takes none."""
        key = query if key is None else key
        if key is None:
            raise ValueError("key: expected keys, or a query that is the key as well; got neither")
        for name, x in (("key", key), ("query", query)):
            if x is None:
                continue
            check_tensor(name, x)
            if x.dim() < 2 or not x.is_floating_point():
                received = f"shape {tuple(x.shape)} of dtype {x.dtype}"
                raise ValueError(f"{name}: expected floating-point vectors (..., length, width), got {received}")
            check_like(name, x, self.score)
        if query is not None and query.dim() < key.dim():
            raise ValueError(
                f"query: expected as many axes as the key of shape {tuple(key.shape)}, got shape {tuple(query.shape)}; "
                "q[:, None] is one query for each example, q[None] the same queries for all"
            )
        if self.score.n_queries is not None:
            return None, key
        if self.query is not None:
            if query is not None and query is not key:
                raise ValueError(f"query: {type(self.query).__name__} makes it of the keys; expected None")
            query = self.query(key)
        return self.score.require_query(query), key

    def scores_shape(self, query: Tensor | None, key: Tensor) -> tuple[int, ...]:
        """``(..., L, S)``, without the axis of a score of features."""
        if query is None:
            return (*key.shape[:-2], self.score.n_queries or 1, key.shape[-2])
        try:
            lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
        except RuntimeError:
            raise ValueError(
                f"key: leading axes of query {tuple(query.shape)} and key {tuple(key.shape)} do not broadcast"
            ) from None
        return (*lead, query.shape[-2], key.shape[-2])

    def attend(
        self,
        inputs: AttentionInputs,
        *,
        padding_mask: Tensor | None = None,
        need_weights: bool = False,
        observe: Observe | None = None,
    ) -> GeneralAttentionOutput:
        """Attend as :meth:`forward`, given queries, keys, messages and one mask.

        Args:
            padding_mask: ``(..., S)``, for the selection.
            observe: observer of all steps, as :mod:`~dual_attention.functional.reference` names them; for scores of
                heads, ``(B, H, L, S)``.
        """
        query, key = inputs.query, inputs.key
        selection = None
        if self.select is not None and query is not None:
            selection = self.select(query, key, padding_mask)
            check_kind_made("select", self.select, selection, Selection, "a Selection(mask)")
            shape = self.scores_shape(query, key)
            for name, x in (("mask", selection.mask), ("gain", selection.gain), ("bias", selection.bias)):
                if x is not None and not _broadcasts(x, shape):
                    check_made(f"select, {name}", self.select, x, "(..., L, S)", shape)
            inputs = _with_selection(inputs, selection)
        n, m = self.scores_shape(query, key)[-2:]
        if observe is not None:
            return _selected(self._block(inputs, slice(0, n), need_weights, observe), selection)

        if inputs.gain is None and not need_weights and self.block is None and m and n:
            context = fused_context(self.score, self.align, inputs, self.dropout if self.training else 0.0)
            if context is not None:
                return GeneralAttentionOutput(context, selection=selection)

        def receive(rows: slice) -> GeneralAttentionOutput:
            return self._block(inputs, rows, need_weights)

        size = self.block or (n if n * m <= LARGEST_DENSE or self.align.whole else BLOCK)
        received = receive(slice(0, n)) if query is None or size >= n else self._in_blocks(receive, n, size)
        return _selected(received, selection)

    def _in_blocks(
        self, receive: Callable[[slice], GeneralAttentionOutput], n: int, size: int
    ) -> GeneralAttentionOutput:
        """Output for n queries, ``size`` of them at a time; scores are computed again in the backward pass."""
        rows = [slice(start, min(start + size, n)) for start in range(0, n, size)]
        if not torch.is_grad_enabled() or in_transform():  # which takes no checkpoints
            return self.join([receive(part) for part in rows])
        if isinstance(self.align, Hard) and self.align.generator is not None:
            raise ValueError(f"generator: blocks draw again in the backward pass; expected None, or block >= {n}")
        return self.join([checkpoint(receive, part, use_reentrant=False) for part in rows])

    def _block(
        self, inputs: AttentionInputs, rows: slice, need_weights: bool, observe: Observe | None = None
    ) -> GeneralAttentionOutput:
        query, key, messages, mask, bias, gain = inputs
        multidim = self.score.multidim
        if isinstance(mask, MaskPattern):
            mask = mask.block(rows, slice(0, key.shape[-2]), key.device)
        else:
            mask = _rows(mask, rows)
        if observe is not None:
            mask = visible_pairs(observe, mask, bias, self.scores_shape(query, key)[-2:], key.device)
        query = None if query is None else query[..., rows, :]
        scores, shape = self.score.for_softmax(query, key), self.scores_shape(query, key)
        axes, wanted = ("(..., L, S, d_v)", (*shape, None)) if multidim else ("(..., L, S)", shape)
        check_made("score", self.score, scores, axes, wanted)
        by_rows = (mask, _rows(bias, rows), _rows(gain, rows))
        of_scores = [x.unsqueeze(-1) if multidim and x is not None else x for x in by_rows]
        aligned = self.align.align(scores, of_scores[0], bias=of_scores[1], dim=-2 if multidim else -1)
        check_made("align", self.align, aligned.weights, "the shape of the scores", tuple(scores.shape))
        weights = aligned.weights if of_scores[2] is None else aligned.weights * of_scores[2].to(scores.dtype)
        weights = weights.to(key.dtype) if key.dtype == torch.float16 else weights
        if observe is not None:
            weights = observe("weights", weights)
        dropped = F.dropout(weights, self.dropout) if self.training else weights
        shown = without_hidden(mask, by_rows[1])
        if observe is not None and isinstance(messages, RelationalMessages):
            context = messages.receive(dropped, rows, mask=shown, observe=observe)
        else:
            context = messages.receive(dropped, rows, multidim=multidim, mask=shown)
        check_made("message", self.message, context, "(..., L, d_v)", (*shape[:-1], None))
        return GeneralAttentionOutput(context, weights if need_weights else None, aligned.log_prob, aligned.entropy)

    def join(self, blocks: list[GeneralAttentionOutput]) -> GeneralAttentionOutput:
        """Outputs for successive queries as one. Scores of features have one more axis behind that of the queries."""
        last = 1 if self.score.multidim else 0
        parts = [(block.context, block.weights, block.log_prob, block.entropy) for block in blocks]
        context, *others = zip(*parts, strict=True)
        axes = (-2 - last, -1 - last, -1 - last)  # of queries in weights, log-probability and entropy
        weights, log_prob, entropy = (
            None if pieces[0] is None else torch.cat(pieces, dim=axis)
            for pieces, axis in zip(others, axes, strict=True)
        )
        return GeneralAttentionOutput(torch.cat(context, dim=-2), weights, log_prob, entropy)


def drawn(steps: Sequence[Any]) -> tuple[Tensor | None, Tensor | None]:
    """Log-probability and entropy of the draws in several steps, added up to ``(B,)``; None if none were drawn."""
    log_probs, entropies = ([getattr(step, name, None) for step in steps] for name in ("log_prob", "entropy"))
    return _total(log_probs), _total(entropies)


def _total(kinds: list[Tensor | None]) -> Tensor | None:
    found = [x.unsqueeze(-1).flatten(1).sum(-1) for x in kinds if x is not None]
    return torch.stack(found).sum(0) if found else None


def _selected(output: GeneralAttentionOutput, selection: Selection | None) -> GeneralAttentionOutput:
    """The output with the selection behind it; PyTorch 2.7 compiles neither ``_replace`` nor slices of it."""
    return GeneralAttentionOutput(output.context, output.weights, output.log_prob, output.entropy, selection)


def _with_selection(inputs: AttentionInputs, selection: Selection) -> AttentionInputs:
    """Inputs with the mask, bias and gain of a selection added."""
    mask, bias = inputs.mask, inputs.bias
    if isinstance(mask, MaskPattern):
        mask = mask.dense(inputs.key.device)
    if selection.bias is not None:
        bias = selection.bias if bias is None else bias + selection.bias
    mask = selection.mask if mask is None else mask & selection.mask
    return AttentionInputs(inputs.query, inputs.key, inputs.messages, mask, bias, selection.gain)


def _rows(x: Tensor | None, rows: slice) -> Tensor | None:
    return x if x is None or x.dim() < 2 or x.shape[-2] == 1 else x[..., rows, :]


def _broadcasts(x: Tensor, shape: tuple[int, ...]) -> bool:
    return x.dim() == len(shape) and all(have in (1, want) for have, want in zip(x.shape, shape, strict=True))


def check_scores_like(name: str, x: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """The mask or bias itself; an error unless it is ``(L, S)``, or has the scores' axes and broadcasts to them."""
    if x is None:
        return None
    if name == "attn_mask":
        require_boolean(name, x)
    elif not x.is_floating_point():
        raise TypeError(f"{name}: expected a floating-point tensor, got dtype {x.dtype} (masks are `attn_mask`)")
    if not _broadcasts(x, shape[-2:] if x.dim() == 2 else shape):
        raise ValueError(
            f"{name}: expected shape (L, S) = {shape[-2:]} or broadcastable to {shape}, got {tuple(x.shape)}"
        )
    return x


def resolve_mask(
    attn_mask: Tensor | None, padding_mask: Tensor | None, is_causal: bool, shape: tuple[int, ...], device: torch.device
) -> Tensor | None:
    """One mask of all, broadcastable to scores of ``shape = (..., L, S)``; None if there are none."""
    mask = check_scores_like("attn_mask", attn_mask, shape)
    if padding_mask is not None:
        require_boolean("padding_mask", padding_mask)
        wanted = (*shape[:-2], shape[-1])
        if padding_mask.shape[-1:] != wanted[-1:] or not _broadcasts(padding_mask, wanted):
            raise ValueError(f"padding_mask: expected shape {wanted}, got {tuple(padding_mask.shape)}")
        padding = padding_mask.unsqueeze(-2)
        mask = padding if mask is None else mask & padding
    if is_causal:
        n, m = shape[-2:]
        if n != m:
            raise ValueError(f"is_causal: needs as many queries as keys, got {n} and {m}")
        order = causal_mask(n, device=device)
        mask = order if mask is None else mask & order
    return mask
