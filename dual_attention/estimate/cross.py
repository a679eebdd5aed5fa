"""Formulas of relational cross-attention (RCA) and of its disentangled form.

Under softmax and with shared symbols RCA is an attention, and fused. What has no such form builds its weights whole, or
beyond a size for a block of receivers at a time and again in the backward pass.

Symbols: as in :mod:`.flops`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..functional import RelativeSymbols, relational_cross
from ..functional.activations import Activation
from ..relational_cross_attention import DisentangledRelationalCrossAttention, RelationalCrossAttention
from .attention import Pattern, learns, library_attention, rotated, softmax_weights
from .basic import kept_by
from .flops import Flops
from .registry import Call, register
from .relational import library_of, project_symbols, symbols_of_heads


@dataclass(frozen=True)
class Heads:
    """Sizes of a call.

    Attributes:
        n_scores: products of queries and keys: one for RCA, two for its disentangled form.
        rows: K of relative symbols, or 0.
        projected: rows of projected symbols, B_s M or K.
        rate: of dropout.
    """

    pattern: Pattern
    batch: int
    heads: int
    groups: int
    width: int
    n_scores: int
    rows: int
    projected: int
    rate: float

    @property
    def every(self) -> int:
        """Numbers of the weights of all pairs."""
        return self.batch * self.heads * self.pattern.n * self.pattern.m

    @property
    def summed(self) -> bool:
        """Whether weights of the senders that share a relative symbol are summed first."""
        return 0 < self.rows <= 2 * (self.pattern.n + self.pattern.m)

    @property
    def pairs_with_symbols(self) -> int:
        """Pairs of receiver and symbol in a product."""
        return self.pattern.n * (self.rows if self.summed else self.pattern.m)

    @property
    def in_blocks(self) -> bool:
        """Whether there are too many pairs to build their weights at once."""
        return self.pattern.n * self.pattern.m > relational_cross.LARGEST_WHOLE


@register(RelationalCrossAttention, part="relational attention")
def relational_cross_attention(call: Call) -> None:
    """Four projections, scores that are the relations, and symbols under them, 2 B H N M 2 d_h."""
    layer = call.module
    x, y = senders_and_receivers(call)
    call.linear(layer.wq, x)
    call.linear(layer.wk, y)
    sizes = sizes_of(call, n_scores=1)
    gradients = (learns(layer.wq, x), learns(layer.wk, y))
    shares = False
    if layer.activation == "softmax" and not sizes.rows:
        shares = attention_to_symbols(call, sizes, gradients)
    elif sizes.in_blocks:
        weights_in_blocks(call, sizes)
    else:
        if layer.activation == "softmax":
            widths = (sizes.pattern, sizes.batch, sizes.heads, sizes.width, sizes.rate)
            softmax_weights(call, *widths, gradients=gradients, result_is_kept=not sizes.summed)
        else:
            changed = bool(sizes.pattern.mask or sizes.rate)
            kept = not (changed or sizes.summed)
            elementwise_weights(call, sizes, layer.activation, gradients, result_is_kept=kept)
            call.save(sizes.pattern.mask, torch.bool)
            call.dropout(sizes.rate, sizes.every, call.setting.dtype)
            call.save(sizes.every if changed and not sizes.summed else 0)
        symbols_under_weights(call, sizes, learning=any(gradients))
    fused = layer.activation == "softmax" and not sizes.rows  # whose formula knows of padding
    finish(call, sizes, shares=shares, padded=sizes.pattern.padded and not fused)


@register(DisentangledRelationalCrossAttention, part="relational attention")
def disentangled_relational_cross_attention(call: Call) -> None:
    """Six projections, attention scores and as many relations, and symbols under their products, 2 B H N M 3 d_h."""
    layer = call.module
    x, y = senders_and_receivers(call)
    for receivers, senders in ((layer.wq_attn, layer.wk_attn), (layer.wq_rel, layer.wk_rel)):
        call.linear(receivers, x)
        call.linear(senders, y)
    sizes = sizes_of(call, n_scores=2)
    if sizes.in_blocks:
        weights_in_blocks(call, sizes)
    else:
        attends = (learns(layer.wq_attn, x), learns(layer.wk_attn, y))
        relates = (learns(layer.wq_rel, x), learns(layer.wk_rel, y))
        softmax = (sizes.pattern, sizes.batch, sizes.heads, sizes.width, 0.0)
        softmax_weights(call, *softmax, gradients=attends)
        if layer.rel_activation == "softmax":
            softmax_weights(call, *softmax, gradients=relates)
        else:
            elementwise_weights(call, sizes, layer.rel_activation, relates)
        call.save(0 if sizes.summed else sizes.every)  # their product, or what dropout left of it
        call.dropout(sizes.rate, sizes.every, call.setting.dtype)
        symbols_under_weights(call, sizes, learning=any(attends + relates))
    finish(call, sizes, padded=sizes.pattern.padded)


def senders_and_receivers(call: Call) -> tuple[Tensor, Tensor]:
    """``x``, and ``y`` if it is given, else ``x`` again."""
    return call["x"], call["x"] if call["y"] is None else call["y"]


def sizes_of(call: Call, *, n_scores: int) -> Heads:
    """The sizes of a call, whose symbols are projected."""
    layer = call.module
    x, y = senders_and_receivers(call)
    rows, projected = project_symbols(call, layer.wv, call["symbols"])
    pattern = Pattern.of(call, x.shape[1], y.shape[1], x.shape[0])
    rate = layer.dropout if call.setting.training else 0.0
    return Heads(pattern, x.shape[0], layer.n_heads, layer.n_kv_heads, layer.head_dim, n_scores, rows, projected, rate)


def attention_to_symbols(call: Call, sizes: Heads, gradients: tuple[bool, bool]) -> bool:
    """Attention whose values are symbols; returns as :func:`.attention.library_attention`."""
    m, width = sizes.pattern.m, sizes.width
    of_heads = symbols_of_heads(sizes.batch, sizes.heads, m, sizes.projected) * width
    projected = sizes.batch * m if sizes.pattern.padded else sizes.projected  # examples differ in what is set to zero
    return library_attention(
        call,
        sizes.pattern,
        sizes.batch,
        sizes.heads,
        sizes.groups,
        width,
        width,
        sizes.rate,
        queries_are_copied=rotated(call),
        values=(projected * sizes.groups * width, of_heads),
        gradients=(*gradients, learns(call.module.wv, library_of(call["symbols"]))),
    )


def elementwise_weights(
    call: Call,
    sizes: Heads,
    activation: str | Activation,
    gradients: tuple[bool, bool],
    *,
    result_is_kept: bool = True,
) -> None:
    """Activated scores, 2 B H N M D."""
    pattern, outer = sizes.pattern, sizes.batch * sizes.heads
    least = 2 * outer * pattern.least_pairs * sizes.width
    call.product(outer, pattern.n, sizes.width, pattern.m, gradients=sum(gradients), least=least)
    call.save(outer * (pattern.n + pattern.m) * sizes.width)
    call.save(kept_by(activation, result_is_kept=result_is_kept) * sizes.every)


def symbols_under_weights(call: Call, sizes: Heads, *, learning: bool) -> None:
    """Symbols under weights that are built already, 2 B H N M d_h, or 2 B H N K d_h for a library of K."""
    pattern, width, outer = sizes.pattern, sizes.width, sizes.batch * sizes.heads
    gradients = learning + learns(call.module.wv, library_of(call["symbols"]))
    least = 2 * outer * min(pattern.least_pairs, sizes.pairs_with_symbols) * width
    call.product(outer, sizes.pairs_with_symbols, width, gradients=gradients, least=least)
    if sizes.summed:
        call.save(pattern.n * pattern.m, torch.int64)
        copies = 1 if sizes.groups == 1 else outer
        call.save(sizes.rows * (outer * pattern.n + copies * width))
    elif sizes.rows:
        call.save(pattern.n * pattern.m, torch.int64)
        call.save(pattern.n * pattern.m * sizes.heads * width)
    else:
        call.save(symbols_of_heads(sizes.batch, sizes.heads, pattern.m, sizes.projected) * width)


def weights_in_blocks(call: Call, sizes: Heads) -> None:
    """Checkpointed blocks: forward twice, except for the last product of each, which nothing needs again."""
    pattern, outer = sizes.pattern, sizes.batch * sizes.heads
    one = 2 * outer * pattern.sender_ranges(relational_cross.BLOCK) * sizes.width
    of_symbols = 2 * outer * sizes.pairs_with_symbols * sizes.width if sizes.summed else one
    forward = sizes.n_scores * one + of_symbols
    least = 2 * outer * pattern.least_pairs * sizes.width * sizes.n_scores
    least += min(of_symbols, 2 * outer * pattern.least_pairs * sizes.width)
    call.add(Flops(forward, 2 * forward + sizes.n_scores * one, least))
    keys = sizes.batch * (sizes.heads * pattern.n + sizes.groups * pattern.m)
    call.save((sizes.n_scores * keys + sizes.projected * sizes.groups) * sizes.width)


def finish(call: Call, sizes: Heads, *, shares: bool = False, padded: bool) -> None:
    """The output projection, and what is needed while all this happens."""
    layer, batch, n, m, width = call.module, sizes.batch, sizes.pattern.n, sizes.pattern.m, sizes.width
    if padded:  # what padded senders hold is set to zero
        of_symbols = 0 if sizes.rows else sizes.projected
        call.save(sizes.n_scores * batch * m + of_symbols, torch.bool)
    call.linear(layer.wo, rows=batch * n, shares_input=shares)
    call.dropout(layer.resid_dropout.p, batch * n * layer.wo.out_features, call.setting.dtype)
    if sizes.pattern.causal:
        relative = isinstance(call["symbols"], RelativeSymbols)
        call.cached.append(((sizes.n_scores + (not relative)) * sizes.groups * width, layer.window))
    whole = not (sizes.in_blocks or (sizes.n_scores == 1 and layer.activation == "softmax" and not sizes.rows))
    weights = 2 * sizes.n_scores * sizes.every if whole else 0
    projected = batch * (sizes.n_scores * (n * sizes.heads + m * sizes.groups) + n * sizes.heads) * width
    projected += sizes.projected * sizes.groups * width
    call.workspace = (weights + projected) * call.setting.dtype.itemsize
