"""Formulas of sensory attention, and of what all kinds of attention share.

Symbols: B batch, N receivers, M senders, H heads, G key/value heads, D width of an attention query or key, d_h width
of a head, K rows of a table of relative positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..attention import Attention
from ..functional.attention import BLOCK, LARGEST_MASK
from .flops import block_pairs, fused_attention, pairs, product
from .registry import Call, register


@dataclass(frozen=True)
class Pattern:
    """Which pairs a call may attend, as far as the formulas depend on it.

    Attributes:
        n, m: receivers and senders.
        causal, window: order.
        parts: whether masks beside order are given.
        mask_rows: rows of the boolean mask, of all examples and heads that differ in it; 0 without one.
        padded: whether there is a mask of padding.
        bias: numbers of an additive bias, or 0.
        bias_learns: whether that bias has a gradient.
    """

    n: int
    m: int
    causal: bool
    window: int | None
    parts: bool = False
    mask_rows: int = 0
    padded: bool = False
    bias: int = 0
    bias_learns: bool = False

    @classmethod
    def of(cls, call: Call, n: int, m: int, batch: int) -> Pattern:
        """The pattern of a call of an attention layer.

        Raises:
            ValueError: if the call asks for maps or has a cache, which these formulas leave out.
        """
        for name in ("need_weights", "cache"):
            if call[name]:
                raise ValueError(f"{name}: estimates are of calls without maps and caches")
        mask, bias, window = call["attn_mask"], call["attn_bias"], call.module.window
        causal = call["is_causal"]
        padding, segments = call["padding_mask"] is not None, call["segments"] is not None
        shape = (1, 1, 1, m) if mask is None else (1,) * (4 - mask.dim()) + tuple(mask.shape)
        examples = batch if padding or segments or shape[0] > 1 else 1
        rows = n if causal or window is not None or segments or shape[2] > 1 else 1
        parts = padding or segments or mask is not None
        return cls(
            n,
            m,
            causal,
            window,
            parts,
            examples * shape[1] * rows if parts or causal or window is not None else 0,
            padding,
            0 if bias is None else bias.numel(),
            bias is not None and bias.requires_grad,
        )

    @property
    def mask(self) -> int:
        """Numbers of the boolean mask."""
        return self.mask_rows * self.m

    @property
    def causal_alone(self) -> bool:
        """Whether order is all that hides anything."""
        return self.causal and not self.parts and self.window is None and not self.bias

    @property
    def least_pairs(self) -> int:
        """Pairs that order allows; masks beside it are not looked into."""
        return pairs(self.n, self.m, causal=self.causal, window=self.window)

    def sender_ranges(self, block: int) -> int:
        """Pairs computed by blocks of receivers."""
        return block_pairs(self.n, self.m, block, causal=self.causal, window=self.window)


def learns(layer: nn.Linear, x: Tensor) -> bool:
    """Whether what a linear map makes of ``x`` has a gradient."""
    return x.requires_grad or any(parameter.requires_grad for parameter in layer.parameters())


def rotated(call: Call) -> bool:
    """Whether RoPE tables are given."""
    return call["freqs_cos"] is not None


@register(Attention, part="self-attention")
def attention(call: Call) -> None:
    """Four projections, and 2 B H N M (D + d_h) in between."""
    layer = call.module
    assert isinstance(layer, Attention)
    query, key, value = call["query"], call["key"], call["value"]
    batch, n, m = query.shape[0], query.shape[1], key.shape[1]
    heads, groups, width, head_width = layer.n_heads, layer.n_kv_heads, layer.key_dim, layer.head_dim
    pattern = Pattern.of(call, n, m, batch)
    rate = layer.dropout if call.setting.training else 0.0

    call.linear(layer.wq, query)
    call.linear(layer.wk, key)
    call.linear(layer.wv, value)
    if layer.rel_pos_keys is not None:
        pattern = shaw_keys(call, pattern, batch, heads, width, layer.rel_pos_keys.rel_pos_embeddings)
    if layer.rel_pos_values is not None:
        call.product(batch, heads, n, m, head_width)
        call.save(n * m, torch.int64)
        call.save(batch * n * m * head_width)
        if batch > 1:
            call.save(batch * heads * n * m)
        softmax_weights(call, pattern, batch, heads, width, rate)
        weighted_sum(call, batch, heads, pattern, head_width, rate)
        shares = False
    else:
        shares = library_attention(
            call,
            pattern,
            batch,
            heads,
            groups,
            width,
            head_width,
            rate,
            queries_are_copied=rotated(call),
            gradients=(learns(layer.wq, query), learns(layer.wk, key), learns(layer.wv, value)),
        )
    call.linear(layer.wo, rows=batch * n, shares_input=shares)
    call.dropout(layer.resid_dropout.p, batch * n * layer.wo.out_features, call.setting.dtype)
    if pattern.causal:
        call.cached.append((groups * (width + head_width), layer.window))
    elif key is not query:
        call.context_cached += groups * (width + head_width)
    projected = batch * (n * heads * (width + head_width) + m * groups * (width + head_width))
    call.workspace = max(projected * call.setting.dtype.itemsize, 2 * call.result_bytes)


def library_attention(
    call: Call,
    pattern: Pattern,
    batch: int,
    heads: int,
    groups: int,
    width: int,
    head_width: int,
    rate: float,
    *,
    queries_are_copied: bool = False,
    values: tuple[int, int] | None = None,
    gradients: tuple[bool, bool, bool] = (True, True, True),
) -> bool:
    """``functional.attention`` without weights.

    The fused kernels keep queries, keys, values, results and one number a row. On a CPU there is none with dropout or
    a bias that learns, and the weights are kept.

    Args:
        queries_are_copied: they are not a view of their projection.
        values: numbers kept of the values by the fused kernels and on the other path, if not those of all examples.
        gradients: whether queries, keys and values have one.

    Returns:
        Whether the result's memory is that of its copy with the heads merged: it has the layout of the queries.
    """
    n, m = pattern.n, pattern.m
    key_width = value_width = max(width, head_width)  # the narrower ones are padded
    masked = not pattern.causal_alone and (pattern.mask > 0 or pattern.bias > 0)
    in_blocks = masked and n * m > LARGEST_MASK
    computed = pattern.sender_ranges(BLOCK) if in_blocks else n * m

    least = 2 * batch * heads * pattern.least_pairs * (width + head_width)
    if call.setting.device == "cpu" and (rate or pattern.bias_learns) and call.differentiable:
        q, k, v = gradients
        scores = q or k
        call.add(product(batch, heads, computed, key_width, gradients=q + k).with_least(least))
        call.add(product(batch, heads, computed, value_width, gradients=scores + v).with_least(0))
        wide = call.setting.wide  # this path computes in float32 at least
        call.save(batch * heads * (n * k + m * q) * key_width, wide)  # scaled, and one for each head
        if scores:
            call.save(batch * heads * m * value_width if values is None else values[1], wide)
        call.save(batch * heads * computed * (1 + (1 + v if rate else 0)), wide)  # weights; dropout's; what it left
        result_is_kept = False
    else:
        call.add(fused_attention(batch, heads, computed, key_width, value_width).with_least(least))
        call.save(batch * (heads * n + groups * m) * key_width)
        call.save(batch * groups * m * value_width if values is None else values[0])
        call.save(batch * heads * n * value_width)
        call.save(batch * heads * n, call.setting.wide)
        if masked:
            rows = heads * batch * n if pattern.bias else pattern.mask_rows
            call.save(rows * m * computed // (n * m))
        result_is_kept = True
    if pattern.padded:
        call.save(2 * batch * m, torch.bool)  # keys and values of padding are set to zero
    if masked:
        call.save(batch * heads * n if pattern.bias else pattern.mask_rows, torch.bool)  # rows without senders
        if pattern.bias_learns:
            call.save(pattern.bias, torch.bool)
    laid_out_by_position = heads == 1 or not (queries_are_copied or width != head_width)
    return result_is_kept and laid_out_by_position and not masked


def shaw_keys(call: Call, pattern: Pattern, batch: int, heads: int, width: int, table: Tensor) -> Pattern:
    """Scores with relative positions, 2 B H N D K; they become a bias that learns."""
    n, m, rows = pattern.n, pattern.m, table.shape[0]
    call.product(batch, heads, n, width, rows)
    call.save(batch * heads * n * (width + rows))
    call.save(n * m, torch.int64)
    parts = pattern.parts or pattern.window is not None
    return replace(pattern, parts=parts, bias=batch * heads * n * m, bias_learns=True)


def softmax_weights(
    call: Call,
    pattern: Pattern,
    batch: int,
    heads: int,
    width: int,
    rate: float,
    *,
    gradients: tuple[bool, bool] = (True, True),
    result_is_kept: bool = True,
) -> None:
    """Attention weights built whole, 2 B H N M D: queries and keys of all heads, weights, masks, dropout's factors.

    A mask is applied twice, before the softmax and after it.

    Args:
        result_is_kept: what follows keeps the weights as they are then.
    """
    n, m = pattern.n, pattern.m
    least = 2 * batch * heads * pattern.least_pairs * width
    call.product(batch, heads, n, width, m, gradients=sum(gradients), least=least)
    call.save(batch * heads * (n + m) * width)
    every = batch * heads * n * m
    call.save(every)
    if pattern.mask or pattern.bias:
        mask = max(pattern.mask, pattern.bias)
        call.save(2 * mask, torch.bool)
    call.dropout(rate, every, call.setting.dtype)
    if result_is_kept and (pattern.mask or pattern.bias or rate):  # else it is the result of the softmax itself
        call.save(every)


def weighted_sum(call: Call, batch: int, heads: int, pattern: Pattern, head_width: int, rate: float) -> None:
    """Values under weights that are built already, 2 B H N M d_h; one value for each head is kept."""
    least = 2 * batch * heads * pattern.least_pairs * head_width
    call.product(batch, heads, pattern.n, pattern.m, head_width, least=least)
    call.save(batch * heads * pattern.m * head_width)
